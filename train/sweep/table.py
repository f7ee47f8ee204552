"""A sweep at a glance: its points as a table for people, spreadsheets or programs, and as a picture."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from base.errors import UserError
from train.sweep.point import OBJECTIVE, Row, read_records

MEASURES = ("loss", "loss_best", "perplexity", "perplexity_best", "bleu", "bleu_best")
_MOST_IN_A_LEGEND = 16


def as_records(rows: Sequence[Row], config: dict[str, Any]) -> list[dict[str, Any]]:
    """One flat dict a point.

    Args:
      rows: the points.
      config: the config that they depart from, dotted key to value.

    Returns:
      "point"; each key whose value is not the same in all of them; "state", "step", "steps"; the `MEASURES` that
      `train.sweep.point.summary` explains, None where there is none yet; "minutes" of training; "reason", "" unless
      it failed.
    """
    keys = {key: None for row in rows for key in row.overrides}  # a dict, for the order
    values = {key: [row.overrides.get(key, config[key]) for row in rows] for key in keys}
    differing = [key for key in keys if any(value != values[key][0] for value in values[key])]
    return [
        {
            "point": row.name,
            **{key: values[key][number] for key in differing},
            "state": row.state,
            "step": int(row.summary.get("step", 0)),
            "steps": row.overrides.get("steps", config["steps"]),
            **{name: row.summary.get(name) for name in MEASURES},
            "minutes": row.summary.get("minutes"),
            "reason": row.reason,
        }
        for number, row in enumerate(rows)
    ]


def as_text(records: Sequence[dict[str, Any]]) -> str:
    """The table for people; columns in which nothing stands are left out, reasons stand below."""
    keys = [key for key in records[0] if key not in ("point", "state", "step", "steps", *MEASURES, "minutes", "reason")]
    lines = [[*(key.rpartition(".")[2] for key in keys), "state", "step", *map(_heading, MEASURES), "minutes", "point"]]
    for record in records:
        step = f"{record['step']:,}/{record['steps']:,}" if record["step"] else ""
        numbers = [_rounded(record[name], 4 if name.startswith("loss") else 2) for name in MEASURES]
        cells = [*(str(record[key]) for key in keys), record["state"], step, *numbers]
        lines.append([*cells, _rounded(record["minutes"], 1), record["point"]])
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    words = len(keys) + 1  # these columns hold words, and the last does; the others numbers
    text = [
        "  ".join(
            cell.ljust(width) if place < words or place == len(widths) - 1 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in zip(*columns, strict=True)
    ]
    counts = {state: sum(record["state"] == state for record in records) for state in (r["state"] for r in records)}
    text += ["", ", ".join(f"{count} {state}" for state, count in counts.items())]
    return "\n".join([*text, *(f"{record['point']}: {record['reason']}" for record in records if record["reason"])])


def as_csv(records: Sequence[dict[str, Any]]) -> str:
    """The same as comma-separated values, full keys in the first line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().rstrip("\n")


def draw(rows: Sequence[Row], workdir: Path, output: Path, *, search: bool) -> None:
    """Draws validation loss, nats a token, unsmoothed, into `output`: a curve a point; for a search, a dot a trial.

    Raises:
      UserError: nothing has been validated yet, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    if not (_draw_trials(axes, rows) if search else _draw_curves(axes, rows, workdir)):
        raise UserError(f"{workdir}: no point has been validated yet; there is nothing to draw")
    axes.set_ylabel("validation loss, nats a token")
    axes.grid(alpha=0.3)
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise UserError(f"--plot={output}: cannot be written ({getattr(error, 'strerror', None) or error})") from error


def _draw_curves(axes: Any, rows: Sequence[Row], workdir: Path) -> int:
    curves = {}
    for row in rows:
        valid = [record for record in read_records(workdir / row.name) if record["kind"] == "valid"]
        if valid:
            curves[row.name] = ([record["step"] for record in valid], [record[OBJECTIVE] for record in valid])
    for name, (steps, losses) in sorted(curves.items(), key=lambda curve: curve[1][1][-1]):  # the legend: best first
        axes.plot(steps, losses, marker=".", linewidth=1.2, label=name)
    axes.set_xlabel("updates")
    if 0 < len(curves) <= _MOST_IN_A_LEGEND:
        axes.legend(fontsize=8)
    return len(curves)


def _draw_trials(axes: Any, rows: Sequence[Row]) -> int:
    best = f"{OBJECTIVE}_best"
    measured = [(number, row) for number, row in enumerate(rows) if best in row.summary]
    for state in sorted({row.state for _, row in measured}):
        those = [(number, row.summary[best]) for number, row in measured if row.state == state]
        axes.scatter(*zip(*those, strict=True), s=22, label=state)
    lowest = [min(row.summary[best] for _, row in measured[: place + 1]) for place in range(len(measured))]
    axes.step([number for number, _ in measured], lowest, where="post", linewidth=1, color="black", label="best so far")
    axes.set_xlabel("trial")
    axes.legend(fontsize=8)
    return len(measured)


def _heading(measure: str) -> str:
    name, _, best = measure.partition("_")
    return "best" if best else "BLEU" if name == "bleu" else name


def _rounded(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
