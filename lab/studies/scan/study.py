"""SCAN: exact match where the test combines what training has shown in other combinations only."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from base.intervals import with_interval
from base.table import Table, number
from data.scan import SPLITS
from paper.drawing import colour, drawn
from paper.published import SCAN
from paper.records import Records
from paper.rows import RowRuns, caveat_notes, row_runs, run_notes, with_seeds
from paper.tables.cost import cost
from paper.tables.trend import INTERVAL, tested

FILE = "lab/studies/scan/design.py"
SEEDS = {
    split: range(7 if split == "around-right" else 3) for split in SPLITS
}  # of the design; none more will be added


def tables(records: Records) -> list[Table]:
    """Returns one row for each split."""
    head = ("split", "exact match %: published", "exact match %: ours", "exact match %: delta", "seeds", "cost")
    runs = rows(records)
    lines: list[tuple[str, ...]] = []
    delta: dict[str, Float[np.ndarray, " seeds"]] = {}
    for split, row in runs.items():
        published = SCAN[split]
        if published is not None:
            delta[split] = np.array(row.values("exact_match")) - published
        lines.append(
            (
                row.label(split),
                number(published, 1),
                row.shown("exact_match"),
                with_interval(delta[split], 1) if split in delta else "",
                str(len(row.scored)),
                cost(row.scored),
            )
        )
    notes = [
        "published: a Transformer, attributed to Furrer et al. 2020 (arXiv 2007.08970), rounded; we have not "
        "seen their table, and the recipes were not compared",
        "ours: mean over the seeds, ± standard deviation, decoded greedily; simple is our own random split, the "
        "other splits are the published ones",
        f"delta: {INTERVAL}; how far seeds of the published model lie apart is not known",
        *tested(delta, "delta"),
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    return [Table("scan", "SCAN: compositional generalisation", head, lines, notes)]


def plot(records: Records, path: Path) -> None:
    """Draws every seed, and what is published as a line, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    with drawn(path, 4.5, 3.2) as figure:
        axes = figure.subplots()
        for place, (split, row) in enumerate(rows(records).items()):
            values = row.values("exact_match")
            axes.plot(np.full(len(values), place), values, "o", color=colour(place))
            published = SCAN[split]
            if published is not None:
                axes.plot((place - 0.3, place + 0.3), (published, published), color="grey")
        axes.set_xticks(range(len(SPLITS)), SPLITS)
        axes.set(xlim=(-0.5, len(SPLITS) - 0.5), ylim=(-3, 103), ylabel="exact match %; grey: published")


def rows(records: Records) -> dict[str, RowRuns]:
    """Returns the runs of each split, of the seeds of the design."""
    return {split: row_runs(with_seeds(records, SEEDS[split]), f"{FILE}:{split}", "test") for split in SPLITS}
