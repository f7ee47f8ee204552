"""Why dropout at these places? The lowest loss on validation by place; rule: `design.py`."""

from pathlib import Path

from lab.cards.card import Card, Verdict, between, compare
from lab.studies.dropout.design import BASE, PAPER, PLACES, RATE, ROWS, SEEDS, get_config
from lab.studies.own_records import Record, newest, runs_of
from lab.studies.plots import draw_rows
from lab.studies.study import Runs, Study, count_seeds, mean, mean_cost, minus, table
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.train.table import NOT_RUN, Table

FILE = "lab/studies/dropout/design.py"
TITLE = f"Dropout of {RATE} by place, on 5,000 pairs"
NLL = "lowest nll"
REPEATED = "not repeatable by lab.reproduce: lab/studies/dropout/design.py has its command"
LABELS = {
    BASE: "no dropout",
    "embeddings": "embedding\nsums",
    "sub-layers": "sub-layers'\noutputs",
    "attention": "softmax\nweights",
    "relu": "after the\nReLU",
    "sum": "residual\nstream",
    PAPER: "the paper's\ntwo",
    "all": "the first\nfour",
}
COLUMNS = {
    "lowest nll on validation": mean(NLL, 3),
    f"minus {BASE}": minus(BASE, NLL, 3),
    f"minus {PAPER}": minus(PAPER, NLL, 3),
    "at update": mean("update", 0),
    "last nll": mean("last nll", 3),
    "seeds": count_seeds,
    "cost": mean_cost,
}


def scores(record: Record) -> dict[str, float]:
    """Returns the lowest nll on validation and its update, and the last nll."""
    lowest = min(record["valid"], key=lambda line: line["nll"])
    return {NLL: lowest["nll"], "update": float(lowest["step"]), "last nll": record["valid"][-1]["nll"]}


def rows(records: Records) -> Runs:
    """Returns the runs of each row."""
    of_study = [record for record in records.of_studies if record["study"] == "dropout"]
    of_design = [record for record in newest(of_study) if record["seed"] in SEEDS]
    return runs_of(of_design, ROWS, get_config, scores)


def tables(records: Records) -> list[Table]:
    """Compares the places."""
    notes = [f"the design, its rule and what was expected: {FILE}, committed before the first run"]
    return [table("dropout", TITLE, "dropout of", COLUMNS, rows(records), notes)]


def cards(records: Records) -> list[Card]:
    """Claims that each place has a lower nll than none, and two about the paper's places."""
    runs = rows(records)
    places = [
        between(f"dropout of {name} alone has less than none", runs[name], runs[BASE], NLL, -1) for name in PLACES
    ]
    made = compare(f"{TITLE}: lowest nll, each place", places, 3)
    others = [
        between("all places have less than the paper's two", runs["all"], runs[PAPER], NLL, -1),
        between("sub-layers' outputs have less than sums", runs["sub-layers"], runs["sum"], NLL, -1),
    ]
    made += compare(f"{TITLE}: lowest nll, the paper's places", others, 3)
    if not all(len(row.scored) == len(SEEDS) for row in runs.values()):
        made = [card.by_rule(Verdict.open("not all seeds have run")) for card in made]
    return [card if card.verdict == NOT_RUN else card._replace(command=REPEATED) for card in made]


def plot(records: Records, path: Path) -> None:
    """Draws every seed of each row, and their mean.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 6, 3) as figure:
        axes = figure.subplots()
        draw_rows(axes, rows(records), NLL, LABELS)
        axes.set_ylabel("lowest nll on validation")


COMMANDS = [(name, f"python -m lab.studies.dropout.run --row={name} --seed={SEEDS[0]}") for name in ROWS]
STUDY = Study(rows=rows, tables=tables, cards=cards, plot=plot, commands=COMMANDS)
