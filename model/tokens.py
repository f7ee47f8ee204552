"""A model's input: token ids, the sentence that each belongs to, and its position there."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from base.ids import PAD


class Tokens(NamedTuple):
    """Rows of token ids. A row holds one sentence and padding, or several sentences packed one after the other.

    Segments are 0 for padding and 1, 2, .. for the sentences of the row; positions count from 0 in each sentence.
    """

    # Any, because it also holds NumPy arrays, or shapes in place of arrays.
    ids_bt: Any  # int32
    segments_bt: Any
    positions_bt: Any

    @classmethod
    def of(cls, ids_bt: Int[Array, "b t"]) -> "Tokens":
        """Returns rows of one sentence each, with positions counted along the row."""
        segments_bt = (ids_bt != PAD).astype(jnp.int32)
        positions_t = jnp.arange(ids_bt.shape[1], dtype=jnp.int32)
        return cls(ids_bt, segments_bt, jnp.broadcast_to(positions_t[None], ids_bt.shape))
