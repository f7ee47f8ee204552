"""A sweep at a glance: its points as a table for people, spreadsheets or programs, the best first."""

from collections.abc import Sequence
from typing import Any

from vaswani.keys import short_names
from vaswani.train import table
from vaswani.train.sweep.point import PointStatus
from vaswani.train.sweep.ranking import best_first, best_of, differing_keys

MEASURES = (
    "nll",
    "nll_best",
    "loss",
    "loss_best",
    "perplexity",
    "perplexity_best",
    "bleu",
    "bleu_best",
    "accuracy",
    "accuracy_best",
)
_SHOWN = tuple(name for name in MEASURES if not name.startswith("loss"))  # which depends on eps_ls
_STAR = (
    "*: the lowest validation nll of the points that are done, with several seeds of those whose mean is lowest; "
    "--best prints its command"
)
_FIXED = ("point", "is_best", "state", "step", "steps", *MEASURES, "minutes", "reason")


def as_records(points: Sequence[PointStatus], config: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a flat dict for each point, best first; `config`, dotted key to value, is what they depart from.

    "is_best" marks `best_of`. Keys are "point"; "is_best"; each config key whose value is not the same
    in all, None where none is chosen yet; "state", "step", "steps"; the `MEASURES` that `train.sweep.point.summary`
    explains, None where there is none; "minutes" of training; "reason" or "".
    """
    differing = differing_keys(points, config)
    best = best_of(points, config)
    records = []
    for point in best_first(points, config):
        whole = config | point.overrides
        record: dict[str, Any] = {"point": point.name}
        record["is_best"] = best is not None and point.name == best.name
        for key in differing:
            record[key] = whole.get(key) if point.chosen else None
        record["state"] = point.state
        record["step"] = point.summary.get("step", 0)
        record["steps"] = whole["steps"]
        for name in (*MEASURES, "minutes"):
            record[name] = point.summary.get(name)
        record["reason"] = point.reason
        records.append(record)
    return records


def as_text(records: Sequence[dict[str, Any]], others: Sequence[str] = ()) -> str:
    """Returns the table for people; empty columns are left out, reasons stand below, and why none is best.

    `others` are the `other_measures` of the points.
    """
    states = [record["state"] for record in records]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    if not counts:
        return "no points yet"
    keys = [key for key in records[0] if key not in _FIXED]
    measures = [_heading(name) for name in _SHOWN]
    head = ["", *short_names(keys), "state", "step", *measures, "minutes", "point"]
    lines = [head]
    for record in records:
        lines.append(_cells(record, keys))
    columns = zip(*lines, strict=True)
    filled = [column for column in columns if any(column[1:])]
    head_shown, *rows = zip(*filled, strict=True)
    notes = [f"{record['point']}: {record['reason']}" for record in records if record["reason"]]
    if records[0]["is_best"]:
        notes.insert(0, _STAR)
    if others:
        notes.insert(0, f"nll is of other texts or tokens ({', '.join(others)}): it does not say which is best")
    return table.as_text(table.Table("", ", ".join(counts), head_shown, rows, notes))


def _heading(measure: str) -> str:
    name = measure.removesuffix("_best").replace("bleu", "BLEU")
    return f"best {name}" if measure.endswith("_best") else name


def _cells(record: dict[str, Any], keys: Sequence[str]) -> list[str]:
    """Returns the row of a point, whose own keys are `keys`."""
    mark = "*" if record["is_best"] else ""
    values = ["" if record[key] is None else table.setting(record[key]) for key in keys]
    step = f"{record['step']:,}/{record['steps']:,}" if record["step"] else ""
    measures = []
    for name in _SHOWN:
        digits = 4 if name.startswith(("nll", "accuracy")) else 2
        measures.append(table.number(record[name], digits))
    minutes = table.number(record["minutes"], 1)
    return [mark, *values, record["state"], step, *measures, minutes, record["point"]]


def as_csv(records: Sequence[dict[str, Any]]) -> str:
    """Returns the same as comma-separated values, not rounded, with whole keys in the first line."""
    head = tuple(records[0]) if records else _FIXED
    rows = [tuple(map(_all_digits, record.values())) for record in records]
    return table.as_csv(table.Table("", "", head, rows, []))


def _all_digits(value: Any) -> str:
    return "" if value is None else str(value)
