"""Random translations: temperature, top-k and top-p (nucleus) sampling."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vaswani.ids import EOS
from vaswani.model.types import Params
from vaswani.search.options import Decoding
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


def truncate(logits_bmv: Float[Array, "b m v"], top_k: int, top_p: float) -> Float[Array, "b m v"]:
    """Sets to -inf all but the `top_k` most likely tokens (0: keep all), then all but the fewest that reach `top_p`.

    The token that crosses `top_p` is kept, so at least one is; ties with the last token kept are kept too. A `top_p` of
    1 keeps all.
    """
    if not top_k and top_p == 1.0:
        return logits_bmv
    # The lowest logit to keep: that of the k-th most likely token.
    vocabulary = logits_bmv.shape[-1]
    kept = min(top_k, vocabulary) if top_k else vocabulary
    likely_bmk, _ = jax.lax.top_k(logits_bmv, kept)
    lowest_bm1 = likely_bmk[..., -1:]
    # Not for a `top_p` of 1: rounding may give few tokens all of the probability, and would drop the others.
    if top_p < 1.0:
        # A token is in the nucleus if those before it, with more probability, do not reach `top_p`.
        probabilities_bmk = jax.nn.softmax(likely_bmk)
        before_bmk = jnp.cumsum(probabilities_bmk, axis=-1) - probabilities_bmk
        lowest_bm1 = jnp.min(jnp.where(before_bmk < top_p, likely_bmk, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(logits_bmv >= lowest_bm1, logits_bmv, -jnp.inf)


def sample(
    model: Model, decoding: Decoding, params: Params, inputs_bs: Int[Array, "b s"], keys_b: Key[Array, " b"]
) -> Search:
    """Draws `nbest` independent translations of each row, the most probable first; repeats are possible.

    A sentence's draws depend only on its own key, not on its place in the batch. Scores are the model's
    log-probabilities before temperature and truncation. Length limits are those of beam search.
    """
    options = decoding.sampling
    assert options is not None
    samples = decoding.nbest
    limit_b, steps = model.output_limits(inputs_bs, decoding.extra_length)
    # A key for each sample; each step folds its number in, so that a draw depends on nothing else.
    keys_bm = jax.vmap(lambda key: jax.random.split(key, samples))(keys_b)

    def advance(state: SearchState) -> SearchState:
        logits_bmv, cache = next_logits(model, params, state)
        allowed_bmv = mask_logits(logits_bmv, state.step, limit_b)
        # Draw from the sharpened and truncated distribution, [b,m,v] -> [b,m] ...
        truncated_bmv = truncate(allowed_bmv / options.temperature, options.top_k, options.top_p)

        def draw(key: Key[Array, ""], logits_v: Float[Array, " v"]) -> Int[Array, ""]:
            return jax.random.categorical(jax.random.fold_in(key, state.step), logits_v)

        token_bm = jax.vmap(jax.vmap(draw))(keys_bm, truncated_bmv).astype(jnp.int32)
        # ... but score the draw by the model's own.
        log_probs_bmv = jax.nn.log_softmax(logits_bmv)
        token_log_probs_bm = jnp.take_along_axis(log_probs_bmv, token_bm[..., None], axis=-1)[..., 0]
        alive_bm = state.log_probs_bm > -jnp.inf
        log_probs_bm = jnp.where(alive_bm, state.log_probs_bm + token_log_probs_bm, -jnp.inf)
        ids_bmt = jax.lax.dynamic_update_slice_in_dim(state.ids_bmt, token_bm[..., None], state.step, axis=2)
        # Samples that drew EOS are finished; the rest draw on.
        ended_bm = alive_bm & (token_bm == EOS)
        ended_log_probs_bm = jnp.where(ended_bm, log_probs_bm, -jnp.inf)
        ended = Hypotheses(
            ids_bmt=ids_bmt,
            lengths_bm=jnp.where(ended_bm, state.step + 1, 0),
            log_probs_bm=ended_log_probs_bm,
            scores_bm=ended_log_probs_bm,
        )
        return SearchState(
            step=state.step + 1,
            token_bm=token_bm,
            log_probs_bm=jnp.where(ended_bm, -jnp.inf, log_probs_bm),
            ids_bmt=ids_bmt,
            cache=cache,
            finished=keep_best(state.finished, ended),
        )

    def begin() -> SearchState:
        state = start(model, params, inputs_bs, samples, steps)
        # All samples of a row are alive, as the first is; in beam search they would be copies.
        row_log_probs_b1 = state.log_probs_bm[:, :1]
        return state._replace(log_probs_bm=jnp.broadcast_to(row_log_probs_b1, state.log_probs_bm.shape))

    return Search(begin, advance, clear_empty_slots)
