"""A sweep at a glance: its points as a table for people, spreadsheets or programs, and as a picture."""

import csv
import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from base import table
from base.errors import UserError
from train.sweep.point import PointStatus

MEASURES = ("loss", "loss_best", "perplexity", "perplexity_best", "bleu", "bleu_best")
_FIXED = ("point", "state", "step", "steps", *MEASURES, "minutes", "reason")
_MOST_IN_A_LEGEND = 16


def as_records(points: Sequence[PointStatus], config: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a flat dict for each point; `config`, dotted key to value, is what they depart from.

    Its keys are "point"; each config key whose value is not the same in all; "state", "step", "steps"; the `MEASURES`
    that `train.sweep.point.summary` explains, None where there is none; "minutes" of training; "reason" or "".
    """
    keys = dict.fromkeys(key for point in points for key in point.overrides)  # a dict, for the order
    values = {key: [{key: None, **config, **point.overrides}[key] for point in points] for key in keys}
    differing = [key for key in keys if any(value != values[key][0] for value in values[key])]
    return [
        {
            "point": point.name,
            **{key: values[key][number] for key in differing},
            "state": point.state,
            "step": point.summary.get("step", 0),
            "steps": point.overrides.get("steps", config["steps"]),
            **{name: point.summary.get(name) for name in (*MEASURES, "minutes")},
            "reason": point.reason,
        }
        for number, point in enumerate(points)
    ]


def as_text(records: Sequence[dict[str, Any]]) -> str:
    """Returns the table for people; empty columns are left out, reasons stand below."""
    keys = [key for key in (records[0] if records else ()) if key not in _FIXED]
    headings = [name.replace("bleu", "BLEU") if "_" not in name else "best" for name in MEASURES]
    lines = [(*(key.rpartition(".")[2] for key in keys), "state", "step", *headings, "minutes", "point")]
    for record in records:
        step = f"{record['step']:,}/{record['steps']:,}" if record["step"] else ""
        numbers = [table.number(record[name], 4 if name.startswith("loss") else 2) for name in MEASURES]
        cells = [*(str(record[key]) for key in keys), record["state"], step, *numbers]
        lines.append((*cells, table.number(record["minutes"], 1), record["point"]))
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    head, *rows = zip(*columns, strict=True) if columns else ((),)
    states = [record["state"] for record in records]
    title = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "no points yet"
    notes = [f"{record['point']}: {record['reason']}" for record in records if record["reason"]]
    return table.as_text(table.Table("sweep", title, head, rows, notes))


def as_csv(records: Sequence[dict[str, Any]]) -> str:
    """Returns the same as comma-separated values, full keys in the first line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else _FIXED, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().rstrip("\n")


def draw(points: Sequence[PointStatus], output: Path, *, search: bool) -> None:
    """Draws validation loss, nats a token, unsmoothed, into `output`: a curve a point; for a search, a dot a trial.

    Raises `UserError` where nothing has been validated yet, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    from infer.attention.drawing import save

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    best = {number: min(point.losses.values()) for number, point in enumerate(points) if point.losses}
    if not best:
        raise UserError("no point has been validated yet; there is nothing to draw")
    if search:
        for state in sorted({points[number].state for number in best}):
            trials = [number for number in best if points[number].state == state]
            axes.scatter(trials, [best[number] for number in trials], s=22, label=state)
        lowest = list(itertools.accumulate(best.values(), min))
        axes.step(list(best), lowest, where="post", linewidth=1, color="black", label="best so far")
    else:
        curves = [(point.name, *zip(*sorted(point.losses.items()), strict=True)) for point in points if point.losses]
        for name, steps, losses in sorted(curves, key=lambda curve: curve[2][-1]):  # the legend: best first
            axes.plot(steps, losses, marker=".", linewidth=1.2, label=name)
    if search or len(best) <= _MOST_IN_A_LEGEND:
        axes.legend(fontsize=8)
    axes.set_xlabel("trial" if search else "updates")
    axes.set_ylabel("validation loss, nats a token")
    axes.grid(alpha=0.3)
    save(figure, output, f"--plot={output}", dpi=150)
