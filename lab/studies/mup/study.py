"""Does the best learning rate stay where it is as a model grows? By the rule of `design.py`."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from lab.cards.card import NEITHER, Card, Claim, Verdict, measure, shown_seeds
from lab.studies.choice import Validated, notes_on, validated
from lab.studies.mup.design import KINDS, RATES, SEEDS, WIDTHS, get_config
from lab.studies.mup.design import ROWS as NAMES
from lab.studies.plots import legend
from lab.studies.study import Commands, Rows, Study, configs
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.launch import sweep
from vaswani.paper.records import Records
from vaswani.paper.rows import marked
from vaswani.train.table import NOT_RUN, Table, number

FILE = "lab/studies/mup/design.py"
ROWS = Rows(configs(FILE, [f"{row}:{rate}" for row, rate in itertools.product(NAMES, RATES)]), "valid")
TITLE = "The best rate and the width, by parametrisation"
MOST = 1.5  # the largest move of muP's best rate with which it is shown
LEAST = 2.0  # the standard one's must be larger
Runs = dict[str, dict[float, list[Validated]]]  # by row and rate
Losses = dict[str, dict[float, list[float]]]  # nats by row and rate: of the seeds that have run


class Best(NamedTuple):
    """The best rate of a row; at an end of the ladder the true one may lie beyond."""

    rate: float
    at_an_end: bool

    def __str__(self) -> str:
        return f"{number(self.rate, 4)}{' or beyond' if self.at_an_end else ''}"


class Move(NamedTuple):
    """The factor between two best rates, at least 1; only a lower bound if one of them is at an end of the ladder."""

    factor: float
    is_bound: bool

    def __str__(self) -> str:
        return f"{number(self.factor)}{' or more' if self.is_bound else ''}"


TITLES = {"standard": "standard parametrisation", "mup": "muP"}


def tables(records: Records) -> list[Table]:
    """Returns one row for each parametrisation and width, with a column for each rate, and the verdict in the notes."""
    taken = runs_of(records)
    losses = losses_of(taken)
    lines: list[tuple[str, ...]] = []
    of_rows: dict[str, list[Validated]] = {}
    for row in NAMES:
        of_rows[row] = [run for runs in taken[row].values() for run in runs]
        of_rates = losses[row].values()
        cells = [_mean(seeds) for seeds in of_rates]
        best = best_rate(losses[row])
        shown = NOT_RUN if best is None else str(best)
        name = marked(row, [run.run for run in of_rows[row]])
        lines.append((name, *cells, shown, str(len(of_rows[row]))))
    head = ("parametrisation and width", *(f"rate {rate}" for rate in RATES), "best rate", "runs")
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run, and "
        "amended once, as it says, before the recorded runs of muP, after one seed of them had been seen",
        f"verdict: {verdict(losses).sentence}",
        *(f"{kind}: the best rate of the widths moves by a factor of {shown_move(losses, kind)}" for kind in KINDS),
        "nats a subword on validation after the last update, the mean of the seeds; the best rate is where the "
        "parabola through the lowest and its two neighbours has its minimum",
        *notes_on(of_rows),
    ]
    return [Table("mup", TITLE, head, lines, notes)]


def _mean(seeds: Sequence[float]) -> str:
    return number(float(np.mean(seeds)), 3) if seeds else NOT_RUN


def runs_of(records: Records) -> Runs:
    """Finds the runs of each row and rate, of the seeds of the design, evaluated or not."""
    found = validated(records, ROWS.configs.values())
    runs: Runs = {row: {} for row in NAMES}
    for row, rate in itertools.product(NAMES, RATES):
        by_seed = found[ROWS.configs[f"{row}:{rate}"]]
        runs[row][rate] = [by_seed[seed] for seed in SEEDS if seed in by_seed]
    return runs


def losses_of(runs: Runs) -> Losses:
    """Returns the nll on validation of each run's seeds after the last update; if infinite, that of a uniform guess."""
    most = float(np.log(get_config().data.vocab_size))
    losses: Losses = {row: {} for row in runs}
    for row, of_rates in runs.items():
        for rate, of_seeds in of_rates.items():
            nlls = [float(np.log(run.perplexity)) for run in of_seeds]
            losses[row][rate] = [nll if np.isfinite(nll) else most for nll in nlls]
    return losses


def best_rate(losses: Mapping[float, list[float]]) -> Best | None:
    """Returns the best rate by the losses of all rates; None if a run is lacking."""
    if any(len(seeds) < len(SEEDS) for seeds in losses.values()):
        return None
    rates = list(losses)
    means = [float(np.mean(seeds)) for seeds in losses.values()]
    lowest = int(np.argmin(means))
    if lowest in (0, len(rates) - 1):
        return Best(rates[lowest], at_an_end=True)
    before, middle, after = means[lowest - 1 : lowest + 2]
    steps = (before - after) / (2 * (before - 2 * middle + after))  # of the ladder, a factor of 2 each
    return Best(rates[lowest] * 2**steps, at_an_end=False)


def move(losses: Losses, kind: str) -> Move | None:
    """Returns the move of the best rate from the narrowest model to the widest; None without both."""
    narrow, wide = (best_rate(losses[f"{kind}-{width}"]) for width in (WIDTHS[0], WIDTHS[-1]))
    if narrow is None or wide is None:
        return None
    factor = wide.rate / narrow.rate
    return Move(max(factor, 1 / factor), narrow.at_an_end or wide.at_an_end)


def shown_move(losses: Losses, kind: str) -> str:
    """Returns the move of a parametrisation in words."""
    found = move(losses, kind)
    return NOT_RUN if found is None else str(found)


def verdict(losses: Losses) -> Verdict:
    """Judges by the rule of the design."""
    standard, mup = (move(losses, kind) for kind in KINDS)
    if standard is None or mup is None:
        return Verdict.open("not all of the runs that the rule compares are there")
    if mup.factor > standard.factor and not standard.is_bound:
        return Verdict.refuted("the best rate moves more with muP")
    if mup.factor <= MOST and not mup.is_bound and standard.factor > LEAST:
        return Verdict.shown("the best rate stays where it is with muP, and moves without")
    return NEITHER


def cards(records: Records) -> list[Card]:
    """Claims that the best rate stays where it is with muP alone."""
    losses = losses_of(runs_of(records))
    claim = Claim(
        f"with muP the best rate moves by at most {MOST:g}, without by more than {LEAST:g}",
        list(ROWS.find(records).values()),
        ours=", ".join(f"{kind} {shown_move(losses, kind)}" for kind in KINDS),
    )
    about = f"The best rate and the width: how far it moves from d_model {WIDTHS[0]} to {WIDTHS[-1]}"
    card = measure(about, claim, 0)
    counts = [len(seeds) for of_row in losses.values() for seeds in of_row.values()]
    if not any(counts):
        return [card._replace(ours=NOT_RUN)]
    return [card._replace(seeds=shown_seeds(counts), verdict=verdict(losses).word)]


def plot(records: Records, path: Path) -> None:
    """Draws nll against the rate, a line for each width, in a panel for each parametrisation.

    Raises:
      UserError: the file cannot be written.
    """
    losses = losses_of(runs_of(records))
    with figure_file(path, 7, 3.2) as figure:
        panels = figure.subplots(1, len(KINDS), sharey=True)
        for axes, kind in zip(panels, KINDS, strict=True):
            for place, width in enumerate(WIDTHS):
                _draw(axes, losses[f"{kind}-{width}"], colour(place), f"$d_{{model}}$ = {width}")
            axes.set(title=TITLES[kind], xlabel="learning rate (dotted: the best)", xscale="log")
            axes.set_xticks(RATES, [str(rate) for rate in RATES], rotation=90)
            axes.minorticks_off()
        figure.axes[0].set_ylabel("nats a subword, validation")
        legend(figure, figure.axes[0], len(WIDTHS))


def _draw(axes: Axes, of_row: Mapping[float, list[float]], ink: Any, label: str) -> None:
    """Draws the means of a row against the rate, and a line where its best rate is."""
    means = {rate: float(np.mean(seeds)) for rate, seeds in of_row.items() if seeds}
    if means:
        axes.plot(list(means), list(means.values()), "o-", color=ink, markersize=3)
        axes.plot([], [], color=ink, label=label)
    best = best_rate(of_row)
    if best is not None:
        axes.axvline(best.rate, color=ink, linestyle=":", linewidth=1)


def commands() -> Commands:
    """Runs the whole grid, or one rate of a row."""
    one_rate = Rows(configs(FILE, NAMES), "valid").commands()
    grid = sweep(f"{FILE}:{NAMES[0]}", "mup")
    return [("all of mup", grid), *((f"{row}, one rate", command) for row, command in one_rate)]


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=commands(),
)
