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

from base.errors import UserError
from base.files import output_file, write_text
from infer.runs import Run, as_one
from run.averaging import count_parameters, params_sha256
from run.distributed import is_main


def provenance(model_run: Run, data: str, split: str, others: Sequence[Run] = ()) -> dict[str, Any]:
    """Returns what every record says about the parameters, the data, the machine and the time.

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
    """Prints the record (as JSON with --json), saves it in the run with the lines, and writes the lines to --output.

    `options` are the flags. Only process 0 does so. If the run cannot be written to, a note says so: the result has
    been printed.

    Raises:
      UserError: --output cannot be written.
    """
    if not is_main():
        return
    text = json.dumps(record, indent=2, ensure_ascii=False) if options.json else table(record)
    print(text, flush=True)
    checkpoint = options.checkpoint or model_run.config.decode.checkpoint
    try:
        print(f"kept in {save(model_run, record, lines, checkpoint, kind)}", file=sys.stderr)
    except OSError as error:
        print(f"note: {model_run.workdir}/evaluations cannot be written ({error.strerror})", file=sys.stderr)
    if options.output is not None:
        try:
            write_lines(output_file("output", options.output), lines)
        except OSError as error:
            raise UserError(f"--output={options.output}: cannot be written ({error.strerror})") from error


def save(model_run: Run, record: dict[str, Any], lines: list[str], checkpoint: str, kind: str = "") -> Path:
    """Writes `evaluations/NAME.json` and the lines, if any, as `NAME.txt`; repeating an evaluation replaces both.

    NAME begins with `kind`, if any, and has the split, the step, the checkpoint and, where they apply, the beam, the
    length penalty and the row length. For an ensemble, the number of its members and a hash of them precede the split.
    """
    parts = [kind] if kind else []
    if "members" in record:
        members = record["members"]
        which = hashlib.sha256(" ".join(members).encode()).hexdigest()
        parts.append(f"ensemble{len(members)}-{which[:8]}")
    parts += [record["split"], f"step{record['step']}", checkpoint]
    parts += [f"{key}{record[key]:g}" for key in ("beam", "alpha", "row") if key in record]
    name = re.sub(r"[^\w.-]+", "_", "-".join(parts))
    folder = model_run.workdir / "evaluations"
    folder.mkdir(exist_ok=True)
    if lines:
        write_lines(folder / f"{name}.txt", lines)
    path = folder / f"{name}.json"
    text = json.dumps({**record, "checkpoint": checkpoint}, indent=2, ensure_ascii=False)
    write_text(path, f"{text}\n")
    return path


def write_lines(path: Path, lines: list[str]) -> None:
    """Writes a file with a newline after each line."""
    write_text(path, "".join(f"{line}\n" for line in lines))
