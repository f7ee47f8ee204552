"""What beam search and sampling share: a batch of hypotheses that grow by one token per step.

The model is a `Model`: a Flax module, or an `Ensemble` of several. Inputs are rows of ids; a row of zeros is skipped at
no cost.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vaswani.ids import BOS, EOS, PAD
from vaswani.model.decoding import Cache, take_beams
from vaswani.model.types import Params

FIRST_STEPS = 24  # the cache's initial size, in steps


@runtime_checkable
class Model(Protocol):
    """What a search asks of a model.

    Two more methods are called by `apply`, with its parameters: `start(inputs_bs, beams, slots)` returns the first
    token of each search [b] and the `Cache` of what is before it; `step(token_bm, step, cache)` the logits [b,m,v] of
    what follows the next token of each beam, and the updated cache.
    """

    def output_limits(self, inputs_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
        """Returns the most output tokens, EOS included, of each row, and of any."""

    def apply(self, variables: Mapping[str, Params], *arguments: object, method: str | None = None) -> Any:
        """Returns what a method gives with these parameters, or without one the logits of whole rows."""


class Hypotheses(NamedTuple):
    """The best m hypotheses of each sentence, best first; where there are fewer, length 0 and score -inf.

    `ids_bmt` holds tokens with their EOS, then 0; `lengths_bm` counts EOS; `log_probs_bm` are natural logarithms.
    """

    ids_bmt: Int[Array, "b m t"]
    lengths_bm: Int[Array, "b m"]
    log_probs_bm: Float[Array, "b m"]
    scores_bm: Float[Array, "b m"]


class SearchState(NamedTuple):
    """The state of a search between two steps. A log-probability of -inf marks a beam that is not alive."""

    step: Int[Array, ""]
    token_bm: Int[Array, "b m"]
    log_probs_bm: Float[Array, "b m"]
    ids_bmt: Int[Array, "b m t"]
    cache: Cache  # the model's
    finished: Hypotheses

    @property
    def steps(self) -> int:
        """The largest number of steps, at which every hypothesis has ended."""
        return self.ids_bmt.shape[2]


class Search(NamedTuple):
    """A search over one batch: the state before its first step, a step, and what is returned of all that finished."""

    start: Callable[[], SearchState]
    advance: Callable[[SearchState], SearchState]
    result: Callable[[Hypotheses], Hypotheses]


def start(model: Model, params: Params, inputs_bs: Int[Array, "b s"], beams: int, steps: int) -> SearchState:
    """Returns the state before the first step; only the first of each row's `beams` is alive."""
    rows = inputs_bs.shape[0]
    # The model reads its inputs (a translator runs its encoder), and the cache has room for the first steps.
    slots = min(FIRST_STEPS, steps) * beams
    token_b, cache = model.apply({"params": params}, inputs_bs, beams, slots, method="start")
    nothing_bm = jnp.full((rows, beams), -jnp.inf)
    # All beams would be the same hypothesis, so only the first counts; in a row of padding, none.
    real_b = jnp.any(inputs_bs != PAD, axis=1)
    first_bm = real_b[:, None] & (jnp.arange(beams) == 0)[None, :]
    ids_bmt = jnp.zeros((rows, beams, steps), jnp.int32)
    return SearchState(
        step=jnp.int32(0),
        token_bm=jnp.broadcast_to(token_b[:, None], (rows, beams)),
        log_probs_bm=jnp.where(first_bm, 0.0, -jnp.inf),
        ids_bmt=ids_bmt,
        cache=cache,
        finished=Hypotheses(ids_bmt, jnp.zeros((rows, beams), jnp.int32), nothing_bm, nothing_bm),
    )


def next_logits(model: Model, params: Params, state: SearchState) -> tuple[Float[Array, "b m v"], Cache]:
    """Feeds each beam's newest token; returns the logits and the updated cache."""
    return model.apply({"params": params}, state.token_bm, state.step, state.cache, method="step")


def mask_logits(
    logits_bmv: Float[Array, "b m v"], step: Int[Array, ""], limit_b: Int[Array, " b"]
) -> Float[Array, "b m v"]:
    """Sets PAD and BOS to -inf, and everything but EOS at a sentence's last step."""
    vocabulary_v = jnp.arange(logits_bmv.shape[-1])
    special_v = (vocabulary_v == PAD) | (vocabulary_v == BOS)
    last_b = step + 1 >= limit_b
    forbidden_bv = special_v[None, :] | (last_b[:, None] & (vocabulary_v != EOS)[None, :])
    # [b,1,v]: the same for all beams. EOS keeps its own logit, so its probability is the model's.
    return jnp.where(forbidden_bv[:, None, :], -jnp.inf, logits_bmv)


def are_alive(state: SearchState) -> Bool[Array, " b"]:
    """Returns which sentences have a hypothesis that may still be extended."""
    return jnp.any(state.log_probs_bm > -jnp.inf, axis=1)


def resize_cache(state: SearchState, steps: int) -> SearchState:
    """Makes the cache large enough for `steps` steps of every beam."""
    return state._replace(cache=state.cache.grow(steps * state.token_bm.shape[1]))


def run_stage(search: Search, state: SearchState, end: int, few: int | Int[Array, ""] = 0) -> SearchState:
    """Steps until `end` steps are done, for which the cache has room, or until no more than `few` rows are alive."""

    def goes_on(now: SearchState) -> Bool[Array, ""]:
        return (now.step < end) & (jnp.sum(are_alive(now)) > few)

    return jax.lax.while_loop(goes_on, search.advance, state)


def keep_best(finished: Hypotheses, new: Hypotheses) -> Hypotheses:
    """Returns the best-scored of both, as many as `finished` holds; on ties, the older."""
    # [b,m] and [b,k] -> [b,m+k] -> [b,m]; `top_k` is stable, and the older come first.
    both = jax.tree.map(lambda old_bm, new_bk: jnp.concatenate([old_bm, new_bk], axis=1), finished, new)
    _, best_bm = jax.lax.top_k(both.scores_bm, finished.scores_bm.shape[1])
    return jax.tree.map(lambda field: take_beams(field, best_bm), both)


def clear_empty_slots(hypotheses: Hypotheses) -> Hypotheses:
    """Clears the ids in slots without a hypothesis, which are left over from other hypotheses."""
    # A slot's ids come from the extension that was ranked there, with log p -inf.
    used_bm1 = (hypotheses.lengths_bm > 0)[..., None]
    return hypotheses._replace(ids_bmt=jnp.where(used_bm1, hypotheses.ids_bmt, PAD))
