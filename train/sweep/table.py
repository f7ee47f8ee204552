"""A sweep at a glance: its points as a table for people, spreadsheets or programs, and as a picture."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from base import table
from base.errors import UserError
from train.sweep.point import PointStatus

MEASURES = ("nll", "nll_best", "loss", "loss_best", "perplexity", "perplexity_best", "bleu", "bleu_best")
_SHOWN = tuple(name for name in MEASURES if not name.startswith("loss"))  # which is comparable for one eps_ls alone
_FIXED = ("point", "state", "step", "steps", *MEASURES, "minutes", "reason")
_MOST_IN_A_LEGEND = 16


def as_records(points: Sequence[PointStatus], config: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a flat dict for each point; `config`, dotted key to value, is what they depart from.

    Its keys are "point"; each config key whose value is not the same in all; "state", "step", "steps"; the `MEASURES`
    that `train.sweep.point.summary` explains, None where there is none; "minutes" of training; "reason" or "".
    """
    configs = [config | point.overrides for point in points]
    overridden = dict.fromkeys(key for point in points for key in point.overrides)  # a dict, for the order
    differing: list[str] = []
    for key in overridden:
        values = [whole.get(key) for whole in configs]
        if any(value != values[0] for value in values):
            differing.append(key)
    return [
        {
            "point": point.name,
            **{key: whole.get(key) for key in differing},
            "state": point.state,
            "step": point.summary.get("step", 0),
            "steps": whole["steps"],
            **{name: point.summary.get(name) for name in (*MEASURES, "minutes")},
            "reason": point.reason,
        }
        for point, whole in zip(points, configs, strict=True)
    ]


def as_text(records: Sequence[dict[str, Any]]) -> str:
    """Returns the table for people; empty columns are left out, reasons stand below."""
    states = [record["state"] for record in records]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    if not counts:
        return "no points yet"
    keys = [key for key in records[0] if key not in _FIXED]
    head = [key.rpartition(".")[2] for key in keys]
    head += ["state", "step", *(_heading(name) for name in _SHOWN), "minutes", "point"]
    columns = zip(head, *(_cells(record, keys) for record in records), strict=True)
    filled = [column for column in columns if any(column[1:])]
    head_shown, *rows = zip(*filled, strict=True)
    notes = [f"{record['point']}: {record['reason']}" for record in records if record["reason"]]
    return table.as_text(table.Table("", ", ".join(counts), head_shown, rows, notes))


def _heading(measure: str) -> str:
    return "best" if measure.endswith("_best") else measure.replace("bleu", "BLEU")


def _cells(record: dict[str, Any], keys: Sequence[str]) -> list[str]:
    """Returns the row of a point, whose own keys are `keys`."""
    step = f"{record['step']:,}/{record['steps']:,}" if record["step"] else ""
    cells = [str(record[key]) for key in keys]
    cells += [record["state"], step]
    cells += [table.number(record[name], 4 if name.startswith("nll") else 2) for name in _SHOWN]
    return [*cells, table.number(record["minutes"], 1), record["point"]]


def as_csv(records: Sequence[dict[str, Any]]) -> str:
    """Returns the same as comma-separated values, not rounded, with whole keys in the first line."""
    head = tuple(records[0]) if records else _FIXED
    rows = [tuple("" if value is None else str(value) for value in record.values()) for record in records]
    return table.as_csv(table.Table("", "", head, rows, []))


def draw(points: Sequence[PointStatus], output: Path, *, search: bool) -> None:
    """Draws the validation nll into `output`: a curve a point; for a search, a dot a trial.

    Not by `optuna.visualization`, whose history leaves out pruned and failed trials, and whose curves have numbers in
    place of the points' names and an nll that is an "Intermediate Value".

    Raises `UserError` where nothing has been validated yet, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    from infer.attention.drawing import save

    validated = [point for point in points if point.nll]
    if not validated:
        raise UserError("no point has been validated yet; there is nothing to draw")
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    if search:
        _draw_trials(axes, points)
    else:
        _draw_curves(axes, validated)
    if search or len(validated) <= _MOST_IN_A_LEGEND:
        axes.legend(fontsize=8)
    axes.set_xlabel("trial" if search else "updates")
    axes.set_ylabel("validation nll, nats a token")
    axes.grid(alpha=0.3)
    save(figure, output, f"--plot={output}", dpi=150)


def _draw_trials(axes: Any, points: Sequence[PointStatus]) -> None:
    """Draws the lowest nll of each trial, by its number, and the lowest up to there."""
    lowest = {trial: min(point.nll.values()) for trial, point in enumerate(points) if point.nll}
    for state in sorted({points[trial].state for trial in lowest}):
        trials = [trial for trial in lowest if points[trial].state == state]
        axes.scatter(trials, [lowest[trial] for trial in trials], s=22, label=state)
    so_far = list(itertools.accumulate(lowest.values(), min))
    axes.step(list(lowest), so_far, where="post", linewidth=1, color="black", label="best so far")


def _draw_curves(axes: Any, points: Sequence[PointStatus]) -> None:
    """Draws the nll of each point over updates; the legend begins with the lowest last one."""
    for point in sorted(points, key=lambda point: point.nll[max(point.nll)]):
        steps = sorted(point.nll)
        axes.plot(steps, [point.nll[step] for step in steps], marker=".", linewidth=1.2, label=point.name)
