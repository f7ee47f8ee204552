"""Runs a search a stage at a time, so that no more of it is traced and compiled than its outputs are long."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Bool

from model.search import state as states
from model.search.state import Hypotheses, Model, Search, SearchState


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
) -> tuple[SearchState, Bool[Array, ""], Hypotheses]:
    running = search(model, params, **arrays, **dict(options))
    state = states.run_stage(running, state, end)
    return state, states.is_alive(state), running.result(state.finished)


def find(
    search: Callable[..., Search], model: Model, options: dict[str, Any], params: Any, **arrays: Any
) -> Hypotheses:
    """Returns what `model.search.state.run_search(search)` does, given the options and the arrays by name.

    After each stage the host asks whether the search has ended: a short output never needs the programs of the later
    ones, which have larger caches.
    """
    fixed = tuple(options.items())
    end = states.FIRST_STEPS
    state, alive, hypotheses = _stage(search, model, fixed, end, params, arrays, None)
    while alive and end < state.steps:
        end *= 2
        state, alive, hypotheses = _stage(search, model, fixed, end, params, arrays, state)
    return hypotheses
