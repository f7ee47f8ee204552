"""Positions beyond the training length (section 3.5): negative log-likelihood by position, out to four times it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from base.intervals import with_interval
from base.table import NOT_RUN, Table, spread
from lab.studies.extrapolation.design import LENGTH, POSITIONS
from model.parameter_count import parameter_count
from paper.drawing import curve, drawn
from paper.records import Records
from paper.rows import RowRuns, caveat_notes, load, row_runs, run_notes
from paper.tables.cost import cost
from paper.tables.trend import INTERVAL, differences_by_seed
from run.folder import model_config

FILE = "lab/studies/extrapolation/design.py"
# The first is within the training length, with enough before it to read.
BANDS = ((LENGTH // 2, LENGTH), (LENGTH, 2 * LENGTH), (2 * LENGTH, 4 * LENGTH))
SMOOTHED = 4  # positions of a point of the figure


def tables(records: Records) -> list[Table]:
    """Returns one row for each kind of positions."""
    names = [f"{first + 1} to {last}" for first, last in BANDS]
    head = (
        "positions",
        *(f"nats a token at position: {name}" for name in names),
        *(f"minus {names[0]}: {name}" for name in names[1:]),
        "parameters",
        "seeds",
        "cost",
    )
    runs = rows(records)
    lines = [_line(kind, row) for kind, row in runs.items()]
    notes = [
        f"language models of the built-in corpus's English, trained on rows of {LENGTH} tokens that begin anywhere, "
        f"and tested on rows of {BANDS[-1][1]}; position 1 is the first predicted token",
        f"a table of learned positions has {LENGTH} rows: longer rows cannot be read at all",
        f"mean over the seeds, ± standard deviation; differences, of the same seed: {INTERVAL}",
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    return [Table("extrapolation", "Positions beyond the training length", head, lines, notes)]


def _line(kind: str, row: RowRuns) -> tuple[str, ...]:
    cfg = load(f"{FILE}:{kind}")
    config = model_config(cfg, cfg.data.vocab_size)
    nll = [banded(row, band) for band in BANDS]
    shown: list[str] = []
    for values, band in zip(nll, BANDS, strict=True):
        shown.append(spread(values.tolist(), 3) or _missing(row, band, config.encoding.limit))
    beyond = [with_interval(risen(row, band), 3) for band in BANDS[1:]]
    return (
        row.label(kind),
        *shown,
        *beyond,
        f"{parameter_count(config, decoder_only=True):,}",
        str(len(row.scored)),
        cost(row.scored),
    )


def banded(row: RowRuns, band: tuple[int, int]) -> Float[np.ndarray, " seeds"]:
    """Returns the mean over a band of positions of every seed; none unless all evaluations reach to its end."""
    first, last = band
    nll = [seed.scores["nll_by_position"] for seed in row.scored]
    if any(len(nll_t) < last for nll_t in nll):
        return np.array([])
    return np.array([np.mean(nll_t[first:last]) for nll_t in nll])


def risen(row: RowRuns, band: tuple[int, int]) -> Float[np.ndarray, " seeds"]:
    """Returns by how much the mean over a band is above that within the training length, of every seed, as `banded`."""
    within, beyond = banded(row, BANDS[0]), banded(row, band)
    return beyond - within if len(beyond) == len(within) else np.array([])


def apart(row: RowRuns, other: RowRuns, band: tuple[int, int]) -> Float[np.ndarray, " seeds"]:
    """Returns the mean over a band minus that of another row, for each seed that both have, as `banded`."""
    return differences_by_seed(_banded_by_seed(row, band), _banded_by_seed(other, band))


def _banded_by_seed(row: RowRuns, band: tuple[int, int]) -> dict[int, float]:
    seeds = [scored.run.config["seed"] for scored in row.scored]
    return dict(zip(seeds, banded(row, band), strict=False))  # `banded` may have none


def _missing(row: RowRuns, band: tuple[int, int], limit: int | None) -> str:
    if limit is not None and limit < band[1]:
        return "not learned"
    if row.scored:
        return "not evaluated"
    return row.missing or NOT_RUN


def plot(records: Records, path: Path) -> None:
    """Draws the mean over the seeds by position, and between the lowest and the highest seed a band, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    with drawn(path, 6.5, 4) as figure:
        axes = figure.subplots()
        for place, (kind, row) in enumerate(rows(records).items()):
            if not row.scored:
                continue
            nll_st = smoothed([seed.scores["nll_by_position"] for seed in row.scored])
            centres = (np.arange(nll_st.shape[1]) + 0.5) * SMOOTHED
            curve(axes, centres, nll_st, place, kind)
        axes.axvline(LENGTH, color="grey", linestyle=":")
        axes.text(LENGTH, 0.98, " longest trained on", color="grey", transform=axes.get_xaxis_transform(), va="top")
        axes.set(xlabel=f"position, {SMOOTHED} together", ylabel="nats a token")
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=3, fontsize=7)


def rows(records: Records) -> dict[str, RowRuns]:
    """Returns the runs of each kind of positions."""
    return {kind: row_runs(records, f"{FILE}:{kind}", "test", "nll_by_position") for kind in POSITIONS}


def smoothed(nll: Sequence[Sequence[float]]) -> Float[np.ndarray, "seeds points"]:
    """Returns the means of `SMOOTHED` positions, of every seed as far as all reach."""
    length = min(map(len, nll)) // SMOOTHED * SMOOTHED
    return np.array([nll_t[:length] for nll_t in nll]).reshape(len(nll), -1, SMOOTHED).mean(-1)
