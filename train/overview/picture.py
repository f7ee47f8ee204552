"""Curves of runs: training and validation nll over updates, the seeds of a config as one line with a band."""

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from vaswani.errors import UserError
from vaswani.files import write_bytes, write_text, writing
from vaswani.keys import short_names
from vaswani.table import Table, is_numeric
from vaswani.train.overview.found import FoundRun, differing_keys

SUFFIXES = (".svg", ".png", ".html")
_PANELS = {"train": "training", "valid": "validation"}
_MOST_IN_A_LEGEND = 16
_LONGEST_LABEL = 60  # characters
# A fixed salt and no date: the same runs give the same bytes.
_STYLE: Any = {"svg.hashsalt": "runs", "svg.fonttype": "path"}
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Runs</title><style>
body {{ font-family: sans-serif; margin: 2em; }} svg {{ max-width: 100%; height: auto; }}
table {{ border-collapse: collapse; }} th, td {{ padding: 0.2em 0.7em; text-align: left; }}
th {{ border-bottom: 1px solid; }} .number {{ text-align: right; }}
</style></head><body>
{drawing}
{table}
</body></html>
"""


def draw(runs: Sequence[FoundRun], table: Table, output: Path) -> None:
    """Draws the curves of runs into `output`, whose ending is the format; an .html file also has the table.

    Raises:
      UserError: no run has any record, or the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    seeds = _by_seeds([run for run in runs if run.records])
    if not seeds:
        raise UserError("none of these runs has a record yet; there is nothing to draw")
    drawn = io.BytesIO()
    kind = "png" if output.suffix == ".png" else "svg"
    metadata = {"Date": None} if kind == "svg" else None
    with rc_context(_STYLE):
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        for axes, (record, title) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
            _draw_panel(axes, seeds, record)
            axes.set_title(title)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        if len(labels) <= _MOST_IN_A_LEGEND:
            figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
        figure.savefig(drawn, format=kind, dpi=150, metadata=metadata)
    with writing(f"--plot={output}"):
        if output.suffix == ".html":
            svg = drawn.getvalue().decode()
            write_text(output, _PAGE.format(drawing=svg[svg.index("<svg") :], table=_html(table)))
        else:
            write_bytes(output, drawn.getvalue())


def _by_seeds(runs: Sequence[FoundRun]) -> dict[str, list[FoundRun]]:
    """Returns the runs of each config, whatever its seed, by what tells that config from the others."""
    keys = [key for key in differing_keys(runs) if key != "seed"]
    names = short_names(keys)
    groups: dict[str, list[FoundRun]] = {}
    for run in runs:
        changes = ", ".join(f"{name}={run.config[key]}" for name, key in zip(names, keys, strict=True))
        groups.setdefault(changes, []).append(run)
    named: dict[str, list[FoundRun]] = {}
    for changes, group in groups.items():
        label = changes if 0 < len(changes) <= _LONGEST_LABEL else str(group[0].path)
        text = label.replace("$", r"\$")  # else matplotlib reads what is between two as a formula
        count = f" ({len(group)} runs)" if len(group) > 1 else ""
        named[f"{text}{count}"] = group
    return named


def _draw_panel(axes: Any, seeds: dict[str, list[FoundRun]], kind: str) -> None:
    """Draws the nll of the records of one kind, over updates: a group's mean, and the band between its extremes."""
    for number, (label, runs) in enumerate(seeds.items()):
        all_curves = [_curve(run, kind) for run in runs]
        curves = [curve for curve in all_curves if curve]
        steps: list[int] = []
        if curves:
            steps = sorted(set(curves[0]).intersection(*curves[1:]))  # those that every curve has
        values = [[curve[step] for curve in curves] for step in steps]
        colour = f"C{number % 10}"
        marker = "." if kind == "valid" else ""
        axes.plot(steps, [fmean(column) for column in values], color=colour, marker=marker, linewidth=1.3, label=label)
        if len(curves) > 1:
            lowest = [min(column) for column in values]
            highest = [max(column) for column in values]
            axes.fill_between(steps, lowest, highest, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("updates")
    axes.set_ylabel("nll, nats a token")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)


def _curve(run: FoundRun, kind: str) -> dict[int, float]:
    """Returns the nll of a run's records of one kind, by update."""
    records = [record for record in run.records if record["kind"] == kind]
    return {record["step"]: record["nll"] for record in records if "nll" in record}


def _html(table: Table) -> str:
    """Returns a table as HTML, with its title above and the notes below."""
    columns = list(zip(*table.rows, strict=True))
    classes = [' class="number"' if is_numeric(column) else "" for column in columns]
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    lines = [f"<p>{escape(table.title)}</p>", "<table>", f"<tr>{heads}</tr>"]
    for row in table.rows:
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, classes, strict=True))
        lines.append(f"<tr>{cells}</tr>")
    lines.append("</table>")
    lines += [f"<p>{escape(note)}</p>" for note in table.notes]
    return "\n".join(lines)
