"""SCAN by length: exact match where outputs are longer than any in training, by positions and sharing of layers."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from base.table import Table
from configs.scan_length import JUDGED, LENGTHS, MODELS
from data.scan import LONGEST
from paper.drawing import colour, drawn
from paper.records import Records, RowRuns, caveat_notes, row_runs
from paper.tables.cost import cost
from paper.tables.trend import INTERVAL, paired_differences, tested, with_interval

FILE = "configs/scan_length.py"
HOLM = {  # what is compared, the first model with the second; by Holm over the two of each
    "relative positions are better": {
        "own layers": ("shaw", "sinusoidal"),
        "shared": ("shaw-shared", "sinusoidal-shared"),
    },
    "shared layers are better": {"sinusoidal": ("sinusoidal-shared", "sinusoidal"), "shaw": ("shaw-shared", "shaw")},
}
RELATIVE = ("shaw", "shaw-shared")
REACHED = 95.0  # of each of the `SEEDS`, for the published value to be met
SEEDS = 5


def tables(records: Records) -> list[Table]:
    """Returns a row for each length and model, and the differences that the design judges in the notes."""
    head = ("model", "exact match %", "minus sinusoidal", "seeds", "cost")
    runs = rows(records)
    lines: list[tuple[str, ...]] = []
    for (actions, model), row in runs.items():
        base = runs[actions, MODELS[0]]
        difference = "" if row is base else with_interval(paired_differences(row, base, "exact_match"), 1)
        name = row.label(f"{model}:{actions}")
        lines.append((name, row.shown("exact_match"), difference, str(len(row.scored)), cost(row.scored)))
    notes = [
        "the design, its rule and what was expected: configs/scan_length.py, committed before the first run",
        f"model:N is trained on outputs of up to N actions; the test has all longer ones, of up to {LONGEST}",
        f"mean over the seeds, ± standard deviation, decoded greedily; differences, of the same seed: {INTERVAL}",
        *(note for what in HOLM for note in tested(differences(runs, what), f"{what}, {JUDGED} actions")),
        *(note for row in runs.values() for note in row.notes),
        *caveat_notes({f"{model}:{actions}": row for (actions, model), row in runs.items()}),
    ]
    return [Table("scan_length", "SCAN by length", head, lines, notes)]


def rows(records: Records) -> dict[tuple[int, str], RowRuns]:
    """Returns the runs of each length and model."""
    return {
        (actions, model): row_runs(records, f"{FILE}:{model}:{actions}", "test")
        for actions in LENGTHS
        for model in MODELS
    }


def differences(runs: dict[tuple[int, str], RowRuns], what: str) -> dict[str, Float[np.ndarray, " seeds"]]:
    """Returns the differences in exact match, by seed, of what `HOLM` compares, at the length that is judged."""
    return {
        name: paired_differences(runs[JUDGED, one], runs[JUDGED, other], "exact_match")
        for name, (one, other) in HOLM[what].items()
    }


def plot(records: Records, path: Path) -> None:
    """Draws every seed, by the longest outputs in training, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    runs = rows(records)
    with drawn(path, 5, 3.2) as figure:
        axes = figure.subplots()
        for place, model in enumerate(MODELS):
            points = [(actions, value) for actions in LENGTHS for value in runs[actions, model].values("exact_match")]
            xs = [actions + 0.3 * (place - 1.5) for actions, _ in points]
            axes.plot(xs, [value for _, value in points], "o", color=colour(place), label=model)
        axes.set_xticks(LENGTHS)
        axes.set(ylim=(-3, 103), xlabel="longest output in training, in actions", ylabel="exact match %")
        figure.legend(loc="outside lower center", ncols=2, fontsize=7)
