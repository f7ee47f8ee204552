"""Runs a search in stages, so that finished rows leave the batch, and no cache is larger than outputs need.

Programs are compiled for a number of rows and a size of the cache. There are few of either: a batch shrinks to a
quarter, since other sizes would save less than it takes to compile them; and wherever the host intervenes, which a
smaller batch needs anyway, the cache doubles, so that a batch that has shrunk once rarely needs a third program.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from vaswani.model.types import Params
from vaswani.run.sharding import fetch
from vaswani.search import state as states
from vaswani.search.options import Decoding
from vaswani.search.searches import search_of
from vaswani.search.state import Hypotheses, Model, SearchState

FEWEST = 8  # rows of a batch that others have left


# Shared by all callers: searches of the same kind, model, options and shapes compile once.
@partial(jax.jit, static_argnames=("model", "decoding", "end"))
def _start(
    model: Model,
    decoding: Decoding,
    end: int,
    params: Params,
    arrays: dict[str, Any],
) -> SearchState:
    # Not part of the first stage, whose loop would then transpose the encoder's keys at every step.
    state = search_of(decoding)(model, decoding, params, **arrays).start()
    return states.resize_cache(state, min(end, state.steps))


@partial(jax.jit, static_argnames=("model", "decoding", "end"))
def _stage(
    model: Model,
    decoding: Decoding,
    end: int,
    params: Params,
    arrays: dict[str, Any],
    state: SearchState,
    few: Int[Array, ""],
) -> tuple[SearchState, Bool[Array, " b"], Hypotheses]:
    search = search_of(decoding)(model, decoding, params, **arrays)
    state = states.run_stage(search, state, end, few)
    return state, states.are_alive(state), search.result(state.finished)


@partial(jax.jit, static_argnames=("rows", "end"))
def _for_next_stage(
    arrays: dict[str, Any], state: SearchState, alive_b: Bool[Array, " b"], rows: int, end: int
) -> tuple[dict[str, Any], SearchState, Int[Array, " r"]]:
    """Returns `rows` of the rows, those that are alive among them, with room for `end` steps, and which rows they are.

    If all stay, each keeps its place, for over several devices another place may be on another device.
    """
    state = states.resize_cache(state, end)
    if rows == len(alive_b):
        return arrays, state, jnp.arange(rows)
    chosen_r = jnp.argsort(~alive_b, stable=True)[:rows]

    def choose(x_b: Array) -> Array:
        return x_b[chosen_r] if x_b.ndim else x_b

    return *jax.tree.map(choose, (arrays, state)), chosen_r


def find(model: Model, decoding: Decoding, params: Params, **arrays: Any) -> Hypotheses:
    """Returns the same as `search.searches.run_search`, given its arrays by name, as NumPy's.

    A stage ends when its cache is full, or when few enough rows are alive for a smaller batch.
    """
    rows = len(arrays["inputs_bs"])
    end = states.FIRST_STEPS
    if fewer_rows(rows) == 0:
        end *= 2  # the cache of a larger batch once it has shrunk to so few rows: both then run the same programs
    state = _start(model, decoding, end, params, arrays)
    end = min(end, state.steps)
    rows_b = np.arange(rows)
    hypotheses: Any = None
    while True:
        few = fewer_rows(rows)
        state, alive_b, found = _stage(model, decoding, end, params, arrays, state, jnp.int32(few))
        if hypotheses is None:
            hypotheses = jax.tree.map(np.array, fetch(found))
        else:
            for field_bm, found_rm in zip(hypotheses, fetch(found), strict=True):
                field_bm[rows_b] = found_rm
        alive = int(fetch(alive_b).sum())
        all_steps_done = end == state.steps and alive > few
        if alive == 0 or all_steps_done:
            return hypotheses
        while alive <= fewer_rows(rows):
            rows = fewer_rows(rows)
        end = min(2 * end, state.steps)
        arrays, state, chosen_r = _for_next_stage(arrays, state, alive_b, rows, end)
        rows_b = rows_b[fetch(chosen_r)]


def fewer_rows(rows: int) -> int:
    """Returns the rows of the next smaller batch, 0 if there is none; over devices a batch does not shrink."""
    fewer = rows // 4
    if jax.device_count() > 1 or fewer < FEWEST:
        return 0
    return fewer
