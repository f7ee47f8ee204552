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

Beam 1 is greedy decoding, as in tensor2tensor: one extension per step, until the first EOS.

Each sentence has its own limit and its own end, so the other rows of the batch never change its output.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from base.ids import EOS
from model.search.state import (
    Hypotheses,
    Model,
    SearchState,
    forbid,
    keep_best,
    next_logits,
    run_while_alive,
    start,
    take_beams,
    without_leftovers,
)


def length_penalty(length: Int[Array, "*n"], alpha: float, kind: str = "gnmt") -> Float[Array, "*n"]:
    """Returns ((5 + length) / 6)^alpha, by which log p is divided; `length` is in tokens, EOS included.

    Of the kind "power" it is length^alpha, as in fairseq and transformers.
    """
    length = length.astype(jnp.float32)
    return length**alpha if kind == "power" else ((5.0 + length) / 6.0) ** alpha


def beam_search(
    model: Model,
    params: Any,
    inputs_bs: Int[Array, "b s"],
    *,
    beam: int,
    alpha: float,
    extra_length: int,
    nbest: int = 1,
    penalty: str = "gnmt",
) -> Hypotheses:
    """Returns the `nbest` best outputs for each row of `inputs_bs` (for a translator, source ids with EOS, then 0).

    Pure; jit it with everything but `params` and `inputs_bs` static. The top of this file has the definition.

    Raises:
      ValueError: a negative `alpha` (early stopping would not be exact), or `nbest` not in 1..`beam`.
    """
    if alpha < 0:
        raise ValueError(f"alpha is {alpha}; it must be at least 0")
    if not 1 <= nbest <= beam:
        raise ValueError(f"nbest is {nbest}; it must be in 1..{beam}, the beam")
    limit_b, steps = model.output_limits(inputs_bs, extra_length)
    extensions = 1 if beam == 1 else 2 * beam
    penalty_at_limit_b = length_penalty(limit_b, alpha, penalty)

    def advance(state: SearchState) -> SearchState:
        logits_bmv, cache = next_logits(model, params, state)
        best_bmk, tokens_bmk = jax.lax.top_k(
            forbid(logits_bmv, state.step, limit_b), min(extensions, logits_bmv.shape[-1])
        )
        best_bmk = best_bmk - jax.nn.logsumexp(logits_bmv, axis=-1, keepdims=True)
        alive_bm1 = (state.log_probs_bm > -jnp.inf)[..., None]
        log_probs_bmk = jnp.where(alive_bm1, state.log_probs_bm[..., None] + best_bmk, -jnp.inf)
        log_probs_bk, index_bk = jax.lax.top_k(log_probs_bmk.reshape(len(inputs_bs), -1), extensions)
        parent_bk = index_bk // tokens_bmk.shape[2]
        token_bk = take_beams(tokens_bmk.reshape(len(inputs_bs), -1), index_bk)
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
                jnp.where(ended_bk, log_probs_bk / length_penalty(length, alpha, penalty), -jnp.inf),
            ),
        )
        alive_log_probs_bm, kept_bm = jax.lax.top_k(jnp.where(token_bk == EOS, -jnp.inf, log_probs_bk), beam)
        within_reach_b = alive_log_probs_bm[:, 0] / penalty_at_limit_b > finished.scores_bm[:, nbest - 1]
        return SearchState(
            step=length,
            token_bm=take_beams(token_bk, kept_bm),
            log_probs_bm=jnp.where(within_reach_b[:, None], alive_log_probs_bm, -jnp.inf),
            ids_bmt=take_beams(ids_bkt, kept_bm),
            cache=cache.select(take_beams(parent_bk, kept_bm)),
            finished=finished,
        )

    found = run_while_alive(advance, start(model, params, inputs_bs, beam, steps), steps).finished
    return without_leftovers(Hypotheses(*(field[:, :nbest] for field in found)))
