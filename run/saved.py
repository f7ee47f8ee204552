"""Saved checkpoints: reads them, and checks that they are unchanged. `run.checkpoint` describes the files."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax.traverse_util import unflatten_dict

from vaswani.checked_json import check, read_json
from vaswani.errors import UserError
from vaswani.files import remove_tree, sha256, walk, write_text
from vaswani.notes import note
from vaswani.run import checksums
from vaswani.run.parameters import named_shapes
from vaswani.run.quiet import quiet, reason

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
        timing = read_json(folder / _TIME, {"commit_timestamp_nsecs": int}, widest=_LAST)
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
    metadata = read_json(folder / _TIME, {"custom_metadata": dict}, widest=_LAST)
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


def fault(folder: Path) -> str | None:
    """Reads a whole checkpoint and returns what has changed since it was saved; None if nothing has.

    One without sums gets them, if all of it can be read: its process was killed once it was complete.
    """
    has_sums = (folder / checksums.NAME).exists()
    how = checksums.fault(folder) if has_sums else _unreadable(folder)
    if how:
        return how
    if not has_sums:
        write_sums(folder)
    try:
        load(folder, "", "step")
    except DamagedError as error:
        return error.how
    return None


def _unreadable(folder: Path, *names: str) -> str | None:
    """Returns why these parts of a checkpoint without sums, or all of it, cannot be read; None if they can."""
    try:
        load(folder, "", *(names or _tree(folder)))
    except Exception as error:
        return f"{checksums.NAME} is missing, and so is more: {reason(error)}"
    return None


def fault_of_state(folder: Path, name: str) -> str | None:
    """Returns which file of a checkpoint's state has changed, or why its part `name` cannot be read without sums."""
    if not (folder / checksums.NAME).exists() and _is_complete(folder):
        return _unreadable(folder, name)
    return checksums.fault(folder, "state/")


def steps(folder: Path) -> list[int]:
    """Returns the steps of the complete checkpoints, newest first, damaged or not."""
    if not folder.is_dir():
        return []
    return sorted((int(path.name) for path in _numbered(folder) if _is_complete(path)), reverse=True)


def _numbered(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if re.fullmatch("0|[1-9][0-9]*", path.name)]


def _is_complete(checkpoint: Path) -> bool:
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
            if not _is_complete(path):
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


def rename_damaged(folder: Path) -> None:
    """Renames damaged checkpoints; verifies every byte, from the newest down to the newest intact one.

    Of older ones only time and metrics are read, since the manager fails if it cannot read those.

    Raises:
      UserError: there are checkpoints but all are damaged; nothing is renamed.
    """
    # From the newest down; once one is intact, training can resume from it, and older ones are not read whole.
    damaged: dict[int, str] = {}
    intact: int | None = None
    for step in steps(folder):
        checkpoint = folder / str(step)
        try:
            about(checkpoint)
            how = None if intact else fault(checkpoint)
        except ValueError as error:
            how = str(error)
        if how:
            damaged[step] = how
        elif intact is None:
            intact = step
    if damaged and intact is None:
        listed = ", ".join(f"{step} ({how})" for step, how in damaged.items())
        raise UserError(
            f"{folder}: every checkpoint is damaged: {listed}; restore a copy of one, or remove that folder to train "
            "from the beginning"
        )
    # Out of orbax's sight, but nothing is deleted.
    for step, how in damaged.items():
        checkpoint = folder / str(step)
        kept = folder / f"{step}.damaged"
        while kept.exists():
            kept = kept.with_name(f"{kept.name}.damaged")
        checkpoint.rename(kept)
        what = f"{checkpoint} is damaged ({how}): it is kept as {kept.name}"
        print(f"warning: {what}, and training resumes from checkpoint {intact}", file=sys.stderr)


def check_shapes(folder: Path, params: Any) -> None:
    """Compares a checkpoint's parameters with a model's before any array is read; orbax's own message is a page long.

    Raises:
      UserError: a name or a shape differs, or as `reading`.
    """
    with reading(folder):
        # By path, for a checkpoint of another model, which is to be refused by name, need not be of dicts.
        saved_shapes = named_shapes(_tree(folder)["params"])
    # The first name that one of them lacks, or has in another shape, tells which model it is.
    model_shapes = named_shapes(params)
    for name in sorted(saved_shapes.keys() | model_shapes.keys()):
        in_checkpoint = saved_shapes.get(name, "absent")
        in_model = model_shapes.get(name, "absent")
        if in_checkpoint != in_model:
            raise UserError(
                f"{folder}: this checkpoint is of another model: {name} is {in_checkpoint} in it and "
                f"{in_model} in the config; use that model's config or another --workdir"
            )


def load(folder: Path, cure: str, *names: str) -> dict:
    """Returns the named parts of a saved state as numpy arrays.

    Raises:
      DamagedError: the state's step is not that of the folder's name: folders may have been swapped, renamed or linked.
        The message ends with `cure`.
      UserError: as `reading`.
    """
    with reading(folder):
        # The optimiser's state has sequences, which the names alone do not tell from dicts.
        tree = _tree(folder) if "opt_state" in names else _names(folder)
        wanted = {name: tree[name] for name in {"step", *names}}
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
        args = ocp.args.PyTreeRestore(item=wanted, restore_args=as_numpy, partial_restore=True)
        state = ocp.PyTreeCheckpointHandler().restore(epath.Path(str(folder / "state")), args=args)
        step = int(state["step"])
    if step != int(folder.name):
        raise DamagedError(folder, f"it holds the state of step {step}", cure)
    return state


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
    metadata = read_json(folder / _TIME, dict, widest=_LAST)
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


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turns any error of orbax or its storage into one line about `folder`, whose files have been verified."""
    try:
        with quiet():
            yield
    except Exception as error:
        raise UserError(
            f"{folder}: this checkpoint is intact but cannot be restored here ({reason(error)}); use the code, the "
            "config and the package versions that it was saved with"
        ) from error


def _names(folder: Path) -> dict:
    """Returns the tree of a saved state's names, with True at its leaves; no array's own metadata is read for it."""
    metadata = read_json(folder / "state" / "_METADATA", {"tree_metadata": dict})
    names = {}
    for entry in metadata["tree_metadata"].values():
        path = tuple(str(key["key"]) for key in entry["key_metadata"])
        names[path] = True
    return unflatten_dict(names)


def _tree(folder: Path) -> dict:
    """Returns the names, shapes and dtypes of a saved state's arrays."""
    return ocp.PyTreeCheckpointHandler().metadata(epath.Path(str(folder / "state"))).tree
