"""Dropout (Srivastava et al. 2014; section 5.4 of the paper) with a choice of random bits.

"threefry" draws the mask with `jax.random` and is the reference. "hash" computes it from each element's own index, a
handful of integer operations that fuse with their neighbours (`lab.benchmarks.training_step` compares the two). It is a
statistical generator, not a cryptographic one; tests/model/test_dropout.py tests its rate and its independence across
seeds, layers, positions and steps.
"""

import math

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from vaswani.configs.rules import CHOICES
from vaswani.model.config import CommonConfig
from vaswani.model.types import Leaf

WORD = 2**32  # values of a uint32


class Noise(struct.PyTreeNode):
    """The randomness of one training pass; None stands for no randomness, as in evaluation.

    `bits` are "threefry" or "hash". `rows_b` numbers the rows of this microbatch within the whole batch, so that
    splitting a batch changes no mask. With "hash" that holds up to 2^32 elements in the whole batch; beyond, some of
    its rows have the same mask as others.
    """

    key: Leaf
    rows_b: Leaf
    bits: str = struct.field(pytree_node=False, default="threefry")

    @classmethod
    def of(cls, config: CommonConfig, key: PRNGKeyArray, rows_b: Int[Array, " b"]) -> "Noise":
        """Returns the noise of a model of this config."""
        return cls(key, rows_b, config.dropout_bits)


def fold(noise: Noise | None, site: Int[Array, ""] | int) -> Noise | None:
    """Returns the noise for one place in the model (a layer, a sub-layer), independent of that of other places."""
    if noise is None:
        return None
    return noise.replace(key=jax.random.fold_in(noise.key, site))


def dropout(x: Float[Array, "b *shape"], rate: float, noise: Noise | None) -> Float[Array, "b *shape"]:
    """Zeroes each element with probability `rate` and divides the rest by 1 - rate, so the expected value is x.

    Args:
      x: any floating-point array; the result has its shape and dtype.
      rate: a static Python number in [0, 1); 0 returns x itself.
      noise: that of the pass, `fold`ed for this place; None returns x itself. Whether an element is dropped depends
        only on the key, its row's number and its place in the row: not on other rows, nor on how x is sharded.

    Raises:
      ValueError: rate outside [0, 1), or the noise has unknown bits.
    """
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"dropout rate must be in [0, 1), got {rate}")
    if noise is not None and noise.bits not in CHOICES["model.dropout_bits"]:
        raise ValueError(f"dropout bits must be one of {', '.join(CHOICES['model.dropout_bits'])}, got {noise.bits!r}")
    if rate == 0.0 or noise is None:
        return x
    if noise.bits == "threefry":
        # Each row has a key of its own, by its number in the batch.
        fold_in_rows = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
        key_b = fold_in_rows(noise.key, noise.rows_b)

        def keep_in_row(key: PRNGKeyArray) -> Bool[Array, "*shape"]:
            return jax.random.bernoulli(key, 1.0 - rate, x.shape[1:])

        keep = jax.vmap(keep_in_row)(key_b)
    else:
        # Two words drawn from the site's key; all else is arithmetic on each element's own index.
        keep = keep_mask(jax.random.bits(noise.key, (2,), jnp.uint32), x.shape, rate, noise.rows_b)
    # In float32: bfloat16 would round 1 - rate, by up to 0.2 %, the same way everywhere.
    scaled = (x.astype(jnp.float32) / (1.0 - rate)).astype(x.dtype)
    return jnp.where(keep, scaled, jnp.zeros((), x.dtype))


def keep_mask(
    seed: UInt32[Array, "2"], shape: tuple[int, ...], rate: float, rows_b: Int[Array, " b"]
) -> Bool[Array, "..."]:
    """Returns a boolean mask that is True with probability 1 - rate, a function of (seed, element index) alone.

    The index is the element's in the whole batch, of which this array holds the rows `rows_b`.

    It passes through three multiply-and-shift rounds (constants of "triple32" in Wellons 2018, "Prospecting for hash
    functions"). The first seed word offsets the index; the second enters after the first round, because masks that
    differed only by an offset would be shifted copies of each other. It is joined by the index's high word, if there is
    one, times 2^32 over the golden ratio (Knuth's multiplicative hashing).

    Raises:
      ValueError: one axis alone is longer than 2^32.
    """
    # The row-major index of every element, in one or two words.
    low, high = index_words(shape, rows_b)
    second_word = seed[1]
    if high is not None:
        second_word = second_word + high * jnp.uint32(0x9E3779B9)
    # Multiply and shift, so that neighbouring indices get unrelated words.
    n = low + seed[0]
    n = (n ^ (n >> 17)) * jnp.uint32(0xED5AD4BB)
    n = n ^ second_word
    n = (n ^ (n >> 11)) * jnp.uint32(0xAC4C1B51)
    # The rounds are bijections of 32 bits, so comparing with a 32-bit threshold gives the rate to within 2^-33. A final
    # shift would only mix the low bits, which hardly affect that comparison.
    n = (n ^ (n >> 15)) * jnp.uint32(0x31848BAB)
    return n >= jnp.uint32(min(round(rate * WORD), WORD - 1))


def index_words(
    shape: tuple[int, ...], rows_b: Int[Array, " b"]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."] | None]:
    """Returns every element's row-major index as (low, high) uint32 words; high is None if one word is enough.

    Otherwise low counts over the trailing axes that fit into it and high over the leading ones: of the shape
    (70_000, 70_000), with more than 2^32 elements, low is the column and high the row. The first axis is numbered by
    `rows_b`. Each axis is one iota, so each device computes only its own shard.

    Raises:
      ValueError: one axis alone is longer than 2^32.
    """
    if max(shape, default=1) > WORD:
        raise ValueError(f"hash dropout cannot index an axis longer than 2^32, got shape {shape}")
    # The leading axes go into the high word, as few as possible.
    split = 0
    while math.prod(shape[split:]) > WORD:
        split += 1
    low = jnp.zeros(shape, jnp.uint32)
    high = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        if axis == 0:
            other_axes = (1,) * (len(shape) - 1)
            iota = jnp.broadcast_to(rows_b.astype(jnp.uint32).reshape(-1, *other_axes), shape)
        else:
            iota = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        if axis >= split:
            low = low + iota * jnp.uint32(math.prod(shape[axis + 1 :]) % WORD)
        else:
            high = high + iota * jnp.uint32(math.prod(shape[axis + 1 : split]) % WORD)
    return low, high if split else None
