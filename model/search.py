"""Beam search with the GNMT length penalty and the paper's early stopping (section 6.1; Wu et al. 2016, equation 14).

The definition, for one sentence, beam m >= 2 and a limit L (tokens, EOS counted):

- A hypothesis of n tokens has log p = the sum of its tokens' log-probabilities, and the score
  log p / ((5 + n)/6)^alpha; n counts EOS, as in tensor2tensor. PAD and BOS are never generated, yet keep their share of
  the softmax, so log p is the one that teacher forcing gives.
- Each step extends the m alive hypotheses by every token and keeps the 2m most probable extensions. Those that end
  in EOS are finished; the m best others are the next alive ones. The m best-scored finished hypotheses are kept.
- L is the source's length with its EOS, plus `extra_length`; the L-th token can only be EOS, at its own probability.
- A sentence ends when its most probable alive hypothesis, were it to reach L at no further cost, could not beat the
  nbest-th finished one. Scores only fall as log p does, so ending there changes nothing that is returned.

Beam 1 is greedy decoding, as in tensor2tensor: one extension a step, and the end at the first EOS.

Each sentence has its own limit and its own end, so its batch-mates never change its translation. The key-value cache is
never reordered: beams are the query axis, and a boolean table says which slots hold a beam's ancestors.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from base.ids import BOS, EOS, PAD
from model.cache import DecodeCache
from model.transformer import Transformer

FIRST_STEPS = 16


class Hypotheses(NamedTuple):
    """The best m hypotheses of each sentence, best first; where there are fewer, length 0 and score -inf.

    `ids_bmt` holds tokens with their EOS, then 0; `lengths_bm` counts EOS; `log_probs_bm` are natural logarithms.
    """

    ids_bmt: Int[Array, "b m t"]
    lengths_bm: Int[Array, "b m"]
    log_probs_bm: Float[Array, "b m"]
    scores_bm: Float[Array, "b m"]


class SearchState(NamedTuple):
    """A search between two steps. An alive log-probability of -inf marks a beam that is not in use."""

    step: Int[Array, ""]
    token_bm: Int[Array, "b m"]
    log_probs_bm: Float[Array, "b m"]
    ids_bmt: Int[Array, "b m t"]
    visible_bmc: Bool[Array, "b m c"]
    cache: DecodeCache
    finished: Hypotheses


def length_penalty(length: Int[Array, "*n"], alpha: float) -> Float[Array, "*n"]:
    """((5 + length) / 6)^alpha, by which log p is divided; `length` in tokens, EOS counted."""
    return ((5.0 + length.astype(jnp.float32)) / 6.0) ** alpha


def limits(model: Transformer, source_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
    """Most output tokens of each sentence, EOS counted, and of any sentence of this shape.

    Raises:
      ValueError: `extra_length` leaves no room for a single token.
    """
    steps = source_bs.shape[1] + extra_length
    if model.config.positions == "learned":
        steps = min(steps, model.config.max_positions)
    if steps < 1:
        raise ValueError(f"extra_length is {extra_length}: no output fits a source row of {source_bs.shape[1]}")
    return jnp.clip(jnp.sum(source_bs != PAD, axis=1) + extra_length, 1, steps), steps


def start(model: Transformer, params: Any, source_bs: Int[Array, "b s"], beams: int, steps: int) -> SearchState:
    """Encodes the source; nothing is alive yet."""
    rows = source_bs.shape[0]
    segments_bs = (source_bs != PAD).astype(jnp.int32)
    memory_bsd = model.apply({"params": params}, source_bs, method="encode")
    slots = min(FIRST_STEPS, steps) * beams
    cache: Any = model.apply({"params": params}, memory_bsd, segments_bs, slots, method="start_cache")
    nothing_bm = jnp.full((rows, beams), -jnp.inf)
    ids_bmt = jnp.zeros((rows, beams, steps), jnp.int32)
    return SearchState(
        step=jnp.int32(0),
        token_bm=jnp.full((rows, beams), BOS, jnp.int32),
        log_probs_bm=nothing_bm,
        ids_bmt=ids_bmt,
        visible_bmc=jnp.zeros((rows, beams, slots), bool),
        cache=cache,
        finished=Hypotheses(ids_bmt, jnp.zeros((rows, beams), jnp.int32), nothing_bm, nothing_bm),
    )


def next_logits(
    model: Transformer, params: Any, state: SearchState
) -> tuple[Float[Array, "b m v"], Bool[Array, "b m c"], DecodeCache]:
    """Feeds each beam's newest token; returns logits, the slots seen (with the new ones) and the cache."""
    rows, beams = state.token_bm.shape
    own_bmm = jnp.broadcast_to(jnp.eye(beams, dtype=bool), (rows, beams, beams))
    visible_bmc = jax.lax.dynamic_update_slice_in_dim(state.visible_bmc, own_bmm, state.step * beams, axis=2)
    logits_and_cache: Any = model.apply(
        {"params": params}, state.token_bm, state.step, visible_bmc, state.cache, method="decode_step"
    )
    logits_bmv, cache = logits_and_cache
    return logits_bmv, visible_bmc, cache


def forbid(logits_bmv: Float[Array, "b m v"], step: Int[Array, ""], limit_b: Int[Array, " b"]) -> Float[Array, "b m v"]:
    """-inf for PAD and BOS, and for all but EOS where `step` is a sentence's last."""
    vocabulary_v = jnp.arange(logits_bmv.shape[-1])
    special_v = (vocabulary_v == PAD) | (vocabulary_v == BOS)
    last_b = step + 1 >= limit_b
    forbidden_bv = special_v[None, :] | (last_b[:, None] & (vocabulary_v != EOS)[None, :])
    return jnp.where(forbidden_bv[:, None, :], -jnp.inf, logits_bmv)


def run_while_alive(advance: Callable[[SearchState], SearchState], state: SearchState, steps: int) -> SearchState:
    """Steps until nothing is alive, with a cache that starts small and doubles.

    Attention costs what the cache has room for, used or not; a loop for each size costs compilation, and nothing at
    run time when the search has ended before it.
    """
    beams = state.token_bm.shape[1]

    def run_until(end: int, state: SearchState) -> SearchState:
        return jax.lax.while_loop(lambda now: (now.step < end) & jnp.any(now.log_probs_bm > -jnp.inf), advance, state)

    end = min(FIRST_STEPS, steps)
    state = run_until(end, state)
    while end < steps:
        more = min(end, steps - end)
        end += more
        visible_bmc = jnp.pad(state.visible_bmc, ((0, 0), (0, 0), (0, more * beams)))
        state = run_until(end, state._replace(visible_bmc=visible_bmc, cache=state.cache.grow(end * beams)))
    return state


def take_beams(x_bm: Array, index_bk: Int[Array, "b k"]) -> Array:
    """`x[b, index[b, k]]`, whatever axes follow."""
    return jnp.take_along_axis(x_bm, index_bk.reshape(index_bk.shape + (1,) * (x_bm.ndim - 2)), axis=1)


def keep_best(finished: Hypotheses, new: Hypotheses) -> Hypotheses:
    """The best-scored of both, as many as `finished` has room for; of equals the older."""
    both = Hypotheses(*(jnp.concatenate(pair, axis=1) for pair in zip(finished, new, strict=True)))
    _, best_bm = jax.lax.top_k(both.scores_bm, finished.scores_bm.shape[1])
    return Hypotheses(*(take_beams(field, best_bm) for field in both))


def beam_search(
    model: Transformer,
    params: Any,
    source_bs: Int[Array, "b s"],
    *,
    beam: int,
    alpha: float,
    extra_length: int,
    nbest: int = 1,
) -> Hypotheses:
    """Translates each row of `source_bs` (ids with EOS, then 0; a row of zeros is skipped at no cost).

    Pure; jit it with everything but `params` and `source_bs` static. See the head of this file for the definition.

    Raises:
      ValueError: a negative `alpha` (early stopping would not be exact), or `nbest` not in 1..`beam`.
    """
    if alpha < 0:
        raise ValueError(f"alpha is {alpha}; it must be at least 0")
    if not 1 <= nbest <= beam:
        raise ValueError(f"nbest is {nbest}; it must be in 1..{beam}, the beam")
    limit_b, steps = limits(model, source_bs, extra_length)
    extensions = 1 if beam == 1 else 2 * beam
    penalty_at_limit_b = length_penalty(limit_b, alpha)

    def advance(state: SearchState) -> SearchState:
        logits_bmv, visible_bmc, cache = next_logits(model, params, state)
        best_bmk, tokens_bmk = jax.lax.top_k(
            forbid(logits_bmv, state.step, limit_b), min(extensions, logits_bmv.shape[-1])
        )
        best_bmk = best_bmk - jax.nn.logsumexp(logits_bmv, axis=-1, keepdims=True)
        alive_bm1 = (state.log_probs_bm > -jnp.inf)[..., None]
        log_probs_bmk = jnp.where(alive_bm1, state.log_probs_bm[..., None] + best_bmk, -jnp.inf)
        log_probs_bk, index_bk = jax.lax.top_k(log_probs_bmk.reshape(len(source_bs), -1), extensions)
        parent_bk = index_bk // tokens_bmk.shape[2]
        token_bk = take_beams(tokens_bmk.reshape(len(source_bs), -1), index_bk)
        ids_bkt = jax.lax.dynamic_update_slice_in_dim(
            take_beams(state.ids_bmt, parent_bk), token_bk[..., None], state.step, axis=2
        )

        length = state.step + 1
        ended_bk = (token_bk == EOS) & (log_probs_bk > -jnp.inf)
        finished = keep_best(
            state.finished,
            Hypotheses(
                ids_bkt,
                jnp.where(ended_bk, length, 0),
                jnp.where(ended_bk, log_probs_bk, -jnp.inf),
                jnp.where(ended_bk, log_probs_bk / length_penalty(length, alpha), -jnp.inf),
            ),
        )
        alive_log_probs_bm, kept_bm = jax.lax.top_k(jnp.where(token_bk == EOS, -jnp.inf, log_probs_bk), beam)
        within_reach_b = alive_log_probs_bm[:, 0] / penalty_at_limit_b > finished.scores_bm[:, nbest - 1]
        return SearchState(
            step=length,
            token_bm=take_beams(token_bk, kept_bm),
            log_probs_bm=jnp.where(within_reach_b[:, None], alive_log_probs_bm, -jnp.inf),
            ids_bmt=take_beams(ids_bkt, kept_bm),
            visible_bmc=take_beams(visible_bmc, take_beams(parent_bk, kept_bm)),
            cache=cache,
            finished=finished,
        )

    state = start(model, params, source_bs, beam, steps)
    real_b = jnp.any(source_bs != PAD, axis=1)
    first_bm = real_b[:, None] & (jnp.arange(beam) == 0)[None, :]
    state = state._replace(log_probs_bm=jnp.where(first_bm, 0.0, -jnp.inf))
    found = run_while_alive(advance, state, steps).finished
    kept = Hypotheses(*(field[:, :nbest] for field in found))
    # Slots that no hypothesis reached carry ids of others.
    return kept._replace(ids_bmt=jnp.where((kept.lengths_bm > 0)[..., None], kept.ids_bmt, PAD))
