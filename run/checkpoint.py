"""Checkpoints of a run: a thin layer over orbax's AsyncCheckpointer. Only this file imports orbax.

`checkpoints/STEP/` holds `state` (step, parameters, optimiser), `data` (position in the data, JSON), `config` (JSON),
`metrics` (empty if the step was not validated), `_CHECKPOINT_METADATA` (when and why it was saved, JSON),
`commit_success.txt`, which makes it a checkpoint once all else is written, and `SHA256SUMS`, which detects changed
files: orbax itself reads arrays with changed bytes without complaint. Nothing is pickled, and nothing renamed, which a
bucket cannot do. `*.damaged` failed verification. `run.saved` has what can be read without orbax.
"""

import gc
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict
from orbax.checkpoint.options import AtomicityMode, AtomicityOptions

from vaswani.errors import UserError
from vaswani.files import as_path, in_bucket
from vaswani.read_json import read_json
from vaswani.run import saved
from vaswani.run.choice import steps_to_keep
from vaswani.run.distributed import is_main, main_first
from vaswani.run.lock import check_ours
from vaswani.run.parameters import named_shapes
from vaswani.run.saved import CHECKSUMS, Checkpoint, DamagedError

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
                _rename_damaged(self.folder)
                self.folder.mkdir(parents=True, exist_ok=True)  # before the others look for it
        if not in_bucket(self.folder) and not self.folder.is_dir():
            raise UserError(f"{self.folder}: process 0 made this folder, but it is missing here; share one --workdir")
        self._checkpoints = {step: saved.about(self.folder / str(step)) for step in saved.steps(self.folder)}
        self._verified = self.latest()
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
        self._held.enter_context(_without_tracebacks())  # saving threads run until `close`
        self._held.callback(gc.collect)  # while there are none: what a failed save has abandoned

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints, oldest first, including one that is being written."""
        return sorted(self._checkpoints)

    def latest(self) -> int | None:
        """Returns the step of the newest checkpoint, or None."""
        return max(self._checkpoints, default=None)

    def about(self, step: int) -> Checkpoint:
        """Returns the record of checkpoint `step`: its time, reason and validation metrics."""
        return self._checkpoints[step]

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
          step: its number.
          state: step, parameters and optimiser.
          data_state: position in the data.
          metrics: of the step's validation, if it had one.
          config: the whole config.
          reason: why: "schedule" (`config.checkpoint`), "end" (the last step), "patience" (it has ended), "signal" (a
            signal stopped the run, and none of these holds) or "import".

        Raises:
          UserError: this save or the one before could not be written; the earlier checkpoints are intact.
        """
        # One save at a time: the one before is finished first, and its error, if any, is raised here.
        self.wait()
        if step in self._checkpoints:
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
            self._checkpoints[step] = Checkpoint(step, time.time(), metrics or {}, reason)
            superfluous = self._checkpoints.keys() - steps_to_keep(self._cfg, self._checkpoints.values())
            for old in superfluous:
                del self._checkpoints[old]
            self._saved = self._background.submit(self._complete, step, superfluous)

    def add_validation(self, step: int, metrics: dict[str, float], has_ended: bool) -> None:
        """Adds the metrics of a validation to checkpoint `step`, which a signal left without them.

        If patience `has_ended` with it, that is why it is saved: uninterrupted, the run would have ended there.
        """
        self.wait()
        checkpoint = self._checkpoints[step]
        is_of_patience = has_ended and checkpoint.reason == "signal"
        reason = "patience" if is_of_patience else checkpoint.reason
        with main_first("validation"):
            if is_main():
                saved.replace(self.folder / str(step), metrics, reason)
        self._checkpoints[step] = checkpoint._replace(metrics=metrics, reason=reason)

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
            how = _fault(folder)
            if how:
                raise DamagedError(folder, how, cure)
        _check_shapes(folder, abstract_state.params)
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract_state), data=ocp.args.JsonRestore())
        with _reading(folder):
            found = self._handler.restore(epath.Path(str(folder)), args=items)
        return found["state"], found["data"]

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
        """Waits until checkpoint `step` is complete, writes its checksums, and deletes the `superfluous` ones.

        It counts as complete without checksums: reading it back takes a third of a preempted machine's grace period.
        """
        self._checkpointer.wait_until_finished()
        if is_main():
            saved.add_checksums(self.folder / str(step))
            for old in superfluous:
                saved.remove(self.folder / str(old))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns any error of orbax or its storage while writing into one line, and deletes that checkpoint.

        Threads that are still writing then miss their folder. The error raised again is the first, which is the cause.
        """
        try:
            yield
        except Exception as error:
            self._check_ours()
            folder = self.folder / str(self._saving)
            if folder.exists() and not (folder / CHECKSUMS).exists():  # they come last, when all has been read back
                saved.remove(folder)
            # What fails after the first failure is a consequence of it.
            if self._failure:
                raise self._failure from self._failure.__cause__
            earlier = max((step for step in saved.steps(self.folder) if step != self._saving), default=None)
            if earlier:
                cure = f"checkpoint {earlier} is intact and the same command resumes from it once that is fixed"
            else:
                cure = "there is no checkpoint yet, so the same command starts again once that is fixed"
            self._failure = UserError(
                f"{self.folder}: checkpoint {self._saving} could not be written ({_why(error)}); {cure}"
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
    how = _fault_of_state(folder, name)
    if how:
        raise DamagedError(folder, how, cure)
    return _load_parts(folder, cure, name)


def _fault(folder: Path) -> str | None:
    """Reads a whole checkpoint and returns what has changed since it was saved; None if nothing has.

    One without checksums gets them, if all of it can be read: its process was killed once it was complete.
    """
    has_sums = (folder / CHECKSUMS).exists()
    how = saved.fault(folder) if has_sums else _unreadable(folder)
    if how:
        return how
    if not has_sums:
        saved.add_checksums(folder)
    try:
        _load_parts(folder, "", "step")
    except DamagedError as error:
        return error.how
    return None


def _unreadable(folder: Path, *names: str) -> str | None:
    """Returns the error in reading these parts of a checkpoint without checksums, by default all; None if none."""
    try:
        _load_parts(folder, "", *(names or _tree(folder)))
    except Exception as error:
        return f"{CHECKSUMS} is missing, and so is more: {_why(error)}"
    return None


def _fault_of_state(folder: Path, name: str) -> str | None:
    """Returns the fault of a checkpoint's state: the changed file or, without checksums, why `name` is unreadable."""
    if not (folder / CHECKSUMS).exists() and saved.is_complete(folder):
        return _unreadable(folder, name)
    return saved.fault(folder, "state/")


def _rename_damaged(folder: Path) -> None:
    """Renames damaged checkpoints; verifies every byte, from the newest down to the newest intact one.

    For older ones only time and metrics are read, since the manager fails if it cannot read those.

    Raises:
      UserError: there are checkpoints but all are damaged; nothing is renamed.
    """
    # From the newest down; once one is intact, training can resume from it, and older ones are not read whole.
    damaged: dict[int, str] = {}
    intact: int | None = None
    for step in saved.steps(folder):
        checkpoint = folder / str(step)
        try:
            saved.about(checkpoint)
            how = None if intact else _fault(checkpoint)
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


def _check_shapes(folder: Path, params: Any) -> None:
    """Compares a checkpoint's parameters with a model's before any array is read; orbax's own message is a page long.

    Raises:
      UserError: a name or a shape differs, or as `_reading`.
    """
    with _reading(folder):
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


def _load_parts(folder: Path, cure: str, *names: str) -> dict:
    """Returns the named parts of a saved state as numpy arrays.

    Raises:
      DamagedError: the state's step differs from the folder's name: folders may have been swapped, renamed or linked.
        The message ends with `cure`.
      UserError: as `_reading`.
    """
    with _reading(folder):
        # The optimiser's state contains sequences, which their names do not distinguish from dicts.
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
def _reading(folder: Path) -> Iterator[None]:
    """Turns any error of orbax or its storage into one line about `folder`, whose files have been verified."""
    try:
        with _without_tracebacks():
            yield
    except Exception as error:
        raise UserError(
            f"{folder}: this checkpoint is intact but cannot be restored here ({_why(error)}); use the code, the "
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


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Suppresses tracebacks of operations that orbax and tensorstore abandon inside the `with` statement.

    Without it a full disk prints a page for each array in flight, besides the one-line error: their callbacks find the
    event loop closed, and Python reports that to `sys.unraisablehook`, the only place to intercept it. What orbax logs
    at the same time is suppressed by the log level that `vaswani.command.run` sets.
    """
    hook = sys.unraisablehook

    def unraisable(event: Any) -> None:
        code = getattr(event.object, "cr_code", None)  # coroutines have it
        is_coroutine_of_orbax = code is not None and f"{os.sep}orbax{os.sep}" in code.co_filename
        is_abandoned = event.object is None or is_coroutine_of_orbax
        if not is_abandoned:
            hook(event)

    sys.unraisablehook = unraisable
    try:
        yield
    except BaseException:
        gc.collect()  # what was abandoned, now; after success there is nothing, and this is slow where jax is loaded
        raise
    finally:
        sys.unraisablehook = hook


def _why(error: Exception) -> str:
    """Returns in a few words why reading or writing failed: the operating system's message, if there is one."""
    message = str(error)
    code = re.search(r"os_error_code='(\d+)'", message)  # as tensorstore ends its messages
    if code:
        return os.strerror(int(code[1]))
    lines = message.splitlines()
    first_line = lines[0] if lines else type(error).__name__
    text = getattr(error, "strerror", None) or first_line
    return text[:120]
