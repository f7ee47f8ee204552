"""The record of an evaluation: what it says of the run, and the file it is saved in."""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from vaswani.errors import UserError
from vaswani.files import output_file, write_text, writing
from vaswani.infer.runs import Run, as_one
from vaswani.infer.scores.bleu import ORACLE
from vaswani.read_json import read_json
from vaswani.run.builtin import is_builtin
from vaswani.run.config import SPLITS
from vaswani.run.distributed import is_main
from vaswani.run.parameters import count_parameters, params_sha256

ADDED = ("contrasts",)  # what other commands add to a record: lab.contrast
_LONGEST_SPLIT = 50  # characters of a corpus's specification: a file's name has at most 255 bytes


def provenance(model_run: Run, data: str, split: str, others: Sequence[Run] = ()) -> dict[str, Any]:
    """Returns every record's entries about the parameters, the data, the machine and the time.

    With `others` it is of an ensemble: `members` are the hashes of each one's parameters.
    """
    runs = [model_run, *others]
    _, params = as_one(runs)
    members = {"members": [params_sha256(run.params) for run in runs]} if others else {}
    return {
        **members,
        "params": count_parameters(params),
        "params_sha256": params_sha256(params),
        "step": model_run.step,
        "checkpoints": list(model_run.checkpoints),
        "data": data,
        "split": split,
        "device": jax.devices()[0].device_kind,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def report(
    options: Any,
    model_run: Run,
    record: dict[str, Any],
    lines: list[str],
    table: Callable[[dict[str, Any]], str],
    kind: str = "",
) -> None:
    """Saves the record in the run with the lines, writes the lines to --output, and prints the record.

    `options` are the flags; with --json the record is printed as JSON. Only process 0 does so. If the run cannot be
    written to, a note says so. Files are written before anything is printed, for standard output may have been closed.

    Raises:
      UserError: --output cannot be written; the record is printed all the same.
    """
    if not is_main():
        return
    checkpoint = options.checkpoint or model_run.config.decode.checkpoint
    note = ""
    try:
        note = _kept(model_run, record, lines, checkpoint, kind)
        _write_output(options.output, lines)
    finally:
        text = json.dumps(record, indent=2, ensure_ascii=False) if options.json else table(record)
        print(text, flush=True)
        if note:
            print(note, file=sys.stderr)


def _kept(model_run: Run, record: dict[str, Any], lines: list[str], checkpoint: str, kind: str) -> str:
    """Saves the record and the lines in the run; returns a note that says where, or why they cannot be."""
    if is_builtin(model_run.workdir):
        return "note: a bundled model is read-only, so the record is not saved"
    try:
        return f"kept in {save(model_run, record, lines, checkpoint, kind)}"
    except OSError as error:
        return f"note: {model_run.workdir}/evaluations cannot be written ({error.strerror})"


def _write_output(output: str | None, lines: list[str]) -> None:
    """Writes the lines to the file of --output, if it is given."""
    if output is not None:
        with writing(f"--output={output}"):
            write_lines(output_file("output", output), lines)


def save(model_run: Run, record: dict[str, Any], lines: list[str], checkpoint: str, kind: str = "") -> Path:
    """Writes `evaluations/NAME.json` and the lines, if any, as `NAME.txt`; repeating an evaluation replaces both.

    NAME begins with `kind`, if any, and has the split, the step, the checkpoint and, where they apply, the options of
    the search and the sequence length. For an ensemble, the number of its members and a hash of them precede the split.
    A hash of the data's whole specification follows it where the run's config does not name that data, or where NAME
    without one is taken by an evaluation on other data. What `ADDED` names is kept, if it is of the same parameters.
    """
    folder = model_run.workdir / "evaluations"
    folder.mkdir(exist_ok=True)
    split = record["split"]
    is_named = split in SPLITS and record["data"] == model_run.config.data[split]
    name = _name(record, checkpoint, kind, has_hash=not is_named)
    earlier = _earlier(folder / f"{name}.json")
    if earlier and earlier["data"] != record["data"]:
        name = _name(record, checkpoint, kind, has_hash=True)
        earlier = _earlier(folder / f"{name}.json")
    added = {}
    if earlier and earlier["params_sha256"] == record["params_sha256"]:
        added = {key: earlier[key] for key in ADDED if key in earlier}
    if lines:
        write_lines(folder / f"{name}.txt", lines)
    path = folder / f"{name}.json"
    text = json.dumps({**record, **added, "checkpoint": checkpoint}, indent=2, ensure_ascii=False)
    write_text(path, f"{text}\n")
    return path


def _name(record: dict[str, Any], checkpoint: str, kind: str, *, has_hash: bool) -> str:
    """Returns NAME of `save`; with `has_hash` there is one of the data's specification."""
    parts = [kind] if kind else []
    if "members" in record:
        members = record["members"]
        parts.append(f"ensemble{len(members)}-{short_hash(' '.join(members))}")
    parts.append(record["split"][:_LONGEST_SPLIT])
    if has_hash:
        parts.append(short_hash(record["data"]))
    parts += [f"step{record['step']}", checkpoint]
    parts += [f"{key}{record[key]:g}" for key in ("beam", "alpha", "extra_length", "row") if key in record]
    if record.get("length_penalty", "gnmt") != "gnmt":
        parts.append(record["length_penalty"])
    if record.get("stopping", "exact") != "exact":
        parts.append(record["stopping"])
    if ORACLE in record:
        parts.append("oracle_length")
    return re.sub(r"[^\w.-]+", "_", "-".join(parts))


def _earlier(path: Path) -> dict[str, Any]:
    """Returns the record that a file has; {} if there is none, or it is damaged."""
    try:
        earlier: dict[str, Any] = read_json(path, {"data": str, "params_sha256": str})
    except UserError:
        return {}
    return earlier


def short_hash(text: str) -> str:
    """Returns eight digits of the SHA-256; what is not Unicode in a file's name is escaped."""
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]


def write_lines(path: Path, lines: list[str]) -> None:
    """Writes a file with a newline after each line."""
    write_text(path, "".join(f"{line}\n" for line in lines))
