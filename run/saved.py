"""Saved checkpoints: which there are, their time, metrics and sums. `run.checkpoint` describes the files.

Parameters are read by `run.restored`; nothing here loads orbax, which takes longer than all else of a short command.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vaswani.read_json import check, read_json
from vaswani.errors import UserError
from vaswani.files import remove_tree, sha256, walk, write_text
from vaswani.notes import note
from vaswani.run import checksums

_TIME = "_CHECKPOINT_METADATA"  # orbax writes it last; `custom_metadata` in it has why the checkpoint was saved
_METRICS = "metrics/metrics"
_MARKER = "commit_success.txt"  # orbax writes it once all else is there
# What a clock may say, right or wrong, in nanoseconds since 1970: the years that Python's dates have.
_FIRST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 10**9
_LAST = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 10**9


class DamagedError(UserError):
    """The checkpoint of `step` has changed since it was saved; `how` names the file, or the other step it holds."""

    def __init__(self, folder: Path, how: str, cure: str) -> None:
        super().__init__(f"{folder}: this checkpoint is damaged ({how}); {cure}")
        self.step = int(folder.name)
        self.how = how


def about(folder: Path) -> tuple[float, dict[str, float]]:
    """Returns when a checkpoint was saved, in seconds since 1970, and its metrics.

    Raises:
      ValueError: one of the two files is damaged or missing; the message says which.
    """
    with _blaming(folder, _TIME):
        timing = read_json(folder / _TIME, {"commit_timestamp_nsecs": int})
        nanoseconds = timing["commit_timestamp_nsecs"]
        if not _FIRST <= nanoseconds <= _LAST:
            raise UserError("no time")
    with _blaming(folder, _METRICS):
        metrics = read_json(folder / _METRICS, dict)
        if _has_changed(folder, _METRICS):
            raise UserError("changed")
        check(folder / _METRICS, "", metrics, dict.fromkeys(metrics, float))
    return nanoseconds / 1e9, metrics


def read_reason(folder: Path) -> str:
    """Returns why a checkpoint was saved, one of the words of `Checkpoints.save`.

    One without a word was saved by an earlier version, and counts as one of the schedule: it is kept like those.
    """
    metadata = read_json(folder / _TIME, {"custom_metadata": dict})
    return metadata["custom_metadata"].get("reason", "schedule")


@contextmanager
def _blaming(folder: Path, name: str) -> Iterator[None]:
    """Turns a `UserError` about this file of a checkpoint into a `ValueError` that says whether it is there at all."""
    try:
        yield
    except UserError as error:
        how = "damaged" if (folder / name).exists() else "missing"
        raise ValueError(f"{name} is {how}") from error


def _has_changed(folder: Path, name: str) -> bool:
    """Returns whether a file has another sum than was recorded; False where none was, or the sums are damaged."""
    with suppress(OSError, ValueError):
        sums = checksums.read_sums(folder)
        return name in sums and sha256(folder / name) != sums[name]
    return False


def steps(folder: Path) -> list[int]:
    """Returns the steps of the complete checkpoints, newest first, damaged or not."""
    if not folder.is_dir():
        return []
    return sorted((int(path.name) for path in _numbered(folder) if is_complete(path)), reverse=True)


def _numbered(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if re.fullmatch("0|[1-9][0-9]*", path.name)]


def is_complete(checkpoint: Path) -> bool:
    """Returns whether all of a checkpoint was written; one without a marker, of an earlier orbax, has sums at least."""
    return (checkpoint / _MARKER).exists() or (checkpoint / checksums.NAME).exists()


def remove(checkpoint: Path) -> None:
    """Removes a checkpoint, which is none from the first moment on: a process may be killed meanwhile."""
    for name in (checksums.NAME, _MARKER):
        (checkpoint / name).unlink(missing_ok=True)
    remove_tree(checkpoint)


def remove_partial(folder: Path) -> None:
    """Removes what a process has left of a checkpoint that it had not written, or removed, to the end."""
    if folder.is_dir():
        for path in _numbered(folder):
            if not is_complete(path):
                remove_tree(path)


def unreadable(folder: Path) -> set[int]:
    """Returns the steps whose time and metrics cannot be read, with a note on stderr about each."""
    damaged = set()
    for step in steps(folder):
        checkpoint = folder / str(step)
        try:
            about(checkpoint)
        except ValueError as error:
            if checkpoint.is_dir():  # else a training process has removed it meanwhile
                note(f"{checkpoint} is damaged ({error}) and ignored")
            damaged.add(step)
    return damaged


def write_sums(folder: Path) -> None:
    """Writes the SHA-256 sums of all items' files, and of the file with the time."""
    names = [
        f"{path.relative_to(folder).as_posix()}/{name}"
        for path, _, files in walk(folder)
        for name in files
        if path != folder
    ]
    checksums.write_sums(folder, {}, [*sorted(names), _TIME])


def replace_metrics(folder: Path, metrics: dict[str, float]) -> None:
    """Rewrites the metrics of a checkpoint."""
    _replace(folder, _METRICS, metrics)


def replace_reason(folder: Path, reason: str) -> None:
    """Rewrites why a checkpoint was saved."""
    metadata = read_json(folder / _TIME, dict)
    metadata["custom_metadata"] = {"reason": reason}
    _replace(folder, _TIME, metadata)


def _replace(folder: Path, name: str, value: dict[str, Any]) -> None:
    """Rewrites a JSON file of a checkpoint; it never disagrees with its sum, even for a moment."""
    # For a moment the file has no sum, which is allowed: first the sum goes, then the file, then its new sum comes.
    sums = checksums.read_sums(folder)
    others = {other: digest for other, digest in sums.items() if other != name}
    checksums.write_sums(folder, others, [])
    write_text(folder / name, json.dumps(value))
    checksums.write_sums(folder, sums, [name])
