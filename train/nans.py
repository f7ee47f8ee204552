"""Names what first made a NaN in a step: the operation, its line in the code, and the parameters concerned."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from vaswani.errors import UserError
from vaswani.tasks.task import Batch, Objective
from vaswani.train.schedule_free import gradient_point
from vaswani.train.step import TrainState, noise_of

_ROOT = Path(__file__).parent.parent
_SHOWN = 3  # parameters


def check_nans() -> None:
    """Makes jax check every result for NaN, and then run the step again, operation by operation; it is slow.

    To be called before anything is compiled. The step then also keeps its old state, which needs more memory.
    """
    jax.config.update("jax_debug_nans", True)


@contextmanager
def naming_nans(objective: Objective, state: TrainState, batch: Batch, key: PRNGKeyArray) -> Iterator[None]:
    """Turns jax's error about a NaN in the step of `state` on `batch` into one line.

    Raises:
      UserError: there was one.
    """
    try:
        yield
    except FloatingPointError as error:
        operation = str(error).splitlines()[0].rpartition("encountered in ")[2].rstrip(".")
        frames = traceback.extract_tb(error.__traceback__)
        our_frames = [frame for frame in frames if _is_ours(Path(frame.filename))]
        where = "unknown"
        if our_frames:
            innermost = our_frames[-1]
            where = f"{Path(innermost.filename).relative_to(_ROOT)}:{innermost.lineno}"
        with jax.debug_nans(False):
            about = _parameters(objective, state, batch, key)
        raise UserError(f"step {int(state.step) + 1}: NaN from the operation {operation} ({where}); {about}") from error


def _is_ours(path: Path) -> bool:
    inside = path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in ("model", "tasks", "train")
    return inside and path != Path(__file__)


def _parameters(objective: Objective, state: TrainState, batch: Batch, key: PRNGKeyArray) -> str:
    """Returns the names of the parameters that are not finite, or else of those with a gradient that is not."""
    before = _not_finite(state.params)
    if before:
        return f"not finite before the step: {before}"
    noise = noise_of(objective, state, batch, key)
    point = gradient_point(state.params, state.opt_state)
    gradient = jax.grad(lambda params: objective.loss(params, batch, noise).loss_sum)(point)
    return f"no finite gradient: {_not_finite(gradient) or 'none, it is in the optimiser'}"


def _not_finite(tree: Any) -> str:
    """Returns the names of the arrays that are not finite: the first few, and how many there are."""
    names = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not bool(jnp.all(jnp.isfinite(leaf))):
            names.append(jax.tree_util.keystr(path, simple=True, separator="/"))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
