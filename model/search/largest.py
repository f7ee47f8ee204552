"""The k largest of many numbers: what `jax.lax.top_k` returns, and over a vocabulary several times as fast on a CPU."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BLOCK = 16


def top_k(x_bn: Float[Array, "b n"], k: int) -> tuple[Float[Array, "b k"], Int[Array, "b k"]]:
    """Returns the k largest numbers of each row, the largest first, and their places; of equal ones the first.

    They are in the k blocks with the largest maxima, so only those are sorted.
    """
    b, n = x_bn.shape
    if n <= 4 * k * BLOCK:
        largest_bk, places_bk = jax.lax.top_k(x_bn, k)
        return largest_bk, places_bk
    window = (1, BLOCK)
    maxima_bj = jax.lax.reduce_window(x_bn, -jnp.inf, jax.lax.max, window, window, ((0, 0), (0, -n % BLOCK)))
    _, blocks_bk = jax.lax.top_k(maxima_bj, k)
    blocks_bk = jnp.sort(blocks_bk, axis=1)  # so that of equal candidates the first in the row comes first
    places_bc = (blocks_bk[..., None] * BLOCK + jnp.arange(BLOCK)[None, None]).reshape(b, k * BLOCK)
    candidates_bc = jnp.take_along_axis(x_bn, places_bc, axis=1, mode="fill", fill_value=-jnp.inf)
    largest_bk, candidate_bk = jax.lax.top_k(candidates_bc, k)
    return largest_bk, jnp.take_along_axis(places_bc, candidate_bk, axis=1)
