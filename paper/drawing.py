"""Draws figures as SVG: attention as lines between two columns of tokens.

Nothing here knows of a run. Weights are [t,s], rows queries and columns keys, and their rows sum to 1.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vaswani.infer.attention.drawing import save

# A fixed salt and no date: the same run gives the same bytes. Letters are outlines, so that no reader needs the fonts.
STYLE: Any = {"svg.hashsalt": "attention", "svg.fonttype": "path", "font.size": 8, "axes.titlesize": 8}
ROW = 0.17  # inches of a line of text


@contextmanager
def figure_file(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yields a figure of `width` x `height` inches and writes it to `path` when the block ends.

    Raises:
      UserError: the file cannot be written.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        save(figure, path, str(path), metadata={"Date": None})


def colour(number: int) -> Any:
    """Returns the colour of the head, or of a study's row, of this number: the same in every figure."""
    return colormaps["tab10"](number % 10)


def spelled(pieces: Sequence[str]) -> list[str]:
    """Returns subwords as labels, with a hyphen between two parts of a word."""
    labels: list[str] = []
    for piece, after in zip(pieces, [*pieces[1:], ""], strict=True):
        label = piece.lstrip("▁") or piece
        goes_on = piece[-1:].isalpha() and after.isalpha()
        labels.append(f"{label}-" if goes_on else label)
    return labels


def columns(axes: Axes, tokens: Sequence[str], bold: int | None = None, reach: float = 0.0) -> None:
    """Draws the tokens as queries on the left and as keys on the right; with a `bold` query the others are grey.

    The columns are 1 apart; `reach` is the space to the right for `draw_weights`.
    """
    axes.set(xlim=(-0.75, 1.75 + reach), ylim=(len(tokens) - 0.4, -0.6))
    axes.axis("off")
    for i, token in enumerate(tokens):
        shade = "0.6" if bold not in (None, i) else "black"
        weight = "bold" if i == bold else "normal"
        axes.text(-0.04, i, token, ha="right", va="center", color=shade, weight=weight, parse_math=False)
    for j, token in enumerate(tokens):
        axes.text(1.04 + reach, j, token, ha="left", va="center", parse_math=False)


def connect(
    axes: Axes, weights_ts: Float[np.ndarray, "t s"], colour: Any, queries: Sequence[int] | None = None
) -> None:
    """Draws a line from every query, or the chosen ones, to every key, as opaque as its weight."""
    chosen = range(len(weights_ts)) if queries is None else queries
    for i in chosen:
        for j, weight in enumerate(weights_ts[i]):
            if weight <= 0.04:  # fainter lines are invisible and make large files
                continue
            opacity = float(min(weight, 1))
            axes.plot((0, 1), (i, j), color=colour, alpha=opacity, linewidth=1.6, solid_capstyle="butt")


def draw_weights(axes: Axes, weights_s: Float[np.ndarray, " s"], place: float, width: float, colour: Any) -> None:
    """Draws a cell at every key of one query, as dark as its weight, which is readable where lines overlap."""
    for j, weight in enumerate(weights_s):
        opacity = float(min(weight, 1))
        axes.fill_between((place, place + width), j - 0.42, j + 0.42, color=colour, alpha=opacity, lw=0)
