"""The record of a row: its parts, each saved as soon as it ends."""

import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.checked_json import read_json
from vaswani.errors import UserError
from vaswani.files import write_json

# What each row needs on one GPU, estimated, with compilation; what convinces most comes first.
MINUTES = {
    "step": 22,
    "trainer": 4,
    "multi30k": 8,
    "numerics": 7,
    "decoding": 6,
    "corpus": 8,
    "tests": 3,
    "table3": 45,
}
ON_REQUEST = ("table3",)  # rows that --only must name
ARCHIVE = "accelerator.tar.gz"
_LANGUAGES = ("en", "de")
_NEWS = [f"wmt/en-de/{part}" for part in ("news_mini_train.en-de", "newstest2013", "newstest2014")]
_TATOEBA = [f"tatoeba/split.en-de.{part}" for part in ("train", "valid", "test")]
_MULTI30K = [f"multi30k/{part}" for part in ("train", "val", "test_2016_flickr")]
CORPORA = {  # the files that a row needs in --corpora
    row: tuple(f"{name}.{language}.gz" for name in names for language in _LANGUAGES)
    for row, names in {"corpus": _NEWS + _TATOEBA, "multi30k": _MULTI30K}.items()
}
SCHEMA = {"parts": dict, "finished": bool}
LOG = 4_000  # characters of a log that are kept

Part = Callable[[], dict[str, Any]]


class OutOfTime(Exception):
    """A part was not begun, or not finished, in the row's time: the next call tries it again."""


class Options(NamedTuple):
    """What a row is told: `seconds` are all it has, `corpora` is None for the built-in grammar."""

    tiny: bool
    runs: Path
    corpora: Path | None
    seconds: float


def measure(parts: dict[str, Part], path: Path, seconds: float) -> None:
    """Measures the parts that the record lacks, in order, until the seconds are over. A part that fails says why.

    Raises:
      UserError: the record's other parts were measured on another kind of machine, or with other code.
    """
    from lab.benchmarks.accelerator.device import MISSING, UNKNOWN, machine, state  # only now: they import jax

    began = time.monotonic()
    record = read_record(path)
    now = machine()
    measured_with = record.get("machine", {})
    if record["parts"]:
        measured_with = {"commit": UNKNOWN} | measured_with
    for name, earlier in measured_with.items():
        if name in now and earlier != now[name] and MISSING not in (earlier, now[name]):
            raise UserError(
                f"{path}: measured with {name} {earlier}, and here it is {now[name]}; give another --output"
            )
    record |= {"machine": now, "before": state()}
    record.pop("failed", None)
    for name, part in parts.items():
        if name in record["parts"]:
            continue
        if time.monotonic() - began > seconds:
            break
        print(f"{path.stem}: {name}", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            found = part()
        except OutOfTime:
            break
        except Exception as error:  # whatever a compiler, a kernel or another engine may raise
            lines = str(error).strip().splitlines()
            found = {"failed": f"{type(error).__name__}: {lines[0][:300] if lines else ''}"}
            if not isinstance(error, UserError):
                found["log"] = traceback.format_exc()[-LOG:]
        record["parts"][name] = found | {"seconds": round(time.monotonic() - started, 1)}
        write_json(path, record)
    record["finished"] = parts.keys() <= record["parts"].keys()
    record["after"] = state()
    write_json(path, record)


def read_record(path: Path) -> dict[str, Any]:
    """Returns the record of a row; one without parts if there is none yet.

    Raises:
      UserError: it is damaged.
    """
    return read_json(path, SCHEMA) if path.exists() else {"parts": {}, "finished": False}


def finished(path: Path) -> bool:
    """Returns whether every part of the row has been tried."""
    return read_record(path)["finished"]


def save_failure(path: Path, reason: str, log: str) -> None:
    """Adds to the record why its process ended."""
    write_json(path, read_record(path) | {"failed": reason, "log": log[-LOG:]})


def save_archive(folder: Path) -> None:
    """Packs the records and the table into one file, which is all that has to be copied from a borrowed machine."""
    part = folder / f"{ARCHIVE}.part"
    with tarfile.open(part, "w:gz") as archive:
        for path in sorted((*folder.glob("*.json"), *folder.glob("table.md"))):
            archive.add(path, path.name)
    part.replace(folder / ARCHIVE)
