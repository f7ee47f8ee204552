"""Positional encodings: the paper's sinusoids and later alternatives.

One class per kind. It defines what is added to the embeddings (`embed`), what becomes of the queries and keys of
self-attention (`queries`, `keys`), and what is added to its scores (`bias`). Those with a table of parameters say how
many rows it has: `biases`, of the table that `bias` reads; or `distances`, of the two tables of vectors that every
layer adds to its keys and values. The table that `embed` reads has `config.limit` rows.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vaswani.model.config import CommonConfig, ModelConfig

MAX_WAVELENGTH = 10_000.0
T5_FAR = 128  # tokens: T5 tells no greater distances apart


@dataclasses.dataclass(frozen=True)
class NoPositions:
    """No positions at all, and the base class of every kind: a field of this type holds any of them.

    Each kind overrides what it changes; here nothing is.
    """

    biases = 0  # rows of the table that `bias` reads, which the layers of a stack share

    @property
    def distances(self) -> int:
        """The rows of a layer's tables of relative vectors; 0 for none."""
        return 0

    def embed(
        self, x_btd: Float[Array, "b t d"], positions_bt: Int[Array, "b t"], table_ld: Float[Array, "l d"] | None
    ) -> Float[Array, "b t d"]:
        """Returns embeddings with positions added."""
        return x_btd

    def queries(self, q_bhtk: Float[Array, "b h t k"], positions_bt: Int[Array, "b t"]) -> Float[Array, "b h t k"]:
        """Returns the queries as they meet the keys."""
        return q_bhtk

    def keys(self, k_bhsk: Float[Array, "b h s k"], positions_bs: Int[Array, "b s"]) -> Float[Array, "b h s k"]:
        """Returns the keys as they meet the queries, and as a cache stores them."""
        return k_bhsk

    def bias(
        self, positions_bt: Int[Array, "b t"], positions_bs: Int[Array, "b s"], table_rh: Float[Array, "r h"] | None
    ) -> Float[Array, "b h t s"] | None:
        """Returns the bias added to the logits of queries at `positions_bt` and keys at `positions_bs`."""
        return None


@dataclasses.dataclass(frozen=True)
class Sinusoidal(NoPositions):
    """The paper's (section 3.5)."""

    d_model: int

    def embed(
        self, x_btd: Float[Array, "b t d"], positions_bt: Int[Array, "b t"], table_ld: Float[Array, "l d"] | None
    ) -> Float[Array, "b t d"]:
        return x_btd + sinusoids(positions_bt, self.d_model)


@dataclasses.dataclass(frozen=True)
class Learned(NoPositions):
    """A table of learned vectors (Table 3, row E)."""

    def embed(
        self, x_btd: Float[Array, "b t d"], positions_bt: Int[Array, "b t"], table_ld: Float[Array, "l d"] | None
    ) -> Float[Array, "b t d"]:
        assert table_ld is not None
        # A row of the table for each position: [b,t] -> [b,t,d].
        return x_btd + table_ld[positions_bt]


@dataclasses.dataclass(frozen=True)
class Rotary(NoPositions):
    """RoPE, Su et al. 2021 (arXiv 2104.09864)."""

    def queries(self, q_bhtk: Float[Array, "b h t k"], positions_bt: Int[Array, "b t"]) -> Float[Array, "b h t k"]:
        return rotate(q_bhtk, positions_bt)

    def keys(self, k_bhsk: Float[Array, "b h s k"], positions_bs: Int[Array, "b s"]) -> Float[Array, "b h s k"]:
        return rotate(k_bhsk, positions_bs)


@dataclasses.dataclass(frozen=True)
class Alibi(NoPositions):
    """ALiBi, Press et al. 2021 (arXiv 2108.12409)."""

    h: int

    def bias(
        self, positions_bt: Int[Array, "b t"], positions_bs: Int[Array, "b s"], table_rh: Float[Array, "r h"] | None
    ) -> Float[Array, "b h t s"] | None:
        return alibi_bias(positions_bt, positions_bs, self.h)


@dataclasses.dataclass(frozen=True)
class T5Bias(NoPositions):
    """T5's learned bias of each head for each bucket of distances, Raffel et al. 2020 (arXiv 1910.10683)."""

    causal: bool  # whether no key is after its query

    biases = 32

    def bias(
        self, positions_bt: Int[Array, "b t"], positions_bs: Int[Array, "b s"], table_rh: Float[Array, "r h"] | None
    ) -> Float[Array, "b h t s"] | None:
        assert table_rh is not None
        after_bts = positions_bs[:, None, :] - positions_bt[:, :, None]
        # A table of all distances, so that no logarithm is computed here: [b,t,s] -> [b,t,s,h].
        buckets = jnp.asarray(t5_buckets(self.biases, self.causal))
        bucket_bts = buckets[jnp.clip(after_bts, -T5_FAR, T5_FAR) + T5_FAR]
        bias_btsh = table_rh[bucket_bts]
        return jnp.moveaxis(bias_btsh, 3, 1)


@dataclasses.dataclass(frozen=True)
class RelativeVectors(NoPositions):
    """A learned vector for each distance, added to keys and to values, Shaw et al. 2018 (arXiv 1803.02155).

    The distance of a key after its query is clipped to -max_distance .. max_distance.
    """

    max_distance: int

    @property
    def distances(self) -> int:
        return 2 * self.max_distance + 1


def encoding_of(config: CommonConfig, causal: bool = False) -> NoPositions:
    """Returns the positions that `config.positions` names; recurrent networks have none."""
    if not isinstance(config, ModelConfig):
        return NoPositions()
    match config.positions:
        case "sinusoidal":
            return Sinusoidal(config.d_model)
        case "learned":
            return Learned()
        case "rope":
            return Rotary()
        case "alibi":
            return Alibi(config.h)
        case "t5":
            return T5Bias(causal)
        case "shaw":
            return RelativeVectors(config.max_distance)
        case "none":
            return NoPositions()
    raise ValueError(f"model.positions is {config.positions!r}, which model/positions.py:encoding_of does not know")


def frequencies(width: int) -> Float[np.ndarray, " half"]:
    """Returns 10000^(-2i/width) for i = 0 .. width/2 - 1, in float32."""
    # In float64 first: float32 would lose digits of the power.
    exponents = -np.arange(0, width, 2, dtype=np.float64) / width
    return (MAX_WAVELENGTH**exponents).astype(np.float32)


def _angles(positions_bt: Int[Array, "b t"], width: int) -> Float[Array, "b t half"]:
    """Returns the angles pos / 10000^(2i/width) for i = 0 .. width/2 - 1, in float32."""
    return positions_bt[:, :, None].astype(jnp.float32) * jnp.asarray(frequencies(width))[None, None, :]


def sinusoids(positions_bt: Int[Array, "b t"], d_model: int) -> Float[Array, "b t d"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same (section 3.5), interleaved as printed."""
    # One angle for each pair of dimensions, whose wavelengths run from 2 pi to 10000 * 2 pi.
    angles = _angles(positions_bt, d_model)
    # Sine and cosine alternate: [b,t,half,2] -> [b,t,d].
    pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return pairs.reshape(*positions_bt.shape, d_model)


def rotate(x_bhtk: Float[Array, "b h t k"], positions_bt: Int[Array, "b t"]) -> Float[Array, "b h t k"]:
    """Rotates each pair (x_2i, x_2i+1) by the angle pos / 10000^(2i/k).

    The product of a rotated query and key then depends only on the difference of their positions.
    """
    # The same angles for every head.
    angles = _angles(positions_bt, x_bhtk.shape[-1])[:, None]
    sin = jnp.sin(angles)
    cos = jnp.cos(angles)
    # A rotation of the plane of each pair, in float32.
    even = x_bhtk[..., 0::2].astype(jnp.float32)
    odd = x_bhtk[..., 1::2].astype(jnp.float32)
    rotated = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return rotated.reshape(x_bhtk.shape).astype(x_bhtk.dtype)


def alibi_slopes(h: int) -> np.ndarray:
    """Returns the slopes m_h = 2^(-8 i / h), i = 1 .. h, as float64 [h]: of 8 heads, 1/2, 1/4, .. 1/256.

    If h is not a power of two: the slopes of the power of two below it, then every other slope of the one above. Of 12
    heads: those of 8, then 2^-0.5, 2^-1.5, 2^-2.5 and 2^-3.5, which are every other one of 16.
    """
    # A geometric series for a power of two; other numbers of heads take every other slope of the next.
    below = 2 ** math.floor(math.log2(h))
    # 1/2^(8/h), and each further head the same factor less.
    slopes = [2.0 ** (-8.0 * i / below) for i in range(1, below + 1)]
    between = [2.0 ** (-8.0 * i / (2 * below)) for i in range(1, 2 * below + 1, 2)]
    return np.asarray(slopes + between[: h - below])


def alibi_bias(positions_bt: Int[Array, "b t"], positions_bs: Int[Array, "b s"], h: int) -> Float[Array, "b h t s"]:
    """Returns -m_h |i - j|, which is added to the logits of self-attention after they are divided by sqrt(d_k).

    Press et al. treat only causal models, where |i - j| = i - j. Using the absolute distance in the encoder, and no
    bias in encoder-decoder attention, is our choice.
    """
    # [b,t] and [b,s] -> [b,t,s], and one slope per head: [b,h,t,s].
    distance_bts = jnp.abs(positions_bt[:, :, None] - positions_bs[:, None, :]).astype(jnp.float32)
    slopes_h = jnp.asarray(alibi_slopes(h), jnp.float32)
    return -slopes_h[None, :, None, None] * distance_bts[:, None]


def clipped_distances(
    positions_bt: Int[Array, "b t"], positions_bs: Int[Array, "b s"], max_distance: int
) -> Float[Array, "b t s r"]:
    """Returns the distance of each key after its query, clipped, as a one-hot vector: r is 2 max_distance + 1."""
    after_bts = positions_bs[:, None, :] - positions_bt[:, :, None]
    # Distances -max .. max are rows 0 .. 2 max of the tables.
    clipped_bts = jnp.clip(after_bts, -max_distance, max_distance)
    return jax.nn.one_hot(clipped_bts + max_distance, 2 * max_distance + 1)


def t5_buckets(count: int, causal: bool) -> np.ndarray:
    """Returns the bucket of each distance from -T5_FAR to T5_FAR, that of a key after its query being positive.

    Without `causal` half of the `count` buckets are for keys after their query. Of those for a side, half are for one
    distance each, from 0 on, and the others for ranges that grow in proportion to the distance; the last has no end.

    Of 32, not causal: a key 0 to 7 before its query has a bucket of that number, one 8 to 11 before it has 8, 12 to 15
    has 9, 16 to 22 has 10, and 91 and more has 15; the same after it have 16 more.
    """
    side = count if causal else count // 2
    # Half of a side's buckets for single distances, half for ranges.
    exact = side // 2
    limits = exact * (T5_FAR / exact) ** (np.arange(1, side - exact) / (side - exact))
    distances = np.arange(T5_FAR + 1)
    # Rounded, so that no limit which is a whole number is missed by a rounding error.
    ranges = exact + np.searchsorted(limits.round(6), distances, "right")
    buckets = np.where(distances < exact, distances, ranges)
    # Of keys after the query: none in a causal model, else the second half of the buckets.
    after = np.zeros(T5_FAR, int) if causal else side + buckets[1:]
    return np.concatenate([buckets[::-1], after])
