"""Runs a search a stage at a time, so that no more of it is traced and compiled than its outputs are long.

Between stages, rows that have ended leave the batch if those that have not fit into a quarter of it; other sizes would
save less than it takes to compile them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from model.search import state as states
from model.search.state import Hypotheses, Model, Search, SearchState
from run.sharding import fetch

FEWEST = 8  # rows of a batch that others have left


# Shared by all callers: searches of the same kind, model, options and shapes compile once.
@partial(jax.jit, static_argnames=("search", "model", "options", "end"))
def _stage(
    search: Callable[..., Search],
    model: Model,
    options: tuple[tuple[str, Any], ...],
    end: int,
    params: Any,
    arrays: dict[str, Any],
    state: SearchState | None,
) -> tuple[SearchState, Bool[Array, " b"], Hypotheses]:
    running = search(model, params, **arrays, **dict(options))
    state = states.run_stage(running, state, end)
    return state, states.are_alive(state), running.result(state.finished)


@partial(jax.jit, static_argnames="rows")
def _alive_first(
    arrays: dict[str, Any], state: SearchState, alive_b: Bool[Array, " b"], rows: int
) -> tuple[dict[str, Any], SearchState, Int[Array, " r"]]:
    """Returns `rows` of the rows, first those that are alive, and which they are."""
    chosen_r = jnp.argsort(~alive_b, stable=True)[:rows]

    def choose(x_b: Array) -> Array:
        return x_b[chosen_r] if x_b.ndim else x_b

    return *jax.tree.map(choose, (arrays, state)), chosen_r


def find(
    search: Callable[..., Search], model: Model, options: dict[str, Any], params: Any, **arrays: Any
) -> Hypotheses:
    """Returns what `model.search.state.run_search(search)` does, given the options and the arrays by name, as NumPy's.

    After each stage the host asks which rows have ended: a short output never needs the programs of the later stages,
    which have larger caches.
    """
    fixed = tuple(options.items())
    end = states.FIRST_STEPS
    state, alive_b, found = _stage(search, model, fixed, end, params, arrays, None)
    hypotheses: Any = jax.tree.map(np.array, fetch(found))
    rows_b = np.arange(len(hypotheses.lengths_bm))
    while (alive := int(fetch(alive_b).sum())) and end < state.steps:
        rows = rows_for(alive, len(rows_b))
        if rows < len(rows_b):
            arrays, state, chosen_r = _alive_first(arrays, state, alive_b, rows)
            rows_b = rows_b[fetch(chosen_r)]
        end *= 2
        state, alive_b, found = _stage(search, model, fixed, end, params, arrays, state)
        for field_bm, found_rm in zip(hypotheses, fetch(found), strict=True):
            field_bm[rows_b] = found_rm
    return hypotheses


def rows_for(alive: int, rows: int) -> int:
    """Returns to how many of its `rows` a batch shrinks in which so many have not ended; over devices, to no fewer."""
    if jax.device_count() > 1:
        return rows
    while rows // 4 >= max(alive, FEWEST):
        rows //= 4
    return rows
