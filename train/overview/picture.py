"""Pictures of the curves of runs, `.svg` or `.png`."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.files import write_bytes, writing
from vaswani.train.overview.curves import Curve, curves_of
from vaswani.train.overview.find_runs import FoundRun

SUFFIXES = (".svg", ".png")
_TITLES = {"train": "training nll", "valid": "validation nll"}
_MOST_IN_A_LEGEND = 16
# A fixed salt and no date: the same runs give the same bytes.
_STYLE: Any = {"svg.hashsalt": "runs", "svg.fonttype": "path"}


def draw(runs: Sequence[FoundRun], output: Path) -> None:
    """Draws the losses of runs into `output`, whose ending is the format.

    Raises:
      UserError: no run has any record, or the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if not any(run.records for run in runs):
        raise UserError("none of these runs has a record yet; there is nothing to draw")
    drawn = io.BytesIO()
    kind_of_file = output.suffix.removeprefix(".")
    metadata = {"Date": None} if kind_of_file == "svg" else None
    with rc_context(_STYLE):
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        for axes, (kind, title) in zip(figure.subplots(1, 2), _TITLES.items(), strict=True):
            _draw_panel(axes, curves_of(runs, kind), kind)
            axes.set_title(title)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        if len(labels) <= _MOST_IN_A_LEGEND:
            figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
        figure.savefig(drawn, format=kind_of_file, dpi=150, metadata=metadata)
    with writing(f"--plot={output}"):
        write_bytes(output, drawn.getvalue())


def _draw_panel(axes: Any, curves: dict[str, Curve], kind: str) -> None:
    """Draws the curves of one kind of record: a group's mean, and the band between its extremes."""
    for number, (name, curve) in enumerate(curves.items()):
        colour = f"C{number % 10}"
        marker = "." if kind == "valid" else ""
        label = name.replace("$", r"\$")  # else matplotlib reads what is between two as a formula
        axes.plot(curve.steps, curve.mean, color=colour, marker=marker, linewidth=1.3, label=label)
        if curve.low:
            axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("updates")
    axes.set_ylabel("nll, nats a token")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
