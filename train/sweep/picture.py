"""A sweep as a picture: the nll of its points, and what each config key does to it."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.infer.attention.drawing import save
from vaswani.train.sweep.point import PointStatus
from vaswani.train.sweep.ranking import best_of, differing_keys

NLL = "validation nll, nats a token"
_MOST_IN_A_LEGEND = 16
_MOST_TICKED = 20  # characters of all values of a key, each of which then gets a tick
_COLOURS = {"done": "C0", "pruned": "C1", "running": "C2", "interrupted": "C3", "failed": "C4", "waiting": "0.6"}
_WIDE = 10.0  # the ratio of the largest to the smallest value from which an axis is logarithmic


def draw(
    points: Sequence[PointStatus],
    output: Path,
    *,
    search: bool,
    config: dict[str, Any] | None = None,
    importances: Mapping[str, float] | None = None,
) -> None:
    """Draws the validation nll into `output`: a curve a point, for a search a dot a trial; then nll by each key.

    Not by `optuna.visualization`, whose history leaves out pruned and failed trials, and whose curves have numbers in
    place of the points' names and an nll that is an "Intermediate Value".

    Args:
      points: of the sweep.
      output: the file; its ending is the format.
      search: whether Optuna chose the points.
      config: dotted key to value, from which the points depart.
      importances: of the parameters of a search, by Optuna; they add up to 1.

    Raises:
      UserError: nothing has been validated yet, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    validated = [point for point in points if point.nll]
    if not validated:
        raise UserError("no point has been validated yet; there is nothing to draw")
    base = config or {}
    keys = differing_keys(validated, base)
    best = best_of(points, base)
    panels = len(keys) + (1 if importances else 0)
    columns = 2 if panels in (1, 2, 4) else 3
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(11, 5 + 3.2 * rows), layout="constrained")
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=[5] + [3.2] * rows)
    history = figure.add_subplot(grid[0, :])
    if search:
        _draw_trials(history, points, best)
    else:
        _draw_curves(history, validated)
    if search or len(validated) <= _MOST_IN_A_LEGEND:
        history.legend(fontsize=8)
    history.set_xlabel("trial" if search else "updates")
    history.set_ylabel(NLL)
    history.grid(alpha=0.3)
    cells = [(1 + number // columns, number % columns) for number in range(panels)]
    for cell, key in zip(cells, keys, strict=False):
        _draw_key(figure.add_subplot(grid[cell]), validated, key, base, best)
    if importances:
        _draw_importances(figure.add_subplot(grid[cells[-1]]), importances)
    save(figure, output, f"--plot={output}", dpi=150)


def _lowest(point: PointStatus) -> float:
    """Returns the lowest nll of a point's validations; infinite if none is a number."""
    return min((nll for nll in point.nll.values() if not math.isnan(nll)), default=math.inf)


def _draw_trials(axes: Any, points: Sequence[PointStatus], best: PointStatus | None) -> None:
    """Draws the lowest nll of each trial, by its number, and the lowest up to there."""
    lowest = {trial: _lowest(point) for trial, point in enumerate(points) if point.nll}
    for state in sorted({points[trial].state for trial in lowest}):
        trials = [trial for trial in lowest if points[trial].state == state]
        axes.scatter(trials, [lowest[trial] for trial in trials], s=22, color=_COLOURS[state], label=state)
    so_far = list(itertools.accumulate(lowest.values(), min))
    axes.step(list(lowest), so_far, where="post", linewidth=1, color="black", label="lowest so far")
    if best and best.nll:
        trial = points.index(best)
        axes.annotate(best.name, (trial, lowest[trial]), (0, -14), textcoords="offset points", ha="center", fontsize=8)
        axes.margins(y=0.12)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _draw_curves(axes: Any, points: Sequence[PointStatus]) -> None:
    """Draws the nll of each point over steps; the legend begins with the lowest last one."""
    for point in sorted(points, key=lambda point: point.nll[max(point.nll)]):
        steps = sorted(point.nll)
        axes.plot(steps, [point.nll[step] for step in steps], marker=".", linewidth=1.2, label=point.name)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _draw_key(
    axes: Any, points: Sequence[PointStatus], key: str, config: dict[str, Any], best: PointStatus | None
) -> None:
    """Draws the lowest nll of each point over its value of a config key; the best one is ringed."""
    from matplotlib.ticker import LogLocator, NullFormatter

    wholes = [config | point.overrides for point in points]
    values: list[Any] = [whole.get(key) for whole in wholes]
    lowest = [_lowest(point) for point in points]
    are_numbers = all(type(value) in (int, float) for value in values)
    if are_numbers:
        places = values
        if min(values) > 0 and max(values) / min(values) >= _WIDE:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        distinct = sorted(set(values))
        labels = [f"{value:.4g}" for value in distinct]
        if len("".join(labels)) <= _MOST_TICKED:
            axes.set_xticks(distinct, labels)
            axes.set_xticks([], minor=True)
    else:
        names = sorted(set(map(str, values)))
        places = [names.index(str(value)) for value in values]
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
    axes.scatter(places, lowest, s=18, c=[_COLOURS[point.state] for point in points])
    if best in points:
        number = points.index(best)
        axes.scatter([places[number]], [lowest[number]], s=90, facecolors="none", edgecolors="black")
    axes.set_xlabel(key)
    axes.set_ylabel("lowest nll")
    axes.grid(alpha=0.3)


def _draw_importances(axes: Any, importances: Mapping[str, float]) -> None:
    """Draws the share of the differences in nll that Optuna ascribes to each parameter, the largest above."""
    names = sorted(importances, key=importances.__getitem__)
    bars = axes.barh(names, [importances[name] for name in names], color="C0")
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.set_xlim(0, 1.15 * max(*importances.values(), math.ulp(1.0)))
    axes.set_xlabel("importance (Optuna)")
