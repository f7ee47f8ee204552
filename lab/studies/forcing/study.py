"""What does label smoothing do under the model's own prefixes? Losses by position; rule: `design.py`."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from lab.cards.card import Card, Claim, Verdict, compare
from lab.drawing import curve
from lab.studies.forcing.design import POSITIONS, ROWS, SEEDS
from lab.studies.plots import legend
from lab.studies.study import Column, Rows, Runs, Study, configs, count_seeds, mean, mean_cost, table
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns
from vaswani.paper.tables.trend import differences_by_seed
from vaswani.train.intervals import with_interval
from vaswani.train.table import NOT_RUN, Table, spread

FILE = "lab/studies/forcing/design.py"
RUNS = Rows(configs(FILE, ROWS), measure="own_prefixes", seeds=SEEDS)
SMOOTHED, UNSMOOTHED = ROWS
MEASURES = {
    "forced loss": lambda measured: np.mean(measured["forced"]),
    "own loss of prefixes that left": lambda measured: measured["own_of_left"],
    "gap": lambda measured: np.mean(np.subtract(measured["own"], measured["forced"])[1:]),
}
CLAIMS = {
    "forced loss": ("without smoothing the loss under forced prefixes is lower", -1),
    "own loss of prefixes that left": ("without smoothing it is higher where own prefixes have left the reference", 1),
    "gap": ("without smoothing the gap between own and forced prefixes is larger", 1),
}


def by_seed(row: RowRuns, name: str) -> dict[int, float]:
    """Returns a measure of each seed, in nats."""
    return {run.config["seed"]: float(MEASURES[name](scores["own_prefixes"])) for run, scores, _ in row.scored}


def without_smoothing(name: str, runs: Runs) -> Float[np.ndarray, " seeds"]:
    """Returns a measure without label smoothing minus that with it, for each seed that both have."""
    return differences_by_seed(by_seed(runs[UNSMOOTHED], name), by_seed(runs[SMOOTHED], name))


def mean_of(name: str) -> Column:
    """Shows a measure: mean over the seeds, and spread."""

    def cell(row: str, runs: Runs) -> str:
        return spread([*by_seed(runs[row], name).values()], 3) or runs[row].missing or NOT_RUN

    return cell


COLUMNS = {name: mean_of(name) for name in MEASURES} | {
    "BLEU": mean("sacrebleu", 1),
    "seeds": count_seeds,
    "cost": mean_cost,
}


def tables(records: Records) -> list[Table]:
    """Compares both rows, with the differences and the verdicts in the notes."""
    runs = RUNS.find(records)
    notes = [f"the design, its rule and what was expected: {FILE}, committed before the first run"]
    for name, card in zip(MEASURES, cards(records), strict=True):
        difference = with_interval(without_smoothing(name, runs), 3)
        notes.append(f"{name}, unsmoothed minus smoothed: {difference or NOT_RUN}; {card.claim}: {card.verdict}")
    notes.append(
        f"loss of the reference's tokens 1 to {POSITIONS} of the test text, in nats; gap: own minus forced, positions "
        f"2 to {POSITIONS}; mean over the seeds ± standard deviation, differences ± half of the 95 % t interval"
    )
    return [table("forcing", "Label smoothing and the model's own prefixes", "row", COLUMNS, runs, notes)]


def cards(records: Records) -> list[Card]:
    """Claims what leaving out label smoothing does to the loss under forced and under own prefixes."""
    runs = RUNS.find(records)
    rows = [runs[UNSMOOTHED], runs[SMOOTHED]]
    claims = [Claim(text, rows, without_smoothing(name, runs), sign) for name, (text, sign) in CLAIMS.items()]
    made = compare("Label smoothing and own prefixes: loss in nats, without smoothing minus with it", claims, 3)
    if len(without_smoothing("gap", runs)) < len(SEEDS):
        return [card.by_rule(Verdict.open(f"not all {len(SEEDS)} seeds of both have run")) for card in made]
    return made


def plot(records: Records, path: Path) -> None:
    """Draws both losses by position: the mean over the seeds, and between the lowest seed and the highest a band.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 6.5, 3.6) as figure:
        axes = figure.subplots()
        for place, (name, row) in enumerate(RUNS.find(records).items()):
            if row.scored:
                for prefixes, style in (("own", "-"), ("forced", "--")):
                    losses_st = np.array([scored.scores["own_prefixes"][prefixes] for scored in row.scored])
                    label = f"{name}, {prefixes} prefixes"
                    curve(axes, np.arange(1, POSITIONS + 1), losses_st, place, label, linestyle=style)
        axes.set(xlabel="position", ylabel="loss of the reference's token, nats", ylim=(0, None))
        legend(figure, axes, 2)


STUDY = Study(
    rows=RUNS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=RUNS.commands(" && python -m lab.studies.forcing.measure --workdir=runs/forcing-ROW"),
)
