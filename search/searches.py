"""The search that a `Decoding` asks for."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Int

from vaswani.model.types import Params
from vaswani.search import state as states
from vaswani.search.beam import beam_search
from vaswani.search.diverse import diverse_search
from vaswani.search.options import Decoding
from vaswani.search.sampling import sample
from vaswani.search.state import Hypotheses, Model, Search, resize_cache, run_stage


def search_of(decoding: Decoding) -> Callable[..., Search]:
    """Returns `sample`, `diverse_search` or `beam_search`."""
    if decoding.sampling is not None:
        return sample
    return diverse_search if decoding.groups > 1 else beam_search


def run_search(
    model: Model, decoding: Decoding, params: Params, inputs_bs: Int[Array, "b s"], **more: Any
) -> Hypotheses:
    """Returns the outputs of a whole search: all stages, with a cache that doubles.

    Pure; jit it with all but arrays static. `infer.translate.stages.find` does the same from the host, which can stop
    between stages and drop rows that ended. `more` is `keys_b` for `sample`, or `rules` for `beam_search`.

    Attention is paid for every slot of the cache, used or not. One loop per size adds compilation time, but no run
    time once the search has ended.
    """
    search = search_of(decoding)(model, decoding, params, inputs_bs, **more)
    # The first stage, with the cache that `start` made.
    state = search.start()
    end = min(states.FIRST_STEPS, state.steps)
    state = run_stage(search, state, end)
    # Python's loop, unrolled: each stage is a `while_loop` of its own, over a cache of its own size.
    while end < state.steps:
        end = min(2 * end, state.steps)
        state = run_stage(search, resize_cache(state, end), end)
    return search.result(state.finished)
