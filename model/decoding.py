"""What decoding asks of a model besides logits: how long an output may be, and beams that continue other beams."""

from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Int

from vaswani.ids import PAD


@runtime_checkable
class Cache(Protocol):
    """What a model or a mixer remembers of the tokens so far, for m beams of each sentence; a pytree."""

    def select(self, parents_bm: Int[Array, "b m"]) -> "Cache":
        """Returns the cache in which beam i goes on from what was beam `parents_bm[:, i]`."""

    def grow(self, slots: int) -> "Cache":
        """Returns the cache padded to `slots` slots; itself, if its size does not depend on them."""


def translation_limits(
    source_bs: Int[Array, "b s"], extra_length: int, limit: int | None
) -> tuple[Int[Array, " b"], int]:
    """Returns the most output tokens, EOS included, for each sentence, and for any sentence in a row this long.

    `limit` is the model's longest row, if any (`ModelConfig.limit`).

    Raises:
      ValueError: `extra_length` leaves no room for even one token.
    """
    width = source_bs.shape[1]
    steps = width + extra_length
    if limit is not None:
        steps = min(steps, limit)
    if steps < 1:
        raise ValueError(f"extra_length is {extra_length}: no output fits a source row of {width}")
    lengths_b = jnp.sum(source_bs != PAD, axis=1)
    return jnp.clip(lengths_b + extra_length, 1, steps), steps


def take_beams(x_bm: Array, index_bk: Int[Array, "b k"]) -> Array:
    """Returns `x[b, index[b, k]]`, with any further axes."""
    further_axes = (1,) * (x_bm.ndim - 2)
    return jnp.take_along_axis(x_bm, index_bk.reshape(index_bk.shape + further_axes), axis=1)
