"""Checkpoints of a run: a thin layer over orbax's CheckpointManager. Only this file and `run.saved` import orbax.

`checkpoints/STEP/` holds `state` (step, parameters, optimiser), `data` (position in the data, JSON), `config` (JSON),
`metrics` (empty if the step was not validated), `_CHECKPOINT_METADATA` (when and why it was saved, JSON) and
`SHA256SUMS`, which detects changed files: orbax itself reads arrays with changed bytes without complaint. Nothing is
pickled. Other names are not checkpoints: `*.orbax-checkpoint-tmp` is
being written, `*.damaged` failed verification, `.deleted` is being deleted.
"""

import gc
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from ml_collections import ConfigDict
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN

from vaswani.errors import UserError
from vaswani.run import checksums, saved
from vaswani.run.distributed import is_main, main_first
from vaswani.run.lock import other_holder
from vaswani.run.quiet import quiet, reason
from vaswani.run.saved import DamagedError

_TEMPORARY = ".orbax-checkpoint-tmp"
_DELETED = ".deleted"


def quality(metrics: dict) -> tuple[int, float]:
    """Returns the sort key for "best", larger is better: validation BLEU if it was measured, else minus the nll.

    `eval.patience` and sweeps always judge by the nll. Checkpoints of earlier versions have the smoothed loss alone.
    NaN, from a model that has diverged, ranks below every number; a plain sort would leave it wherever it was.
    """
    if "bleu" in metrics:
        return 2, metrics["bleu"]
    rank = 1 if "nll" in metrics else 0
    nll = metrics.get("nll", metrics.get("loss", math.inf))
    return rank, -math.inf if math.isnan(nll) else -nll


def nll_quality(metrics: dict) -> tuple[int, float]:
    """Returns the `quality` as if no BLEU had been measured."""
    return quality({name: value for name, value in metrics.items() if name != "bleu"})


def judge(all_metrics: Sequence[dict]) -> Callable[[dict], tuple[int, float]]:
    """Returns what compares checkpoints with these metrics: `quality`, or `nll_quality` where only some have a BLEU.

    BLEU and nll cannot be compared, so all are judged by what all have.
    """
    with_bleu = ["bleu" in metrics for metrics in all_metrics]
    has_only_some_bleu = any(with_bleu) and not all(with_bleu)
    if has_only_some_bleu and all("nll" in metrics for metrics in all_metrics):
        return nll_quality
    return quality


class Checkpoints:
    """The checkpoints in `folder`. Without `cfg` (`config.checkpoint`) they are read-only, and nothing is created.

    Saving is asynchronous: `save` returns once the arrays are copied, and a checkpoint gets its final name only when it
    is complete, so killing the process at any moment leaves the earlier ones usable.

    With `cfg` the newest checkpoint is verified first, and `latest` is the newest intact one: damaged ones are renamed
    to `STEP.damaged`, with a line on stderr. Without it, those whose metrics cannot be read are ignored.
    """

    def __init__(self, folder: str | Path, cfg: ConfigDict | None = None) -> None:
        """Opens the folder.

        Raises:
          UserError: the folder to read does not exist, or all of its checkpoints are damaged; or orbax could not save
            in the folder.
        """
        self.folder = Path(folder).absolute()
        self._left_out: set[int] = set()
        self._temporary: set[int] = set()
        self._manager: Any = None
        self._saving: int | None = None  # the last step whose saving was started
        self._failure: UserError | None = None  # why that could not be written
        self._held = ExitStack()

        # To read: without orbax's manager, which would create folders.
        if cfg is None:
            if not self.folder.is_dir():
                raise UserError(f"{self.folder}: no such folder of checkpoints; has this run been trained?")
            self._left_out = saved.unreadable(self.folder)
            return

        # To write: what a crash has left damaged goes out of the way before the manager reads the folder.
        if re.search(r"\[.*\]|\\", str(self.folder)):  # orbax takes it for a pattern, and loses what it has written
            raise UserError(f"{self.folder}: no checkpoint can be saved below square brackets or a backslash")
        with main_first("checkpoints", self.folder):
            if is_main():
                saved.rename_damaged(self.folder)
                self.folder.mkdir(parents=True, exist_ok=True)  # before the others look for it
        if not self.folder.is_dir():
            raise UserError(f"{self.folder}: process 0 has made this folder, and it is not here; share one --workdir")
        self._verified = max(saved.steps(self.folder), default=None)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=_preservation_policy(cfg, self._temporary),
            best_fn=quality,  # metrics are only written where this is set
            cleanup_tmp_directories=True,
            todelete_subdir=_DELETED,  # renamed first: killing a process during deletion leaves no partial checkpoint
            async_options=ocp.AsyncOptions(
                post_finalization_callback=self._write_sums,
                # Otherwise, if a folder cannot be created, orbax's threads wait five minutes for it at exit.
                create_directories_asynchronously=False,
            ),
        )
        self._manager = ocp.CheckpointManager(self.folder, options=options, item_names=("state", "data", "config"))
        # Kept open, so that a folder which is removed and recreated cannot get the same inode.
        self._opened = os.open(self.folder, os.O_RDONLY)
        self._held.callback(os.close, self._opened)
        self._held.enter_context(quiet())  # saving threads run until `close`
        self._held.callback(gc.collect)  # while it is quiet: what a failed save has abandoned

    def save(
        self,
        step: int,
        state: Any,
        data_state: dict,
        metrics: dict | None,
        config: dict,
        reason: str = "schedule",
    ) -> None:
        """Starts saving; `state` may be donated as soon as this returns. A step that is already saved is kept as is.

        Args:
          step: number of the update.
          state: step, parameters and optimiser.
          data_state: position in the data.
          metrics: of the update's validation, if it had one.
          config: the whole config.
          reason: why: "schedule" (`config.checkpoint`), "end" (the last update), "patience" (it has ended), "signal" (a
            signal stopped the run, and none of these holds) or "import".

        Raises:
          UserError: this save or the one before could not be written; the earlier checkpoints are intact.
        """
        # One save at a time: the one before is finished first, and its error, if any, is raised here.
        self.wait()
        if step in self._manager.all_steps():
            return
        self._check_ours()
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            data=ocp.args.JsonSave(data_state),
            config=ocp.args.JsonSave(config),
        )
        self._saving = step
        self._failure = None
        with self._writing():
            self._manager.save(step, args=items, metrics=metrics or {}, custom_metadata={"reason": reason}, force=True)

    def mark_temporary(self, step: int) -> None:
        """Does not count checkpoint `step` among the last ones, so that it is deleted once a newer one is saved."""
        self._temporary.add(step)

    def reason(self, step: int) -> str:
        """Returns why checkpoint `step` was saved, one of the words of `save`."""
        return saved.read_reason(self.folder / str(step))

    def set_reason(self, step: int, reason: str) -> None:
        """Replaces why checkpoint `step` was saved."""
        self.wait()
        with main_first("reason"):
            if is_main():
                saved.replace_reason(self.folder / str(step), reason)

    def add_metrics(self, step: int, metrics: dict) -> None:
        """Adds validation metrics to checkpoint `step`, which was saved without them."""
        self.wait()
        with main_first("metrics"):
            if is_main():
                saved.replace_metrics(self.folder / str(step), metrics)
        self._manager.reload()

    def restore(self, abstract_state: Any) -> tuple[Any, dict]:
        """Returns (state, data position) of the latest checkpoint, with the shapes and sharding of `abstract_state`.

        Raises:
          UserError: there is no checkpoint, or it is damaged or of another model.
        """
        step = self.latest()
        if step is None:
            raise UserError(f"{self.folder}: there is no complete checkpoint here")
        folder = self.folder / str(step)
        # What to do if this one is damaged; when the folder was opened it was not.
        earlier = max((saved_step for saved_step in self.steps() if saved_step < step), default=None)
        resume_from = f"checkpoint {earlier}" if earlier else "the beginning"
        cure = f"remove that folder to resume from {resume_from}"
        if step != self._verified:
            how = saved.fault(folder)
            if how:
                raise DamagedError(folder, how, cure)
        saved.check_shapes(folder, abstract_state.params)
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract_state), data=ocp.args.JsonRestore())
        with saved.reading(folder):
            restored = self._manager.restore(step, args=items)
        return restored["state"], restored["data"]

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints, oldest first, including one that is being written."""
        steps = self._manager.all_steps() if self._manager else saved.steps(self.folder)
        return sorted(set(steps) - self._left_out)

    def latest(self) -> int | None:
        """Returns the step of the newest complete checkpoint, or None."""
        return max(self.steps(), default=None)

    def about(self, step: int) -> tuple[float, dict[str, float]]:
        """Returns when `step` was saved, in seconds since 1970, and its validation metrics, {} if there are none.

        Raises:
          ValueError: a file of it is damaged or missing; the message says which.
        """
        # Read from the files: the manager's own metadata() warns about every item that it cannot also restore.
        return saved.about(self.folder / str(step))

    def wait(self) -> None:
        """Blocks until everything that `save` started is on disk; `UserError` if it could not be written."""
        with self._writing():
            self._manager.wait_until_finished()
            if is_main() and self._saving is not None:
                saved.add_time(self.folder / str(self._saving))
        self._delete()

    def close(self) -> None:
        """Waits and releases the folder; `UserError` if the last save could not be written."""
        with self._held:
            if self._manager:
                self.wait()
                with self._writing():
                    self._manager.close()
                self._delete()

    def _write_sums(self) -> None:
        """Called by orbax in process 0's saving thread, when all items are written but not yet renamed."""
        saved.write_sums(self.folder / f"{self._saving}{_TEMPORARY}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns any error of orbax or its storage while writing into one line, and deletes the partial checkpoint.

        Threads that are still writing then miss their folder. The error raised again is the first, which is the cause.
        """
        try:
            yield
        except Exception as error:
            self._check_ours()
            for partial in self.folder.glob(f"*{_TEMPORARY}"):
                shutil.rmtree(partial, ignore_errors=True)
            # What fails after the first failure is a consequence of it.
            if self._failure:
                raise self._failure from self._failure.__cause__
            earlier = max((step for step in saved.steps(self.folder) if step != self._saving), default=None)
            if earlier:
                cure = f"checkpoint {earlier} is intact and the same command resumes from it once that is fixed"
            else:
                cure = "no checkpoint is there yet, so the same command starts again once that is fixed"
            self._failure = UserError(
                f"{self.folder}: checkpoint {self._saving} could not be written ({reason(error)}); {cure}"
            )
            raise self._failure from error

    def _check_ours(self) -> None:
        """Raises a `UserError` if the folder was removed, or if another process has started training in it.

        Orbax would recreate a removed folder without the run's other files. On a file system without locks, two
        processes would delete each other's temporary files, and both would fail, blaming the disk.
        """
        try:
            is_still_there = os.path.samestat(os.fstat(self._opened), self.folder.stat())
        except OSError:
            is_still_there = False
        if not is_still_there:
            raise UserError(f"{self.folder}: this folder has disappeared; the run cannot be saved")
        workdir = self.folder.parent
        holder = other_holder(workdir) if is_main() else None
        if holder:
            raise UserError(
                f"--workdir={workdir}: another process has started training in this folder ({holder}), "
                "whose file system has no locks to prevent it; this process stops now without saving"
            )

    def _delete(self) -> None:
        if is_main():
            shutil.rmtree(self.folder / _DELETED, ignore_errors=True)


class _Latest:
    """A policy of orbax that keeps the last `count` checkpoints, not counting `temporary`, and the very last of all."""

    def __init__(self, count: int, temporary: set[int]) -> None:
        self._count = count
        self._temporary = temporary

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Returns of each checkpoint whether it is kept; called by orbax."""
        steps = [one.step for one in checkpoints]
        counted = [step for step in steps if step not in self._temporary]
        kept = {*counted[-self._count :], *steps[-1:]}
        return [step in kept for step in steps]


class _Best:
    """A policy of orbax that keeps the `count` best checkpoints (`run.averaging.choose`), but no temporary one."""

    def __init__(self, count: int, temporary: set[int]) -> None:
        self._count = count
        self._temporary = temporary

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Returns of each checkpoint whether it is kept; called by orbax."""
        validated = [one for one in checkpoints if one.metrics and one.step not in self._temporary]
        best = BestN(get_metric_fn=judge([one.metrics for one in validated]), n=self._count)
        are_best = best.should_preserve(validated, context=context)
        kept = {one.step for is_best, one in zip(are_best, validated, strict=True) if is_best}
        return [one.step in kept for one in checkpoints]


class _Every:
    """A policy of orbax that keeps those whose step is a multiple of `interval`, but no temporary one."""

    def __init__(self, interval: int, temporary: set[int]) -> None:
        self._interval = interval
        self._temporary = temporary

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Returns of each checkpoint whether it is kept; called by orbax."""
        steps = [one.step for one in checkpoints]
        return [step % self._interval == 0 and step not in self._temporary for step in steps]


def _preservation_policy(cfg: ConfigDict, temporary: set[int]) -> AnyPreservationPolicy:
    """Returns which checkpoints are kept: those that any of the keys of `config.checkpoint` asks for."""
    # Policies, not max_to_keep with best_fn: those delete the latest checkpoint once it is not among the best.
    policies: list[Any] = [_Latest(cfg.keep_last, temporary)]
    if cfg.keep_best:
        policies.append(_Best(cfg.keep_best, temporary))
    if cfg.keep_every:
        policies.append(_Every(cfg.keep_every, temporary))
    return AnyPreservationPolicy(policies)


def load_params(workdir: str | Path, step: int) -> dict:
    """Returns the parameters of `workdir/checkpoints/STEP` as numpy arrays, without reading the optimiser's state.

    Raises:
      UserError: there is no such checkpoint, or it is damaged (`DamagedError`).
    """
    return _load(workdir, step, "params")["params"]


def load_ema(workdir: str | Path, step: int) -> dict:
    """Returns the moving average of the parameters in `workdir/checkpoints/STEP` (`optim.ema`) as numpy arrays.

    Raises:
      UserError: as `load_params`, or the run keeps none.
    """
    for part in _load(workdir, step, "opt_state")["opt_state"]:
        if isinstance(part, dict) and "ema" in part:
            return part["ema"]
    raise UserError(f"{workdir}: this run keeps no average of its parameters; --config.optim.ema=0.999 would")


def _load(workdir: str | Path, step: int, name: str) -> dict:
    folder = Path(workdir).absolute() / "checkpoints" / str(step)
    cure = "choose another one, or restore a copy"
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such checkpoint")
    how = checksums.fault(folder, "state/")
    if how:
        raise DamagedError(folder, how, cure)
    return saved.load(folder, cure, name)
