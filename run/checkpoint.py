"""Checkpoints of a run: a thin layer over orbax's CheckpointManager, and the only file that knows orbax.

`checkpoints/STEP/` holds `state` (step, parameters, optimiser), `data` (position of the batches, JSON), `config`
(JSON), `metrics` (empty where the step was not validated) and `SHA256SUMS`, by which damage to any of them is found:
orbax itself reads arrays with changed bytes without complaint. Nothing is pickled. Other names beside the steps are no
checkpoints: `*.orbax-checkpoint-tmp` is being written, `*.damaged` was put aside, `.deleted` is being deleted.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from ml_collections import ConfigDict
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, EveryNSteps, LatestN

from base.errors import UserError
from run.checksums import NAME as SUMS
from run.checksums import fault, read_sums, replace_sums, sha256, write_sums
from run.distributed import is_main, main_first
from run.quiet import Quiet, reason

_TEMPORARY, _DAMAGED, _DELETED = ".orbax-checkpoint-tmp", ".damaged", ".deleted"


class DamagedError(UserError):
    """The checkpoint of `step` has changed since it was saved; `how` says which file."""

    def __init__(self, folder: Path, how: str, cure: str) -> None:
        super().__init__(f"{folder}: this checkpoint is damaged ({how}); {cure}")
        self.step, self.how = int(folder.name), how


def quality(metrics: dict) -> tuple[bool, float]:
    """What "best" means, larger is better: validation BLEU where it was measured, else the lower validation loss."""
    return (True, metrics["bleu"]) if "bleu" in metrics else (False, -metrics.get("loss", float("inf")))


class Checkpoints:
    """The checkpoints in `folder`; without a `cfg` (`config.checkpoint`) they are only read, and nothing is created.

    Saving is asynchronous: `save` returns once the arrays are copied, and a checkpoint appears under its name only
    when it is complete, so a process killed at any moment leaves the earlier ones usable.

    With a `cfg` the newest checkpoint is read through first, and `latest` is the newest that is whole: damaged ones are
    renamed to `STEP.damaged`, with a line on stderr. Without, those whose metrics cannot be read are left out.
    """

    def __init__(self, folder: str | Path, cfg: ConfigDict | None = None) -> None:
        """Opens the folder.

        Raises:
          UserError: there is nothing to read: no folder, or not one checkpoint that is whole where there are some.
        """
        self.folder = Path(folder).absolute()
        self._left_out: set[int] = set()
        self._read_through: int | None = None  # a step
        self._saving: int | None = None  # the last step that was begun
        if cfg is None:
            if not self.folder.is_dir():
                raise UserError(f"{self.folder}: no such folder of checkpoints; has this run been trained?")
            self._left_out = _unreadable(self.folder)
            options = ocp.CheckpointManagerOptions(create=False, best_fn=quality, lightweight_initialize=True)
        else:
            # Policies, not max_to_keep with best_fn: those delete the latest checkpoint once it is not among the best.
            policies = [LatestN(n=cfg.keep_last)]
            if cfg.keep_best:
                policies.append(BestN(get_metric_fn=quality, n=cfg.keep_best))
            if cfg.keep_every:
                policies.append(EveryNSteps(interval_steps=cfg.keep_every))
            options = ocp.CheckpointManagerOptions(
                preservation_policy=AnyPreservationPolicy(policies),
                best_fn=quality,  # metrics are only written where this is set
                cleanup_tmp_directories=True,
                todelete_subdir=_DELETED,  # renamed first: a process killed while it deletes leaves no half checkpoint
                async_options=ocp.AsyncOptions(post_finalization_callback=self._write_sums),
            )
            with main_first("checkpoints"):
                if is_main():
                    _put_damaged_aside(self.folder)
            self._read_through = max(_steps(self.folder), default=None)
        self._manager = ocp.CheckpointManager(self.folder, options=options, item_names=("state", "data", "config"))
        self._quiet = Quiet() if cfg else None  # saving threads come and go until `close`
        self._opened = os.open(self.folder, os.O_RDONLY) if cfg else None  # held: its number is given to no other

    def save(self, step: int, state: Any, data_state: dict, metrics: dict | None, config: dict) -> None:
        """Starts saving; `state` may be donated as soon as this returns. A step that is already saved stays.

        Raises:
          UserError: this or the save before could not be written; the earlier checkpoints are as they were.
        """
        self.wait()
        if step in self._manager.all_steps():
            return
        if not self._is_there():  # orbax would make another, without what else belongs to the run
            raise self._disappeared()
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            data=ocp.args.JsonSave(data_state),
            config=ocp.args.JsonSave(config),
        )
        self._saving = step
        with self._writing():
            self._manager.save(step, args=items, metrics=metrics or {}, force=True)

    def add_metrics(self, step: int, metrics: dict) -> None:
        """Gives checkpoint `step`, which was saved without, the metrics of its validation."""
        self.wait()
        with main_first("metrics"):
            if is_main():
                _replace_metrics(self.folder / str(step), metrics)
        self._manager.reload()

    def restore(self, abstract_state: Any, step: int | None = None) -> tuple[Any, dict]:
        """Returns (state, data position) of `step`, or of the latest, shaped and placed as `abstract_state` says.

        Raises:
          UserError: the checkpoint is damaged, is another model's, or is not there.
        """
        step = self._known(step)
        folder = self.folder / str(step)
        if step != self._read_through and (how := fault(folder)):
            raise DamagedError(folder, how, self._cure(step))
        with _reading(folder, self._cure(step)):
            params = _tree(folder / "state")["params"]
        _check_shapes(folder, params, abstract_state)
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract_state), data=ocp.args.JsonRestore())
        with _reading(folder, self._cure(step)):
            restored = self._manager.restore(step, args=items)
        return restored["state"], restored["data"]

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, oldest first."""
        return sorted(set(self._manager.all_steps()) - self._left_out)

    def latest(self) -> int | None:
        """Step of the newest complete checkpoint, or None."""
        return max(self.steps(), default=None)

    def about(self, step: int) -> tuple[float, dict[str, float]]:
        """When `step` was saved, in seconds since 1970, and its validation metrics ({} where it was not validated)."""
        # Read from the files: the manager's own metadata() warns about every item that it cannot also restore.
        return _about(self.folder / str(self._known(step)))

    def wait(self) -> None:
        """Blocks until everything that `save` started is on disk; `UserError` if it could not be written."""
        with self._writing():
            self._manager.wait_until_finished()
        self._delete()

    def close(self) -> None:
        """Waits, and lets go of the folder; `UserError` if the last save could not be written."""
        try:
            with self._writing():
                self._manager.close()
            self._delete()
        finally:
            if self._quiet:
                self._quiet.close()
            if self._opened is not None:
                os.close(self._opened)
                self._opened = None

    def _write_sums(self) -> None:
        """Called by orbax in its saving thread, of process 0, when all files are there and have no final name yet."""
        temporary = self.folder / f"{self._saving}{_TEMPORARY}"
        write_sums(temporary if temporary.is_dir() else self.folder / str(self._saving))  # buckets have no renaming

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Makes one line of whatever orbax and its storage raise when they cannot write, and frees what was written."""
        try:
            yield
        except Exception as error:
            if not self._is_there():
                raise self._disappeared() from error
            for partial in self.folder.glob(f"*{_TEMPORARY}"):
                shutil.rmtree(partial, ignore_errors=True)
            earlier = max((step for step in _steps(self.folder) if step != self._saving), default=None)
            kept = f"checkpoint {earlier} is intact and" if earlier else "no checkpoint is there yet, so"
            start = "goes on from it" if earlier else "begins again"
            raise UserError(
                f"{self.folder}: checkpoint {self._saving} could not be written ({reason(error)}); {kept} the same "
                f"command {start} once that is mended"
            ) from error

    def _is_there(self) -> bool:
        """Whether the folder is the one that was opened: a save in flight makes it anew where it was removed."""
        try:
            return self._opened is None or os.path.samestat(os.fstat(self._opened), self.folder.stat())
        except OSError:
            return False

    def _disappeared(self) -> UserError:
        return UserError(f"{self.folder}: this folder has disappeared; the run cannot be saved")

    def _delete(self) -> None:
        if is_main():
            shutil.rmtree(self.folder / _DELETED, ignore_errors=True)

    def _known(self, step: int | None) -> int:
        steps = self.steps()
        if not steps:
            raise UserError(f"{self.folder}: there is no complete checkpoint here")
        if step is not None and step not in steps:
            raise UserError(f"{self.folder}: there is no checkpoint {step}; there are {', '.join(map(str, steps))}")
        return steps[-1] if step is None else step

    def _cure(self, step: int) -> str:
        earlier = max((other for other in self.steps() if other < step), default=None)
        return f"remove that folder to go on from {f'checkpoint {earlier}' if earlier else 'the beginning'}"


def load_params(workdir: str | Path, step: int) -> dict:
    """Returns the parameters of `workdir/checkpoints/STEP` as numpy arrays, without reading the optimiser's state.

    Raises:
      UserError: there is no such checkpoint, or it is damaged (`DamagedError`).
    """
    folder, cure = Path(workdir).absolute() / "checkpoints" / str(step), "choose another one, or put back a copy"
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such checkpoint")
    if how := fault(folder, "state/"):
        raise DamagedError(folder, how, cure)
    with _reading(folder, cure), Quiet():
        wanted = {"params": _tree(folder / "state")["params"]}
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
        args = ocp.args.PyTreeRestore(item=wanted, restore_args=as_numpy, partial_restore=True)
        return ocp.PyTreeCheckpointHandler().restore(folder / "state", args=args)["params"]


def _steps(folder: Path) -> list[int]:
    """Steps of the complete checkpoints, newest first, whatever their state."""
    return sorted(ocp.utils.checkpoint_steps(folder), reverse=True) if folder.is_dir() else []


def _about(folder: Path) -> tuple[float, dict[str, float]]:
    """Time and metrics of a checkpoint; `ValueError` says which of the two files is damaged."""
    name = "_CHECKPOINT_METADATA"
    try:
        saved_at = json.loads((folder / name).read_text(encoding="utf-8"))["commit_timestamp_nsecs"] / 1e9
        name = "metrics/metrics"
        return saved_at, dict(json.loads((folder / name).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise ValueError(f"{name} is missing") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{name} is damaged") from error


def _replace_metrics(folder: Path, metrics: dict) -> None:
    """At no moment does a file of the checkpoint differ from its sum."""
    name = "metrics/metrics"
    sums = read_sums(folder) if (folder / SUMS).exists() else {}
    if sums:
        replace_sums(folder, {other: digest for other, digest in sums.items() if other != name})
    replacement = folder / f"{name}.tmp"
    replacement.write_text(json.dumps(metrics), encoding="utf-8")
    replacement.replace(folder / name)
    if sums:
        replace_sums(folder, {**sums, name: sha256(folder / name)})


def _unreadable(folder: Path) -> set[int]:
    """Steps whose time and metrics cannot be read; a note on stderr about each."""
    found = set()
    for step in _steps(folder):
        try:
            _about(folder / str(step))
        except ValueError as error:
            print(f"note: {folder / str(step)} is damaged ({error}) and left out", file=sys.stderr)
            found.add(step)
    return found


def _put_damaged_aside(folder: Path) -> None:
    """Renames the damaged ones among the checkpoints up to the newest that is whole, which is read through for that.

    The small files of the older ones are read too, since the manager fails on them.
    """
    damaged, whole = {}, None
    for step in _steps(folder):
        try:
            _about(folder / str(step))
            how = None if whole else fault(folder / str(step))
        except ValueError as error:
            how = str(error)
        if how:
            damaged[step] = how
        elif whole is None:
            whole = step
    if damaged and whole is None:
        listed = ", ".join(f"{step} ({how})" for step, how in damaged.items())
        raise UserError(
            f"{folder}: every checkpoint is damaged: {listed}; put back a copy of one, or remove that folder to train "
            "from the beginning"
        )
    for step, how in damaged.items():
        aside = folder / f"{step}{_DAMAGED}"
        while aside.exists():
            aside = aside.with_name(aside.name + _DAMAGED)
        (folder / str(step)).rename(aside)
        told = f"{folder / str(step)} is damaged ({how}): it is kept as {aside.name}"
        print(f"warning: {told}, and training goes on from checkpoint {whole}", file=sys.stderr)


def _tree(folder: Path) -> dict:
    """Names, shapes and types of the arrays of a saved state."""
    return ocp.PyTreeCheckpointHandler().metadata(folder).tree


def _check_shapes(folder: Path, params: dict, abstract_state: Any) -> None:
    """Compares names and shapes before any array is read: orbax's own messages are a page long."""
    there, here = _shapes(params), _shapes(abstract_state.params)
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            raise UserError(
                f"{folder}: this checkpoint is of another model: {name} is {there.get(name, 'absent')} in it and "
                f"{here.get(name, 'absent')} in the configured one; use that model's config or another --workdir"
            )


def _shapes(params: dict) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape) for path, leaf in leaves}


@contextmanager
def _reading(folder: Path, cure: str) -> Iterator[None]:
    """Makes one line about `folder` of whatever orbax and its storage raise: many kinds, none naming the way out."""
    try:
        with Quiet():
            yield
    except Exception as error:
        if (folder / SUMS).exists():  # and every file is what was written
            raise UserError(
                f"{folder}: this checkpoint is whole, but cannot be restored here ({reason(error)}); use the code, the "
                "config and the package versions that it was saved with"
            ) from error
        raise DamagedError(folder, reason(error), cure) from error
