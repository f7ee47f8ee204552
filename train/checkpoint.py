"""Checkpoints of a run: a thin layer over orbax's CheckpointManager, and the only file that knows orbax.

`checkpoints/STEP/` holds `state` (step, parameters, optimiser), `data` (position of the batches, JSON), `config`
(JSON) and `metrics` (empty where the step was not validated). Nothing is pickled.
"""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from ml_collections import ConfigDict
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, EveryNSteps, LatestN

from data.errors import UserError


def quality(metrics: dict) -> tuple[bool, float]:
    """What "best" means, larger is better: validation BLEU where it was measured, else the lower validation loss."""
    return (True, metrics["bleu"]) if "bleu" in metrics else (False, -metrics.get("loss", float("inf")))


class Checkpoints:
    """The checkpoints in `folder`; without a `cfg` (`config.checkpoint`) they are only read, and nothing is created.

    Saving is asynchronous: `save` returns once the arrays are copied, and a checkpoint appears under its name only
    when it is complete, so a process killed at any moment leaves the earlier ones usable.
    """

    def __init__(self, folder: str | Path, cfg: ConfigDict | None = None) -> None:
        self.folder = Path(folder).absolute()
        if cfg is None:
            if not self.folder.is_dir():
                raise UserError(f"{self.folder}: no such folder of checkpoints; has this run been trained?")
            options = ocp.CheckpointManagerOptions(create=False, best_fn=quality)
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
            )
        _check_json(self.folder)
        self._manager = ocp.CheckpointManager(self.folder, options=options, item_names=("state", "data", "config"))

    def save(self, step: int, state: Any, data_state: dict, metrics: dict | None, config: dict) -> None:
        """Starts saving; `state` may be donated as soon as this returns. A step that is already saved stays."""
        if step in self._manager.all_steps():
            return
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            data=ocp.args.JsonSave(data_state),
            config=ocp.args.JsonSave(config),
        )
        self._manager.save(step, args=items, metrics=metrics or {}, force=True)

    def restore(self, abstract_state: Any, step: int | None = None) -> tuple[Any, dict]:
        """Returns (state, data position) of `step`, or of the latest, shaped and placed as `abstract_state` says.

        Raises:
          UserError: the checkpoint is damaged, is another model's, or is not there.
        """
        step = self._known(step)
        _check_shapes(self.folder / str(step), abstract_state, self._cure(step))
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract_state), data=ocp.args.JsonRestore())
        restored = _read(self.folder / str(step), self._cure(step), lambda: self._manager.restore(step, args=items))
        return restored["state"], restored["data"]

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, oldest first."""
        return sorted(self._manager.all_steps())

    def latest(self) -> int | None:
        """Step of the newest complete checkpoint, or None."""
        return self._manager.latest_step()

    def about(self, step: int) -> tuple[float, dict[str, float]]:
        """When `step` was saved, in seconds since 1970, and its validation metrics ({} where it was not validated)."""
        # Read from the file: the manager's own metadata() warns about every item that it cannot also restore.
        metadata = json.loads((self.folder / str(self._known(step)) / "_CHECKPOINT_METADATA").read_text())
        return metadata["commit_timestamp_nsecs"] / 1e9, dict(self._manager.metrics(step) or {})

    def wait(self) -> None:
        """Blocks until everything that `save` started is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and lets go of the folder."""
        self._manager.close()

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
      UserError: there is no such checkpoint, or it is damaged.
    """
    folder = Path(workdir).absolute() / "checkpoints" / str(step)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such checkpoint")

    def params() -> dict:
        wanted = {"params": _tree(folder / "state")["params"]}
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
        args = ocp.args.PyTreeRestore(item=wanted, restore_args=as_numpy, partial_restore=True)
        return ocp.PyTreeCheckpointHandler().restore(folder / "state", args=args)["params"]

    return _read(folder, "choose another --checkpoint, or remove that folder", params)


def _tree(folder: Path) -> dict:
    """Names, shapes and types of the arrays of a saved state."""
    return ocp.PyTreeCheckpointHandler().metadata(folder).tree


def _check_json(folder: Path) -> None:
    """Reads the small files of every checkpoint first: the manager would fail on one without saying which."""
    for step in folder.glob("[0-9]*"):
        try:
            if step.name.isdigit():
                json.loads((step / "_CHECKPOINT_METADATA").read_text())
                json.loads((step / "metrics" / "metrics").read_text())
        except (OSError, ValueError) as error:
            raise _damaged(step, error, "remove that folder to go on from what is left") from error


def _check_shapes(folder: Path, abstract_state: Any, cure: str) -> None:
    """Compares names and shapes before any array is read: orbax's own messages are a page long."""
    there = _shapes(_read(folder, cure, lambda: _tree(folder / "state")["params"]))
    here = _shapes(abstract_state.params)
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            raise UserError(
                f"{folder}: this checkpoint is of another model: {name} is {there.get(name, 'absent')} in it and "
                f"{here.get(name, 'absent')} in the configured one; use that model's config or another --workdir"
            )


def _shapes(params: dict) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape) for path, leaf in leaves}


def _read(folder: Path, cure: str, read: Callable[[], Any]) -> Any:
    """Returns `read()`; whatever it raises becomes one line about the checkpoint in `folder`.

    orbax and its storage raise many kinds of error, none of which names the way out, and leave other reads behind that
    fail as well: python would print a page about each when it collects them, so they are collected here.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        return read()
    except Exception as error:
        damaged = _damaged(folder, error, cure)
    finally:
        gc.collect()
        sys.unraisablehook = hook
    raise damaged


def _damaged(folder: Path, error: Exception, cure: str) -> UserError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)[:120]
    return UserError(f"{folder}: this checkpoint is damaged and cannot be read ({reason}); {cure}")
