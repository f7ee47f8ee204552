"""Restores the parts of a saved checkpoint by orbax, and renames those that are damaged."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax.traverse_util import unflatten_dict

from vaswani.read_json import read_json
from vaswani.errors import UserError
from vaswani.run import checksums
from vaswani.run.parameters import named_shapes
from vaswani.run.quiet import quiet, reason
from vaswani.run.saved import DamagedError, about, is_complete, steps, write_sums


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
    if not (folder / checksums.NAME).exists() and is_complete(folder):
        return _unreadable(folder, name)
    return checksums.fault(folder, "state/")


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
