"""Loads the parameters of chosen checkpoints, or their average (section 6.1)."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vaswani.errors import UserError, note
from vaswani.progress import Progress
from vaswani.run import params_cache, saved
from vaswani.run.builtin import checkpoint_of, is_builtin, load_weights
from vaswani.run.choice import EMA, choose
from vaswani.run.saved import Checkpoint, DamagedError


def average(load: Callable[[int], Any], steps: Sequence[int]) -> Any:
    """Returns the mean of the parameters `load(step)` over `steps`, in float32; for a single step, exactly its own.

    Only one checkpoint and a float64 sum are in memory at a time: at most 12 bytes per parameter for any number of
    steps. In float64 the order of the steps does not matter, and rounding of the sum does not reach the float32 result.

    Raises:
      UserError: the checkpoints are of different models.
    """
    total = None
    shapes = None
    with Progress("loading", "checkpoints", total=len(steps), is_summarised=False) as progress:
        for step in progress.count(steps):
            params = load(step)
            # Averaging needs the same names and shapes in all.
            these = jax.tree.map(np.shape, params)
            if shapes is not None and these != shapes:
                raise UserError(
                    f"checkpoint {step} has other parameters than checkpoint {steps[0]}: they cannot be averaged"
                )
            shapes = these
            # A sum in float64, in place: the mean is divided once, at the end.
            if total is None:
                total = jax.tree.map(lambda leaf: np.array(leaf, np.float64), params)
            else:
                total = jax.tree.map(lambda sum_, leaf: np.add(sum_, leaf, out=sum_), total, params)
            del params  # before the next one is loaded
    return jax.tree.map(lambda sum_: np.divide(sum_, len(steps), out=sum_).astype(np.float32), total)


def load_choice(workdir: Path, choice: str) -> tuple[list[int], Any]:
    """Returns the steps that `choice` names and the mean of their parameters, as float32 numpy arrays.

    The parameters of `ema` are the moving average that training has kept (`optim.ema`). What an earlier command made of
    the same checkpoints is read instead of them, if it was kept (`run.params_cache`).

    Damaged checkpoints are ignored, each with a note on stderr. If a training process saves or removes checkpoints
    meanwhile, the choice is made again.

    Raises:
      UserError: `choice` names no intact checkpoint.
    """
    check_began(workdir)
    if is_builtin(workdir):
        return load_weights(workdir, choice)
    listed = list_checkpoints(workdir)
    damaged: set[int] = set()
    while True:
        intact = [checkpoint for checkpoint in listed if checkpoint.step not in damaged]
        steps = choose(choice, intact)
        name = params_cache.name_of(workdir / "checkpoints", steps, "ema" if choice == EMA else "params")
        params = params_cache.read(name)
        if params is not None:
            return steps, params
        try:
            params = average(partial(_load, workdir, choice), steps)
            params_cache.write(name, params)
            return steps, params
        except UserError as error:
            now = list_checkpoints(workdir)
            if now != listed:  # a training process has saved or removed some: choose again
                listed = now
                damaged = set()
                continue
            if not isinstance(error, DamagedError):
                raise
            damaged.add(error.step)
            if choice.isdecimal() or len(damaged) == len(listed):
                raise
            note(f"{workdir}/checkpoints/{error.step} is damaged ({error.how}) and ignored")


def _load(workdir: Path, choice: str, step: int) -> Any:
    """Returns the parameters of a checkpoint, or their moving average."""
    from vaswani.run import checkpoint  # here, since it loads orbax, which takes as long as all else

    load = checkpoint.load_ema if choice == EMA else checkpoint.load_params
    return load(workdir, step)


def named_steps(steps: Sequence[int]) -> str:
    """Returns a name for the checkpoints of these steps; only an import has one at step 0."""
    return "imported" if list(steps) == [0] else f"step {', '.join(map(str, steps))}"


def check_began(workdir: Path) -> None:
    """Raises a `UserError` if this is the folder of a run that never made a step and has no checkpoint."""
    is_run = (workdir / "config.json").is_file() and not is_builtin(workdir)
    if is_run and not (workdir / "metrics.jsonl").exists() and not (workdir / "checkpoints").is_dir():
        raise UserError(
            f"workdir={workdir}: training never began in this folder, so there is no checkpoint: "
            "fix what stopped it and give the same command again, or wait for the first checkpoint"
        )


def list_checkpoints(workdir: Path) -> list[Checkpoint]:
    """Returns the complete checkpoints of a run, oldest first; [] before the first is saved."""
    if is_builtin(workdir):
        return [checkpoint_of(workdir)]
    folder = (workdir / "checkpoints").absolute()
    if not folder.is_dir():
        return []
    left_out = saved.unreadable(folder)
    while True:
        steps = sorted(set(saved.steps(folder)) - left_out)
        try:
            return [saved.about(folder / str(step)) for step in steps]
        except ValueError:
            if sorted(set(saved.steps(folder)) - left_out) == steps:
                raise
            # A training process has removed one meanwhile.
