"""Does a translator extrapolate? BLEU on sentences longer than any it learned from; rule: `design.py`."""

from pathlib import Path

from lab.cards.card import Card, Verdict, between, compare
from lab.studies.longer.design import PAPER, POSITIONS, SEEDS
from lab.studies.plots import draw_rows
from lab.studies.study import Rows, Runs, Study, configs, count_seeds, mean, mean_cost, minus, table
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.train.table import NOT_RUN, Table, spread

FILE = "lab/studies/longer/design.py"
LABELS = {
    PAPER: "sinusoids",
    "learned": "a learned table",
    "rope": "RoPE",
    "alibi": "ALiBi",
    "t5": "T5's biases",
}
ROWS = Rows(configs(FILE, POSITIONS), seeds=SEEDS)


def on_short(kind: str, runs: Runs) -> str:
    """Shows the BLEU of the last validation, which is of short sentences."""
    last = [scored.run.validations[-1]["bleu"] for scored in runs[kind].scored]
    return spread(last, 1) or runs[kind].missing or NOT_RUN


COLUMNS = {
    "BLEU, 3 to 30 words": on_short,
    "31 to 60 words": mean("sacrebleu", 1),
    f"minus {PAPER}": minus(PAPER, "sacrebleu", 1),
    "seeds": count_seeds,
    "cost": mean_cost,
}


def tables(records: Records) -> list[Table]:
    """Compares the kinds of positions."""
    notes = [f"the design, its rule and what was expected: {FILE}, committed before the first run"]
    return [table("longer", "Longer sentences than in training", "positions", COLUMNS, ROWS.find(records), notes)]


def cards(records: Records) -> list[Card]:
    """Claims of every other kind that it has more BLEU on long sentences than sinusoids."""
    runs = ROWS.find(records)
    paper = runs[PAPER]
    claims = [
        between(f"a translator with {kind} has more than with sinusoids", row, paper, "sacrebleu", 1)
        for kind, row in runs.items()
        if kind != PAPER
    ]
    made = compare("Longer sentences than in training: sacreBLEU", claims, 1)
    complete = all(len(row.scored) == len(SEEDS) for row in runs.values())
    return made if complete else [card.by_rule(Verdict.open("not all seeds have run")) for card in made]


def plot(records: Records, path: Path) -> None:
    """Draws every seed of each row, and their mean.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 5, 3) as figure:
        axes = figure.subplots()
        draw_rows(axes, ROWS.find(records), "sacrebleu", LABELS)
        axes.set_ylabel("sacreBLEU, 31 to 60 words")


STUDY = Study(rows=ROWS.find, tables=tables, cards=cards, plot=plot, commands=ROWS.commands())
