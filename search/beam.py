"""Beam search with the GNMT length penalty and the paper's early stopping (section 6.1; Wu et al. 2016, equation 14).

The definition, for one sentence, beam m >= 2 and a limit of L tokens, EOS included:

- A hypothesis of n tokens, EOS included as in tensor2tensor, has log p = the sum of its tokens' log-probabilities, and
  the score log p / ((5 + n)/6)^alpha. PAD and BOS are never generated but keep their share of the softmax, so log p
  equals the one under teacher forcing.
- Each step extends the m alive hypotheses by every token and keeps the 2m most probable extensions. Those that end
  in EOS are finished; the m best of the rest stay alive. The m finished hypotheses with the best scores are kept.
- L is the source's length with its EOS, plus `extra_length`; the L-th token can only be EOS, at its own probability.
- A sentence's search ends when its most probable alive hypothesis, even if it reached L at no further cost, could not
  beat the nbest-th finished one. Scores only fall with log p, so stopping there does not change the result.

That is the stopping called "exact". The other, "full", is that of fairseq and CTranslate2, and of transformers'
early_stopping=True: of the 2m extensions only the m most probable may finish, and a sentence's search ends once m have.
With a length penalty it usually takes fewer steps. It may miss a longer hypothesis with a better score.

Beam 1 is greedy decoding, as in tensor2tensor: one extension per step, until the first EOS.

Each sentence has its own limit and its own end, so the other rows of the batch never change its output.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vaswani.ids import EOS
from vaswani.model.decoding import Cache, take_beams
from vaswani.model.types import Params
from vaswani.search.largest import top_k
from vaswani.search.options import Decoding
from vaswani.search.rules import Rules, allocate, count_phrase_tokens, next_constraint
from vaswani.search.state import (
    Hypotheses,
    Model,
    Search,
    SearchState,
    clear_empty_slots,
    keep_best,
    mask_logits,
    next_logits,
    start,
)


def length_penalty(length: Int[Array, "*n"], alpha: float, kind: str = "gnmt") -> Float[Array, "*n"]:
    """Returns ((5 + length) / 6)^alpha, by which log p is divided; `length` is in tokens, EOS included.

    Of the kind "power" it is length^alpha, as in fairseq and transformers.
    """
    length = length.astype(jnp.float32)
    return length**alpha if kind == "power" else ((5.0 + length) / 6.0) ** alpha


class Extensions(NamedTuple):
    """The chosen extensions of the hypotheses by one token; of those with the largest `order_bk` some stay alive."""

    parent_bk: Int[Array, "b k"]
    token_bk: Int[Array, "b k"]
    log_probs_bk: Float[Array, "b k"]
    order_bk: Float[Array, "b k"]
    ids_bkt: Int[Array, "b k t"]


def most_probable(
    state: SearchState,
    allowed_bmv: Float[Array, "b m v"],
    normaliser_bm1: Float[Array, "b m 1"],
    count: int,
    diversity_penalty_bv: Float[Array, "b v"] | None = None,
) -> Extensions:
    """Returns the `count` most probable extensions, or those that are after `diversity_penalty_bv` is subtracted."""
    # log p of an extension is log p of its parent + logit - log sum exp of its logits.
    if diversity_penalty_bv is not None:
        allowed_bmv = allowed_bmv - diversity_penalty_bv[:, None]
    order_bk, parent_bk, token_bk = top_k(allowed_bmv, normaliser_bm1, state.log_probs_bm[..., None], count)
    log_probs_bk = order_bk
    if diversity_penalty_bv is not None:
        # It chooses the extensions; what is kept of each is the model's own log p.
        log_probs_bk = log_probs_bk + jnp.take_along_axis(diversity_penalty_bv, token_bk, axis=1)
    ids_bkt = _append(state, parent_bk, token_bk)
    return Extensions(parent_bk, token_bk, log_probs_bk, order_bk, ids_bkt)


def dynamic_beam_allocation(
    state: SearchState, token_log_probs_bmv: Float[Array, "b m v"], phrases_bcl: Int[Array, "b c l"], count: int
) -> Extensions:
    """Returns `count` extensions, chosen by dynamic beam allocation (see `search.rules`)."""
    # The candidates of each beam: its `count` most probable tokens, and the next one of each phrase that it lacks.
    rows, _, vocabulary = token_log_probs_bmv.shape
    _, likely_bmk = jax.lax.top_k(token_log_probs_bmv, min(count, vocabulary))
    needed_bmc = next_constraint(phrases_bcl, state.ids_bmt, state.step)
    tokens_bmk = jnp.concatenate([likely_bmk, needed_bmc], axis=-1)
    per_beam = tokens_bmk.shape[2]

    # A token may be both likely and needed: of equal ones only the first place counts, [b,m,k,k] -> [b,m,k].
    place_k = jnp.arange(per_beam)
    earlier_11kk = (place_k[:, None] > place_k[None])[None, None]
    again_bmk = jnp.any((tokens_bmk[..., None] == tokens_bmk[:, :, None]) & earlier_11kk, axis=-1)
    # log p of the extended hypothesis, [b,m,k].
    dead_bmk = again_bmk | jnp.isneginf(state.log_probs_bm)[..., None]
    added_bmk = jnp.take_along_axis(token_log_probs_bmv, tokens_bmk, axis=-1)
    log_probs_bmk = jnp.where(dead_bmk, -jnp.inf, state.log_probs_bm[..., None] + added_bmk)

    # From here on the candidates of all beams of a row compete: [b,m,k] -> [b, m k].
    log_probs_bk = log_probs_bmk.reshape(rows, -1)
    token_bk = tokens_bmk.reshape(rows, -1)
    parent_k = jnp.arange(log_probs_bk.shape[1]) // per_beam
    parent_bk = jnp.broadcast_to(parent_k, log_probs_bk.shape)
    ids_bkt = _append(state, parent_bk, token_bk)
    # Of their phrases each holds so many tokens: larger banks and smaller ones share the beam.
    bank_bk = count_phrase_tokens(phrases_bcl, ids_bkt, state.step + 1)
    chosen_bk = allocate(bank_bk, log_probs_bk)[:, :count]
    # The order in which they were chosen also decides which stay alive, not log p.
    rank_k = jnp.arange(float(chosen_bk.shape[1]))
    return Extensions(
        parent_bk=take_beams(parent_bk, chosen_bk),
        token_bk=take_beams(token_bk, chosen_bk),
        log_probs_bk=take_beams(log_probs_bk, chosen_bk),
        order_bk=jnp.broadcast_to(-rank_k, chosen_bk.shape),
        ids_bkt=take_beams(ids_bkt, chosen_bk),
    )


def consider(
    model: Model, params: Params, state: SearchState, limit_b: Int[Array, " b"], rules: Rules | None
) -> tuple[Extensions, Cache]:
    """Returns the extensions that a step considers, 2m or, with beam 1, one; and the cache, beams still in place."""
    # Edits of the logits only take extensions away: each that is left has the probability that the model gives it.
    logits_bmv, cache = next_logits(model, params, state)
    allowed_bmv = mask_logits(logits_bmv, state.step, limit_b)
    if rules is not None:
        allowed_bmv = rules.edit(allowed_bmv, state.ids_bmt, state.step, limit_b)
    normaliser_bm1 = jax.nn.logsumexp(logits_bmv, axis=-1, keepdims=True)
    if rules is not None and rules.given:
        # Only one token is allowed here: less its own logit its log p is 0.
        own_bm1 = jnp.max(allowed_bmv, axis=-1, keepdims=True)
        normaliser_bm1 = jnp.where(state.step < rules.given, own_bm1, normaliser_bm1)
    # 2m, so that even if m of them end in EOS, m stay alive.
    beam = state.token_bm.shape[1]
    count = 1 if beam == 1 else 2 * beam
    if rules is None or rules.phrases_bcl is None:
        return most_probable(state, allowed_bmv, normaliser_bm1, count), cache
    return dynamic_beam_allocation(state, allowed_bmv - normaliser_bm1, rules.phrases_bcl, count), cache


def update_beams(
    state: SearchState,
    new: Extensions,
    penalty_of: Callable[[Array], Array],
    penalty_at_limit_b: Float[Array, " b"],
    nbest: int,
    stopping: str,
) -> tuple[SearchState, Int[Array, "b m"]]:
    """Returns the state after these extensions, with the cache as it was, and the parent of each beam in it.

    `penalty_of` is the `length_penalty` of a length; `stopping` is "exact" or "full".
    """
    # The extensions that end in EOS join the finished hypotheses, of which the m best are kept.
    beam = state.log_probs_bm.shape[1]
    length = state.step + 1
    eos_bk = new.token_bk == EOS
    ended_bk = eos_bk & (new.log_probs_bk > -jnp.inf)
    if stopping == "full":
        ended_bk = ended_bk & (jnp.arange(eos_bk.shape[1]) < beam)[None]
    ended = Hypotheses(
        ids_bmt=new.ids_bkt,
        lengths_bm=jnp.where(ended_bk, length, 0),
        log_probs_bm=jnp.where(ended_bk, new.log_probs_bk, -jnp.inf),
        scores_bm=jnp.where(ended_bk, new.log_probs_bk / penalty_of(length), -jnp.inf),
    )
    finished = keep_best(state.finished, ended)

    # The m best of the rest stay alive: [b,k] -> [b,m].
    _, kept_bm = jax.lax.top_k(jnp.where(eos_bk, -jnp.inf, new.order_bk), beam)
    alive_log_probs_bm = take_beams(jnp.where(eos_bk, -jnp.inf, new.log_probs_bk), kept_bm)
    # A sentence ends here: with m finished ones; or, exactly, once none alive could still enter the nbest. An alive
    # one scores best if it keeps its log p, which only falls, up to the limit, where the penalty is largest.
    if stopping == "full":
        goes_on_b = jnp.isneginf(finished.scores_bm[:, -1])
    else:
        best_possible_b = jnp.max(alive_log_probs_bm, axis=1) / penalty_at_limit_b
        goes_on_b = best_possible_b > finished.scores_bm[:, nbest - 1]
    # Without an alive hypothesis no later step changes anything of this row.
    after = SearchState(
        step=length,
        token_bm=take_beams(new.token_bk, kept_bm),
        log_probs_bm=jnp.where(goes_on_b[:, None], alive_log_probs_bm, -jnp.inf),
        ids_bmt=take_beams(new.ids_bkt, kept_bm),
        cache=state.cache,
        finished=finished,
    )
    return after, take_beams(new.parent_bk, kept_bm)


def _append(state: SearchState, parent_bk: Int[Array, "b k"], token_bk: Int[Array, "b k"]) -> Int[Array, "b k t"]:
    """Returns each parent's tokens with the new one behind them."""
    ids_bkt = take_beams(state.ids_bmt, parent_bk)
    return jax.lax.dynamic_update_slice_in_dim(ids_bkt, token_bk[..., None], state.step, axis=2)


def beam_search(
    model: Model,
    decoding: Decoding,
    params: Params,
    inputs_bs: Int[Array, "b s"],
    rules: Rules | None = None,
) -> Search:
    """Searches for the n best outputs of each row of `inputs_bs` (for a translator, source ids with EOS, then 0).

    The definition is above. `min_length` and `no_repeat` of the decoding are among the `rules`.
    """
    limit_b, steps = model.output_limits(inputs_bs, decoding.extra_length)
    penalty_of = partial(length_penalty, alpha=decoding.alpha, kind=decoding.length_penalty)
    penalty_at_limit_b = penalty_of(limit_b)

    def advance(state: SearchState) -> SearchState:
        # The cache has every beam's own past until now; then each continues its parent's.
        new, cache = consider(model, params, state, limit_b, rules)
        after, parent_bm = update_beams(state, new, penalty_of, penalty_at_limit_b, decoding.nbest, decoding.stopping)
        return after._replace(cache=cache.select(parent_bm))

    def result(finished: Hypotheses) -> Hypotheses:
        return clear_empty_slots(jax.tree.map(lambda field_bm: field_bm[:, : decoding.nbest], finished))

    return Search(partial(start, model, params, inputs_bs, decoding.beam, steps), advance, result)
