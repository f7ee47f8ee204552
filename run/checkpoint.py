"""Checkpoints of a run: a thin layer over orbax's AsyncCheckpointer. Only this file and `run.restored` import orbax.

`checkpoints/STEP/` holds `state` (step, parameters, optimiser), `data` (position in the data, JSON), `config` (JSON),
`metrics` (empty if the step was not validated), `_CHECKPOINT_METADATA` (when and why it was saved, JSON),
`commit_success.txt`, which makes it a checkpoint once all else is written, and `SHA256SUMS`, which detects changed
files: orbax itself reads arrays with changed bytes without complaint. Nothing is pickled, and nothing renamed, which a
bucket cannot do. `*.damaged` failed verification.
"""

import gc
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from ml_collections import ConfigDict
from orbax.checkpoint.options import AtomicityMode, AtomicityOptions

from vaswani.errors import UserError
from vaswani.files import as_path, in_bucket
from vaswani.run import restored, saved
from vaswani.run.distributed import is_main, main_first
from vaswani.run.lock import check_ours
from vaswani.run.quality import judge
from vaswani.run.quiet import quiet, reason
from vaswani.run.saved import DamagedError

_BY_MARKER = AtomicityOptions(mode=AtomicityMode.COMMIT_FILE)


class Checkpoints:
    """The checkpoints in `folder`, of which `cfg`, `config.checkpoint`, says which are kept.

    Saving is asynchronous: `save` returns once the arrays are copied, and a checkpoint counts only once it is complete,
    so killing the process at any moment leaves the earlier ones usable.

    The newest checkpoint is verified first, and `latest` is the newest intact one: damaged ones are renamed to
    `STEP.damaged`, with a line on stderr. What only reads checkpoints takes the functions of `run.saved` and those
    below.
    """

    def __init__(self, folder: str | Path, cfg: ConfigDict) -> None:
        """Opens the folder, or creates it.

        Raises:
          UserError: all of its checkpoints are damaged, or orbax could not save in it.
        """
        self.folder = as_path(folder).absolute()
        self._cfg = cfg
        self._metrics: dict[int, dict] = {}  # of each checkpoint, by its step
        self._temporary: set[int] = set()
        self._saving: int | None = None  # the last step whose saving was started
        self._saved: Future[None] | None = None  # done once that is complete
        self._failure: UserError | None = None  # why that could not be written
        self._held = ExitStack()

        # What a crash has left damaged goes out of the way before the folder is read.
        if re.search(r"\[.*\]|\\", str(self.folder)):  # orbax takes it for a pattern, and loses what it has written
            raise UserError(f"{self.folder}: no checkpoint can be saved below square brackets or a backslash")
        with main_first("checkpoints", self.folder):
            if is_main():
                saved.remove_partial(self.folder)
                restored.rename_damaged(self.folder)
                self.folder.mkdir(parents=True, exist_ok=True)  # before the others look for it
        if not in_bucket(self.folder) and not self.folder.is_dir():
            raise UserError(f"{self.folder}: process 0 has made this folder, and it is not here; share one --workdir")
        self._metrics = {step: self.about(step)[1] for step in saved.steps(self.folder)}
        self._verified = max(self._metrics, default=None)
        self._handler = ocp.CompositeCheckpointHandler(
            state=ocp.StandardCheckpointHandler(),
            data=ocp.JsonCheckpointHandler(),
            config=ocp.JsonCheckpointHandler(),
            metrics=ocp.JsonCheckpointHandler(filename="metrics"),
            composite_options=ocp.CompositeOptions(atomicity_options=_BY_MARKER),
        )
        self._checkpointer = ocp.AsyncCheckpointer(
            self._handler,
            atomicity_options=_BY_MARKER,
            # Otherwise, if a folder cannot be created, orbax's threads wait five minutes for it at exit.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        )
        self._background = ThreadPoolExecutor(1, "checkpoint")
        self._opened: int | None = None
        if not in_bucket(self.folder):
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
        if step in self._metrics:
            return
        self._check_ours()
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            data=ocp.args.JsonSave(data_state),
            config=ocp.args.JsonSave(config),
            metrics=ocp.args.JsonSave(metrics or {}),
        )
        self._saving = step
        self._failure = None
        with self._writing():
            place = str(self.folder / str(step))
            self._checkpointer.save(place, args=items, custom_metadata={"reason": reason}, force=True)
            self._metrics[step] = metrics or {}
            superfluous = self._metrics.keys() - kept(self._cfg, self._metrics, self._temporary)
            for old in superfluous:
                del self._metrics[old]
            self._saved = self._background.submit(self._complete, step, superfluous)

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
        self._metrics[step] = metrics

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
            how = restored.fault(folder)
            if how:
                raise DamagedError(folder, how, cure)
        restored.check_shapes(folder, abstract_state.params)
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract_state), data=ocp.args.JsonRestore())
        with restored.reading(folder):
            found = self._handler.restore(epath.Path(str(folder)), args=items)
        return found["state"], found["data"]

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints, oldest first, including one that is being written."""
        return sorted(self._metrics)

    def latest(self) -> int | None:
        """Returns the step of the newest complete checkpoint, or None."""
        return max(self.steps(), default=None)

    def about(self, step: int) -> tuple[float, dict[str, float]]:
        """Returns when `step` was saved, in seconds since 1970, and its validation metrics, {} if there are none.

        Raises:
          ValueError: a file of it is damaged or missing; the message says which.
        """
        return saved.about(self.folder / str(step))

    def wait(self) -> None:
        """Blocks until everything that `save` started is on disk; `UserError` if it could not be written."""
        with self._writing():
            if self._saved:
                self._saved.result()

    def close(self) -> None:
        """Waits and releases the folder; `UserError` if the last save could not be written."""
        with self._held:
            self.wait()
            with self._writing():
                self._checkpointer.close()

    def _complete(self, step: int, superfluous: set[int]) -> None:
        """Waits until checkpoint `step` counts, writes its sums, and deletes those that it has made superfluous.

        It counts before its sums are there: reading it back takes a third of the time that a preempted machine has.
        """
        self._checkpointer.wait_until_finished()
        if is_main():
            saved.write_sums(self.folder / str(step))
            for old in superfluous:
                saved.remove(self.folder / str(old))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns any error of orbax or its storage while writing into one line, and deletes the partial checkpoint.

        Threads that are still writing then miss their folder. The error raised again is the first, which is the cause.
        """
        try:
            yield
        except Exception as error:
            self._check_ours()
            saved.remove_partial(self.folder)
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
            is_lost = self._opened and not os.path.samestat(os.fstat(self._opened), self.folder.stat())
        except OSError:
            is_lost = True
        if is_lost:
            raise UserError(f"{self.folder}: this folder has disappeared; the run cannot be saved")
        if is_main():
            check_ours(self.folder.parent)


def kept(cfg: ConfigDict, metrics: dict[int, dict], temporary: set[int]) -> set[int]:
    """Returns the steps that are kept: those that any of the keys of `config.checkpoint` asks for, and the last one.

    Args:
      cfg: `config.checkpoint`.
      metrics: of every checkpoint, by its step; {} if it was not validated.
      temporary: the steps that no key asks for.
    """
    counted = sorted(metrics.keys() - temporary)
    validated = [step for step in counted if metrics[step]]
    judged_by = judge([metrics[step] for step in validated])
    worst_first = sorted(validated, key=lambda step: judged_by(metrics[step]))
    best = worst_first[-cfg.keep_best :] if cfg.keep_best else []
    multiples = [step for step in counted if cfg.keep_every and step % cfg.keep_every == 0]
    return {max(metrics), *counted[-cfg.keep_last :], *best, *multiples}


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
    folder = as_path(workdir).absolute() / "checkpoints" / str(step)
    cure = "choose another one, or restore a copy"
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such checkpoint")
    how = restored.fault_of_state(folder, name)
    if how:
        raise DamagedError(folder, how, cure)
    return restored.load(folder, cure, name)
