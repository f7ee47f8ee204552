"""SCAN: exact match where the test combines what training has shown in other combinations only."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from lab.cards.card import Card, Claim, compare, measure, met, shown_mean
from lab.published import SCAN
from lab.scan import SPLITS
from lab.studies.plots import draw_seeds
from lab.studies.study import Rows, Runs, Study, configs, count_seeds, mean, mean_cost, repeats, table
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns
from vaswani.paper.tables.trend import INTERVAL, tested
from vaswani.train.intervals import with_interval
from vaswani.train.table import Table, number

FILE = "lab/studies/scan/design.py"
TWO = Rows(configs(FILE, ("simple", "length")), seeds=range(3))
AROUND_RIGHT = Rows(configs(FILE, ("around-right",)), seeds=range(7))  # of the design; none more will be added


def rows(records: Records) -> Runs:
    """Finds the runs of each split."""
    return TWO.find(records) | AROUND_RIGHT.find(records)


def above_published(split: str, row: RowRuns) -> Float[np.ndarray, " seeds"]:
    """Subtracts what is published from every seed; nothing where no number is published."""
    published = SCAN[split]
    return np.array([]) if published is None else np.array(row.values("exact_match")) - published


COLUMNS = {
    "exact match %: published": lambda split, runs: number(SCAN[split], 1),
    "exact match %: ours": mean("exact_match"),
    "exact match %: delta": lambda split, runs: with_interval(above_published(split, runs[split]), 1),
    "seeds": count_seeds,
    "cost": mean_cost,
}

LABELS = {"simple": "drawn at random", "length": "longer outputs", "around-right": "“around right”"}


def tables(records: Records) -> list[Table]:
    """Compares the splits with what is published."""
    runs = rows(records)
    notes = [
        "published: a Transformer, attributed to Furrer et al. 2020 (arXiv 2007.08970), rounded; we have not "
        "seen their table, and the recipes were not compared",
        "ours: mean over the seeds, ± standard deviation, decoded greedily; simple is our own random split, the "
        "other splits are the published ones",
        f"delta: {INTERVAL}; how far seeds of the published model lie apart is not known",
        *tested({split: above_published(split, row) for split, row in runs.items()}, "delta"),
    ]
    return [table("scan", "SCAN: compositional generalisation", "split", COLUMNS, runs, notes)]


def cards(records: Records) -> list[Card]:
    """Claims that simple commands are right, and the others as often as published."""
    about = "SCAN: exact match, %"
    simple, *others = rows(records).items()
    claims = [
        Claim(
            f"{split}: as published",
            [row],
            above_published(split, row),
            published=f"{SCAN[split]}, attributed to Furrer et al. 2020",
            ours=shown_mean(row, "exact_match"),
        )
        for split, row in others
    ]
    split, row = simple
    solved = Claim(
        f"{split} is solved",
        [row],
        np.array(row.values("exact_match")),
        ours=shown_mean(row, "exact_match"),
    )
    made = [measure(about, solved, 1)]
    for claim, card in zip(claims, compare(about, claims, 1), strict=True):
        is_exact = len(claim.values) > 1 and not claim.values.any()
        if is_exact or card.verdict == "refuted":
            card = card._replace(verdict=met(is_exact))
        made.append(card)
    return made


def plot(records: Records, path: Path) -> None:
    """Draws every seed, and what is published as a line, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 4.5, 3.2) as figure:
        axes = figure.subplots()
        for place, (split, row) in enumerate(rows(records).items()):
            draw_seeds(axes, place, row.values("exact_match"), colour(place), SCAN[split])
        axes.set_xticks(range(len(SPLITS)), LABELS.values())
        axes.set(xlim=(-0.5, len(SPLITS) - 0.5), ylim=(-3, 103), ylabel="exact match %; grey: published")


STUDY = Study(
    rows=rows,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=repeats("scan", SPLITS, 0),
)
