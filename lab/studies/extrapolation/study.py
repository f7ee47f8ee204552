"""Positions beyond the training length (section 3.5): negative log-likelihood by position, out to four times it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from lab.cards.card import MARGIN, Card, Claim, compare
from lab.drawing import curve
from lab.studies.extrapolation.design import LENGTH, POSITIONS
from lab.studies.plots import legend
from lab.studies.study import Column, Commands, Rows, Runs, Study, configs, count_seeds, mean_cost, table
from vaswani.model.config import ModelConfig
from vaswani.model.parameter_count import parameter_count
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns, load
from vaswani.paper.tables.trend import INTERVAL, differences_by_seed
from vaswani.tasks.config import model_config
from vaswani.train.intervals import with_interval
from vaswani.train.table import NOT_RUN, Table, spread

FILE = "lab/studies/extrapolation/design.py"
ROWS = Rows(configs(FILE, POSITIONS), measure="nll_by_position")
# The first is within the training length, with enough before it to read.
BANDS = ((LENGTH // 2, LENGTH), (LENGTH, 2 * LENGTH), (2 * LENGTH, 4 * LENGTH))
SMOOTHED = 4  # positions of a point of the figure

LABELS = {
    "sinusoidal": "sinusoids (the paper)",
    "learned": "learned",
    "rope": "rotary (RoPE)",
    "alibi": "linear biases (ALiBi)",
    "t5": "learned biases (T5)",
    "none": "no positions",
}


def tables(records: Records) -> list[Table]:
    """Compares the kinds of positions."""
    within, *beyond = BANDS
    columns = {f"nats a token at position: {name_of(band)}": mean_over(band) for band in BANDS}
    columns |= {f"minus {name_of(within)}: {name_of(band)}": rise_to(band) for band in beyond}
    columns |= {"parameters": count_parameters, "seeds": count_seeds, "cost": mean_cost}
    notes = [
        f"language models of the built-in corpus's English, trained on rows of {LENGTH} tokens that begin anywhere, "
        f"and tested on rows of {BANDS[-1][1]}; position 1 is the first predicted token",
        f"a table of learned positions has {LENGTH} rows: longer rows cannot be read at all",
        f"mean over the seeds, ± standard deviation; differences, of the same seed: {INTERVAL}",
    ]
    title = "Positions beyond the training length"
    return [table("extrapolation", title, "positions", columns, ROWS.find(records), notes)]


def name_of(band: tuple[int, int]) -> str:
    """Names a band by its positions, which count from 1."""
    first, last = band
    return f"{first + 1} to {last}"


def mean_over(band: tuple[int, int]) -> Column:
    """Shows the mean over a band, or why there is none."""

    def cell(kind: str, runs: Runs) -> str:
        row = runs[kind]
        nll = spread(banded(row, band).tolist(), 3)
        if nll:
            return nll
        limit = config_of(kind).limit
        if limit is not None and limit < band[1]:
            return "not learned"
        return "not evaluated" if row.scored else row.missing or NOT_RUN

    return cell


def rise_to(band: tuple[int, int]) -> Column:
    """Shows by how much a band is above that within the training length."""
    return lambda kind, runs: with_interval(risen(runs[kind], band), 3)


def count_parameters(kind: str, runs: Runs) -> str:
    return f"{parameter_count(config_of(kind), decoder_only=True):,}"


def config_of(kind: str) -> ModelConfig:
    """Loads the model's config of a row."""
    cfg = load(ROWS.configs[kind])
    return model_config(cfg, cfg.data.vocab_size)


def banded(row: RowRuns, band: tuple[int, int]) -> Float[np.ndarray, " seeds"]:
    """Returns the mean over a band of positions of every seed; none unless all evaluations reach to its end."""
    first, last = band
    nll = [seed.scores["nll_by_position"] for seed in row.scored]
    if any(len(nll_t) < last for nll_t in nll):
        return np.array([])
    return np.array([np.mean(nll_t[first:last]) for nll_t in nll])


def risen(row: RowRuns, band: tuple[int, int]) -> Float[np.ndarray, " seeds"]:
    """Subtracts the mean within the training length from that over a band, of every seed, as `banded`."""
    within, beyond = banded(row, BANDS[0]), banded(row, band)
    return beyond - within if len(beyond) == len(within) else np.array([])


def apart(row: RowRuns, other: RowRuns, band: tuple[int, int]) -> Float[np.ndarray, " seeds"]:
    """Returns the mean over a band minus that of another row, for each seed that both have, as `banded`."""
    return differences_by_seed(_banded_by_seed(row, band), _banded_by_seed(other, band))


def _banded_by_seed(row: RowRuns, band: tuple[int, int]) -> dict[int, float]:
    seeds = [scored.run.config["seed"] for scored in row.scored]
    return dict(zip(seeds, banded(row, band), strict=False))  # `banded` may have none


def cards(records: Records) -> list[Card]:
    """Claims that the loss stays what it is, and that sinusoids are worse than no positions at all."""
    runs = ROWS.find(records)
    within, *_, beyond = BANDS
    about = f"Positions beyond the training length, nats a token at {name_of(beyond)}"
    stay = [
        Claim(f"positions {kind}: not above those at {name_of(within)}", [row], risen(row, beyond), -1, margin=MARGIN)
        for kind, row in runs.items()
        if kind != "learned"  # has no entries beyond the training length
    ]
    sinusoidal, none = runs["sinusoidal"], runs["none"]
    apart_s = apart(sinusoidal, none, beyond)
    worse = Claim("sinusoidal positions are worse than none", [sinusoidal, none], apart_s, 1)
    return [*compare(about, stay, 3), *compare(about, [worse], 3)]


def plot(records: Records, path: Path) -> None:
    """Draws the mean over the seeds by position, and between the lowest and the highest seed a band, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 6.5, 4) as figure:
        axes = figure.subplots()
        for place, (kind, row) in enumerate(ROWS.find(records).items()):
            if not row.scored:
                continue
            nll_st = smoothed([seed.scores["nll_by_position"] for seed in row.scored])
            centres = (np.arange(nll_st.shape[1]) + 0.5) * SMOOTHED
            curve(axes, centres, nll_st, place, LABELS[kind])
        axes.axvline(LENGTH, color="grey", linestyle=":")
        axes.text(LENGTH, 0.98, " longest trained on", color="grey", transform=axes.get_xaxis_transform(), va="top")
        axes.set(xlabel=f"position, {SMOOTHED} together", ylabel="nats a token")
        legend(figure, axes, 3)


def smoothed(nll: Sequence[Sequence[float]]) -> Float[np.ndarray, "seeds points"]:
    """Returns the means of `SMOOTHED` positions, of every seed as far as all reach."""
    length = min(map(len, nll)) // SMOOTHED * SMOOTHED
    return np.array([nll_t[:length] for nll_t in nll]).reshape(len(nll), -1, SMOOTHED).mean(-1)


def commands() -> Commands:
    """Scores each row as far as it can be read."""
    commands: Commands = []
    for kind, command in ROWS.commands():
        row_length = LENGTH if kind == "learned" else 4 * LENGTH
        commands.append((kind, f"{command} --row_length={row_length}"))
    return commands


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=commands(),
)
