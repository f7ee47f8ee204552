"""Parts of the figures of several studies."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.studies.study import Runs

# What the rows of several studies are called in their figures.
MIXERS = {
    "attention": "attention",
    "restricted": "attention to neighbours",
    "linear": "linear attention",
    "recurrent": "recurrent (LSTM)",
    "convolution": "convolution",
}


def legend(figure: Figure, axes: Axes, columns: int) -> None:
    """Draws the legend of these axes below the figure, if there is anything in it."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=7)


def draw_seeds(axes: Axes, place: float, values: Sequence[float], ink: Any, published: float | None = None) -> None:
    """Draws every seed of a row above its place, and what is published as a grey line."""
    axes.plot(np.full(len(values), place), values, "o", color=ink)
    if published is not None:
        axes.plot((place - 0.3, place + 0.3), (published, published), color="grey")


def draw_rows(axes: Axes, runs: Runs, score: str, labels: Mapping[str, str]) -> None:
    """Draws a score of each row that has a label, in their order: a dot for each seed, and a line at the mean."""
    for place, name in enumerate(labels):
        values = runs[name].values(score)
        if values:
            axes.plot((place - 0.3, place + 0.3), [float(np.mean(values))] * 2, color="black")
        draw_seeds(axes, place, values, "0.5")
    axes.set_xticks(range(len(labels)), [*labels.values()], fontsize=8)
