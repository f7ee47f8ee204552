"""Which queries may attend to which keys; True = may attend."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int

from vaswani.model.types import Leaf

NO_SEGMENT = -1  # of positions outside every row: no sentence and no padding has it
# Of a masked logit. Finite, so that a query with no key to attend to gets uniform weights rather than NaN.
MASKED = -1e9


class Mask(struct.PyTreeNode):
    """Queries attend to keys of their own sentence; with `causal`, to none after themselves.

    Sentences are distinguished by segments (see `vaswani.tokens`). Padding attends to padding, so in self-attention
    every query has a key; in encoder-decoder attention, padding over a source without padding has none (see `MASKED`).
    A causal mask hides none of the first `prefix` keys of a row.
    A kernel, if `Stack` has chosen one, takes the segments and never materialises the mask. The einsum takes
    `dense_bts`, which `with_dense` adds.
    Cached decoding has `dense_bts` alone: segments cannot tell which keys are a beam's own.
    """

    queries_bt: Any = None  # int32 segments, a `Leaf`; None beside a dense mask of cached decoding
    keys_bs: Any = None
    causal: bool = struct.field(pytree_node=False, default=False)  # section 3.2.3
    prefix: int = struct.field(pytree_node=False, default=0)
    dense_bts: Leaf | None = None  # bool
    kernel: str | None = struct.field(pytree_node=False, default=None)  # of `model.mixers.kernels`; None is the einsum

    def with_dense(self) -> "Mask":
        """Returns the mask with `dense_bts`, which all layers of a stack share."""
        return self.replace(dense_bts=self.dense())

    def dense(self) -> Bool[Array, "b t s"]:
        """Returns the dense mask."""
        return self._dense(self.queries_bt, jnp.arange(self.queries_bt.shape[1]))

    def dense_from(self, first: Int[Array, ""], count: int) -> Bool[Array, "b t s"]:
        """Returns the dense mask of `count` queries, from query number `first` on."""
        queries_bt = jax.lax.dynamic_slice_in_dim(self.queries_bt, first, count, axis=1)
        return self._dense(queries_bt, first + jnp.arange(count))

    def _dense(self, queries_bt: Int[Array, "b t"], place_t: Int[Array, " t"]) -> Bool[Array, "b t s"]:
        """Returns the dense mask of queries, given their segments and their places in the row."""
        # Pairs of one sentence: [b,t] and [b,s] -> [b,t,s].
        mask_bts = queries_bt[:, :, None] == self.keys_bs[:, None, :]
        if self.causal:
            place_s = jnp.arange(self.keys_bs.shape[1])
            # "We need to prevent leftward information flow in the decoder": a query sees the lower triangle.
            visible_ts = place_s[None] <= place_t[:, None]
            if self.prefix:
                # But a prefix is visible to all, as an encoder's input is.
                visible_ts = visible_ts | (place_s < self.prefix)[None]
            mask_bts = mask_bts & visible_ts[None]
        return mask_bts
