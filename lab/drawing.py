"""Draws what only our own figures have: means over seeds, named points, and heat maps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes

from vaswani.paper.drawing import colour

Box = tuple[float, float, float, float]  # left, bottom, right, top
DARK = 0.72  # on a darker ground white letters have the larger contrast, on others black ones


def curve(axes: Any, x_p: Any, y_sp: Any, place: int, label: str, **style: Any) -> None:
    """Draws the mean over the seeds s of the points p, and a band between the lowest seed and the highest."""
    axes.plot(x_p, y_sp.mean(0), color=colour(place), label=label, **style)
    axes.fill_between(x_p, y_sp.min(0), y_sp.max(0), color=colour(place), alpha=0.15, linewidth=0)


def name_points(axes: Axes, points: Mapping[str, tuple[float, float]], **style: Any) -> None:
    """Writes each point's name next to it, where it covers no point and no other name; `style` is the text's.

    The axes must have their limits and their place in the figure.
    """
    size = style.get("fontsize", 7)
    dots = axes.figure.dpi / 72  # pixels of a point
    places = {name: axes.transData.transform(point) for name, point in points.items()}
    taken = [(x - 3 * dots, y - 3 * dots, x + 3 * dots, y + 3 * dots) for x, y in places.values()]
    for name, (x, y) in places.items():
        boxes = _boxes_around(x, y, 0.7 * size * len(name) * dots, size * dots, dots)
        free = [box for box in boxes if not any(_overlap(box, other) for other in taken)]
        chosen = free[0] if free else boxes[0]
        taken.append(chosen)
        offset = ((chosen[0] - x) / dots, (chosen[1] - y) / dots)
        axes.annotate(name, points[name], xytext=offset, textcoords="offset points", **style)


def _boxes_around(x: float, y: float, width: float, height: float, dots: float) -> list[Box]:
    """Returns boxes around a point for a text of this size, in pixels: the nearest first, corners before sides.

    `dots` are the pixels of a typographic point.
    """
    boxes = []
    for away in (4, 10, 18, 28):  # typographic points
        for right, up in ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1)):
            left = x + right * away * dots - (1 - right) * width / 2
            bottom = y + up * away * dots - (1 - up) * height / 2
            boxes.append((left, bottom, left + width, bottom + height))
    return boxes


def _overlap(one: Box, other: Box) -> bool:
    is_beside = one[2] <= other[0] or other[2] <= one[0]
    is_above_or_below = one[3] <= other[1] or other[3] <= one[1]
    return not is_beside and not is_above_or_below


def heat(
    axes: Axes,
    values: Float[np.ndarray, "rows columns"],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    numbers: bool = False,
) -> None:
    """Draws a heat map of values in [0, 1], white to dark, with per cents if `numbers`."""
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False)
    axes.set_yticks(range(len(rows)), rows, parse_math=False)
    axes.tick_params(length=0)
    if numbers:
        for (i, j), value in np.ndenumerate(values):
            shade = "white" if value > DARK else "black"
            axes.text(j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=shade)


def shaded(
    axes: Axes, logs: Float[np.ndarray, "rows columns"], rows: Sequence[str], columns: Sequence[str], *, highest: float
) -> None:
    """Draws a heat map of logarithms, 0 white and `highest` dark, with the numbers themselves; NaN stays empty."""
    heat(axes, np.clip(logs / highest, 0, 1), rows, columns)
    for (i, j), log in np.ndenumerate(logs):
        if np.isfinite(log):
            shade = "white" if log / highest > DARK else "black"
            axes.text(j, i, f"{np.exp(log):.3g}", ha="center", va="center", fontsize=7, color=shade)


def mark(axes: Axes, cells_ts: Bool[np.ndarray, "t s"]) -> None:
    """Draws a frame around every chosen cell of a heat map."""
    for i, j in np.argwhere(cells_ts):
        box_x = (j - 0.4, j + 0.4, j + 0.4, j - 0.4, j - 0.4)
        box_y = (i - 0.4, i - 0.4, i + 0.4, i + 0.4, i - 0.4)
        axes.plot(box_x, box_y, color="tab:red", linewidth=1.1)
