"""The k largest of a step's extensions; the only pass over the whole vocabulary takes the maximum of each block."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BLOCK = 16


def top_k(
    x_bmv: Float[Array, "b m v"], minus_bm1: Float[Array, "b m 1"], plus_bm1: Float[Array, "b m 1"], k: int
) -> tuple[Float[Array, "b k"], Int[Array, "b k"], Int[Array, "b k"]]:
    """Returns the k largest of plus + (x - minus) in each row b, the largest first, and their places m and v.

    In beam search x are logits, `minus_bm1` their logsumexp and `plus_bm1` the log p of each hypothesis. Ties go to the
    first in the order of m, then v, as in `jax.lax.top_k`. Within a beam the sum grows with x, so a block's largest x
    makes its largest sum, and the k largest sums are in the k blocks with the largest maxima: only those are computed.
    """
    b, m, v = x_bmv.shape
    # With few tokens the blocks' candidates would be as many as the tokens themselves.
    if m * v <= 4 * k * BLOCK:
        sums_bn = (plus_bm1 + (x_bmv - minus_bm1)).reshape(b, m * v)
        largest_bk, place_bk = jax.lax.top_k(sums_bn, k)
        return largest_bk, place_bk // v, place_bk % v

    # The maximum of each block j of a beam: [b,m,v] -> [b,m,j].
    # Where a beam's last block is short, its maximum is found apart: padding would cost another pass.
    full = v // BLOCK * BLOCK
    window = (1, 1, BLOCK)
    maxima_bmj = jax.lax.reduce_window(x_bmv, -jnp.inf, jax.lax.max, window, window, "valid")
    if full < v:
        rest_bm1 = jnp.max(x_bmv[..., full:], axis=-1, keepdims=True)
        maxima_bmj = jnp.concatenate([maxima_bmj, rest_bm1], axis=-1)
    # The k blocks with the largest sums, among the blocks of all beams of a row: [b,m,j] -> [b,k].
    blocks = maxima_bmj.shape[2]
    sums_bj = (plus_bm1 + (maxima_bmj - minus_bm1)).reshape(b, m * blocks)
    _, block_bk = jax.lax.top_k(sums_bj, k)
    # In the order of m, then v, so that of equal candidates the first comes first.
    block_bk = jnp.sort(block_bk, axis=1)

    # The candidates are the BLOCK tokens c of each of them: from a block's number to its beam and its tokens.
    beam_bk = jax.lax.div(block_bk, blocks)
    first_bk = jax.lax.rem(block_bk, blocks) * BLOCK
    token_bkc = first_bk[..., None] + jnp.arange(BLOCK)[None, None]
    place_bkc = beam_bk[..., None] * v + token_bkc
    # Their logits, read at their places among all m v of the row; beyond the vocabulary would be the next beam's.
    x_bn = x_bmv.reshape(b, m * v)
    found_bn = jnp.take_along_axis(x_bn, place_bkc.reshape(b, k * BLOCK), axis=1)
    in_beam_bkc = token_bkc < v
    x_bkc = jnp.where(in_beam_bkc, found_bn.reshape(b, k, BLOCK), -jnp.inf)
    # Their sums, each with the terms of its own beam.
    minus_bk1 = jnp.take_along_axis(minus_bm1, beam_bk[..., None], axis=1)
    plus_bk1 = jnp.take_along_axis(plus_bm1, beam_bk[..., None], axis=1)
    sums_bn = (plus_bk1 + (x_bkc - minus_bk1)).reshape(b, k * BLOCK)
    # The k largest of these k BLOCK candidates are those of all; back to their beams and tokens.
    largest_bk, candidate_bk = jax.lax.top_k(sums_bn, k)
    token_bk = jnp.take_along_axis(token_bkc.reshape(b, k * BLOCK), candidate_bk, axis=1)
    parent_bk = jnp.take_along_axis(beam_bk, jax.lax.div(candidate_bk, BLOCK), axis=1)
    return largest_bk, parent_bk, token_bk
