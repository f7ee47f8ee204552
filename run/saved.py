"""Saved checkpoints as their files tell: which there are, when and why they were saved, and whether they have changed.

`run.checkpoint` describes the files, and reads the arrays. Nothing here loads orbax, which takes longer than all else
of a short command. `SHA256SUMS` is in the format of `sha256sum --check SHA256SUMS`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from vaswani.errors import UserError, note
from vaswani.files import read_bytes, remove_tree, sha256, walk, write_text
from vaswani.read_json import check, read_json

CHECKSUMS = "SHA256SUMS"
_TIME = "_CHECKPOINT_METADATA"  # orbax writes it last; `custom_metadata` in it has why the checkpoint was saved
_METRICS = "metrics/metrics"
_MARKER = "commit_success.txt"  # orbax writes it once everything else exists
# What a clock may say, right or wrong, in nanoseconds since 1970: the years that Python's dates have.
_FIRST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 10**9
_LAST = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 10**9


class Checkpoint(NamedTuple):
    """A saved step.

    Attributes:
      step: its number.
      time: when it was saved, in seconds since 1970.
      metrics: of its validation; {} if it had none.
      reason: why it was saved, one of the words of `run.checkpoint.Checkpoints.save`.
    """

    step: int
    time: float
    metrics: dict[str, float]
    reason: str = "schedule"


class DamagedError(UserError):
    """The checkpoint of `step` has changed since it was saved; `how` names the file, or the other step it holds."""

    def __init__(self, folder: Path, how: str, cure: str) -> None:
        super().__init__(f"{folder}: this checkpoint is damaged ({how}); {cure}")
        self.step = int(folder.name)
        self.how = how


def about(folder: Path) -> Checkpoint:
    """Returns the step, time, metrics and reason in a checkpoint's files.

    One without a reason was saved by an earlier version, and is kept as if the schedule had asked for it.

    Raises:
      ValueError: the file of time and reason, or of the metrics, is damaged or missing; the message says which.
    """
    with _blaming(folder, _TIME):
        metadata = read_json(folder / _TIME, {"commit_timestamp_nsecs": int, "custom_metadata": dict})
        nanoseconds = metadata["commit_timestamp_nsecs"]
        if not _FIRST <= nanoseconds <= _LAST:
            raise UserError("no time")
        reason = metadata["custom_metadata"].get("reason", "schedule")
    with _blaming(folder, _METRICS):
        metrics = read_json(folder / _METRICS, dict)
        if _has_changed(folder, _METRICS):
            raise UserError("changed")
        check(folder / _METRICS, "", metrics, dict.fromkeys(metrics, float))
    return Checkpoint(int(folder.name), nanoseconds / 1e9, metrics, reason)


@contextmanager
def _blaming(folder: Path, name: str) -> Iterator[None]:
    """Turns a `UserError` about this file of a checkpoint into a `ValueError`: it is damaged, or missing."""
    try:
        yield
    except UserError as error:
        how = "damaged" if (folder / name).exists() else "missing"
        raise ValueError(f"{name} is {how}") from error


def steps(folder: Path) -> list[int]:
    """Returns the steps of the complete checkpoints, newest first, damaged or not."""
    if not folder.is_dir():
        return []
    return sorted((int(path.name) for path in _step_folders(folder) if is_complete(path)), reverse=True)


def _step_folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if re.fullmatch("0|[1-9][0-9]*", path.name)]


def is_complete(checkpoint: Path) -> bool:
    """Returns whether all of a checkpoint was written; an earlier orbax wrote no marker, but then it has checksums."""
    return (checkpoint / _MARKER).exists() or (checkpoint / CHECKSUMS).exists()


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


def remove(checkpoint: Path) -> None:
    """Removes a checkpoint, which is none from the first moment on: a process may be killed meanwhile."""
    for name in (CHECKSUMS, _MARKER):
        (checkpoint / name).unlink(missing_ok=True)
    remove_tree(checkpoint)


def remove_partial(folder: Path) -> None:
    """Removes what a process has left of a checkpoint that it had not written, or removed, to the end."""
    if folder.is_dir():
        for path in _step_folders(folder):
            if not is_complete(path):
                remove_tree(path)


def replace(folder: Path, metrics: dict[str, float], reason: str) -> None:
    """Rewrites the metrics of a checkpoint and why it was saved.

    The metrics come last: a process that is killed before has not completed the validation, and makes it again.
    """
    metadata = read_json(folder / _TIME, dict)
    given = {"reason": reason}
    if metadata["custom_metadata"] != given:
        _rewrite(folder, _TIME, {**metadata, "custom_metadata": given})
    _rewrite(folder, _METRICS, metrics)


def _rewrite(folder: Path, name: str, value: dict[str, Any]) -> None:
    """Rewrites a JSON file of a checkpoint; it never disagrees with its checksum, even for a moment."""
    # The old checksum goes first, then comes the file, then its new checksum: a file without one is allowed.
    known = read_checksums(folder)
    others = {other: digest for other, digest in known.items() if other != name}
    write_checksums(folder, others)
    write_text(folder / name, json.dumps(value))
    write_checksums(folder, known, [name])


def add_checksums(folder: Path) -> None:
    """Writes the SHA-256 of all items' files, and of the file with the time."""
    names = [
        f"{path.relative_to(folder).as_posix()}/{name}"
        for path, _, files in walk(folder)
        for name in files
        if path != folder
    ]
    write_checksums(folder, {}, [*sorted(names), _TIME])


def write_checksums(folder: Path, known: dict[str, str], names: Iterable[str] = ()) -> None:
    """Writes `SHA256SUMS` atomically: the `known` checksums, and the current ones of the files `names`."""
    checksums = dict(known)
    for name in names:
        checksums[name] = sha256(folder / name)
    lines = [f"{digest}  {name}\n" for name, digest in checksums.items()]
    write_text(folder / CHECKSUMS, "".join(lines))


def read_checksums(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file name.

    Raises:
      OSError: `SHA256SUMS` cannot be read, or is no regular file.
      ValueError: it is damaged, or names a file outside the folder: a run may come from an untrusted source.
    """
    lines = read_bytes(folder / CHECKSUMS).decode(errors="replace").splitlines()
    if not lines:
        raise ValueError(f"{CHECKSUMS} is damaged")
    checksums = {}
    for line in lines:
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if not match:
            raise ValueError(f"{CHECKSUMS} is damaged")
        digest, name = match.groups()
        checksums[name] = digest
    for path in map(PurePosixPath, checksums):
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{CHECKSUMS} names a file outside this folder")
    return checksums


def fault(folder: Path, below: str = "") -> str | None:
    """Returns the name and the change of the first changed file in `folder` below `below`; None if none has changed."""
    try:
        checksums = read_checksums(folder)
    except FileNotFoundError:
        return f"{CHECKSUMS} is missing"
    except (OSError, ValueError) as error:
        return str(error)
    names = [name for name in checksums if name.startswith(below)]
    if not names:
        return f"{CHECKSUMS} lists no file of {below or 'this folder'}"
    with ThreadPoolExecutor() as threads:  # hashing and reading release the GIL
        faults = threads.map(lambda name: _fault(folder, name, checksums[name]), names)
        return next(filter(None, faults), None)


def _fault(folder: Path, name: str, recorded: str) -> str | None:
    path = folder / name
    try:
        if path.exists() and not path.is_file():  # a device or a pipe may never end
            return f"{name} is not a file"
        if sha256(path) == recorded:
            return None
        return f"{name} has changed" if path.stat().st_size else f"{name} is empty"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror or error}"


def _has_changed(folder: Path, name: str) -> bool:
    """Returns whether a file differs from its recorded checksum; False where it has none, or those are damaged."""
    with suppress(OSError, ValueError):
        checksums = read_checksums(folder)
        return name in checksums and sha256(folder / name) != checksums[name]
    return False
