"""Reads what a run has recorded: its launches (`run.json`) and its metrics. Nothing here imports jax, which is slow."""

from pathlib import Path
from typing import Any

from vaswani.errors import UserError, format_value
from vaswani.read_json import Schema, check, read_json, read_json_lines

_MEASURES: dict[str, dict[str, type]] = {
    "train": {"seconds": float},
    "valid": {"loss": float, "nll": float, "perplexity": float},
}


def read_launches(workdir: Path) -> list[dict[str, Any]]:
    """Returns the launches that a run's `run.json` records, oldest first; [] if there is no such file.

    Raises:
      UserError: it is damaged.
    """
    path = workdir / "run.json"
    if not path.exists():
        return []
    corpus = {"sha256": dict}
    launch = {"step": int, "data": {"train": corpus, "valid": corpus}}
    launches = read_json(path, {"launches": [launch]})["launches"]
    for number, recorded in enumerate(launches):
        _check_present(path, f"launch {number}", recorded, {"command": [str], "device": dict})
        _check_present(path, f"launch {number}", recorded["data"]["train"], {"tokenizer_sha256": str})
    return launches


def _check_present(path: Path, where: str, recorded: dict[str, Any], schema: dict[str, Schema]) -> None:
    """Checks what an older launch, or one on images, need not have; raises as `vaswani.read_json.check`."""
    check(path, where, recorded, {key: schema[key] for key in schema if key in recorded})


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """Returns the records of a run's `metrics.jsonl` (see `train.metrics`), even during training; [] if absent.

    Raises:
      UserError: a line is damaged.
    """
    path = workdir / "metrics.jsonl"
    records = read_json_lines(path, {"step": int, "kind": str})
    for number, record in enumerate(records, start=1):
        where = f"line {number}"
        kind = record["kind"]
        if kind not in _MEASURES:
            raise UserError(f"{path}: damaged in {where}: kind is {format_value(kind)}; it must be train or valid")
        check(path, where, record, _MEASURES[kind])
        if "bleu" in record:
            check(path, where, record, {"bleu": float})
    return records
