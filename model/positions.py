"""How a Transformer knows the order of its tokens: the paper's sinusoids, and what its readers proposed instead."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

MAX_WAVELENGTH = 10_000.0


def _angles(positions_bt: Int[Array, "b t"], width: int) -> Float[Array, "b t half"]:
    """Angles pos / 10000^(2i/width) for i = 0 .. width/2 - 1, in float32."""
    frequencies = MAX_WAVELENGTH ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    return positions_bt[:, :, None].astype(jnp.float32) * jnp.asarray(frequencies, jnp.float32)[None, None, :]


def sinusoids(positions_bt: Int[Array, "b t"], d_model: int) -> Float[Array, "b t d"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same (section 3.5), interleaved as printed."""
    angles = _angles(positions_bt, d_model)
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(*positions_bt.shape, d_model)


def rotate(x_bhtk: Float[Array, "b h t k"], positions_bt: Int[Array, "b t"]) -> Float[Array, "b h t k"]:
    """Turns each pair (x_2i, x_2i+1) by the angle pos / 10000^(2i/k): RoPE, Su et al. 2021 (arXiv 2104.09864).

    The product of a query and a key rotated so depends on the difference of their positions only.
    """
    angles = _angles(positions_bt, x_bhtk.shape[-1])[:, None]
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    even, odd = x_bhtk[..., 0::2].astype(jnp.float32), x_bhtk[..., 1::2].astype(jnp.float32)
    turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x_bhtk.shape).astype(x_bhtk.dtype)


def alibi_slopes(h: int) -> np.ndarray:
    """Slopes m_h = 2^(-8 i / h), i = 1 .. h, of ALiBi, Press et al. 2021 (arXiv 2108.12409), float64 [h].

    Where h is no power of two: the slopes of the power of two below, then every other slope of the one above.
    """
    below = 2 ** math.floor(math.log2(h))
    slopes = [2.0 ** (-8.0 * i / below) for i in range(1, below + 1)]
    between = [2.0 ** (-8.0 * i / (2 * below)) for i in range(1, 2 * below + 1, 2)]
    return np.asarray(slopes + between[: h - below])


def alibi_bias(positions_bt: Int[Array, "b t"], positions_bs: Int[Array, "b s"], h: int) -> Float[Array, "b h t s"]:
    """-m_h |i - j|, added to the logits of self-attention after their division by sqrt(d_k).

    Press et al. treat causal models only, where |i - j| = i - j. Taking the distance in the encoder, and no bias in
    encoder-decoder attention, is our choice.
    """
    distance_bts = jnp.abs(positions_bt[:, :, None] - positions_bs[:, None, :]).astype(jnp.float32)
    slopes_h = jnp.asarray(alibi_slopes(h), jnp.float32)
    return -slopes_h[None, :, None, None] * distance_bts[:, None]
