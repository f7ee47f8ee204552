"""Which queries may attend to which keys; True = may attend."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int

NO_SEGMENT = -1  # of positions outside every row: no sentence and no padding has it
# Of a masked logit. Finite, so that a query with no key to attend to gets uniform weights rather than NaN.
MASKED = -1e9


class Mask(struct.PyTreeNode):
    """Queries attend to keys of their own sentence; with `causal`, to none after themselves.

    Sentences are distinguished by segments (see `base.tokens`). Padding attends to padding, so in self-attention every
    query has a key; in encoder-decoder attention, padding over a source without padding has none (see `MASKED`).
    A causal mask hides none of the first `prefix` keys of a row.
    Kernels take the segments and never materialise the mask. The einsum takes `dense_bts`, which `with_dense` adds.
    Cached decoding has `dense_bts` alone: segments cannot tell which keys are a beam's own.
    """

    # Any, because jax also builds this tree with tracers, shapes or shardings in place of arrays.
    queries_bt: Any = None  # int32 segments
    keys_bs: Any = None  # int32 segments
    causal: bool = struct.field(pytree_node=False, default=False)  # section 3.2.3
    prefix: int = struct.field(pytree_node=False, default=0)
    dense_bts: Any = None  # bool

    def with_dense(self) -> "Mask":
        """Returns the mask with `dense_bts`, which all layers of a stack share."""
        return self.replace(dense_bts=self.dense())

    def dense(self) -> Bool[Array, "b t s"]:
        """Returns the dense mask."""
        mask_bts = self.queries_bt[:, :, None] == self.keys_bs[:, None, :]
        if self.causal:
            t = self.queries_bt.shape[1]
            order_tt = jnp.tril(jnp.ones((t, t), bool))
            if self.prefix:
                order_tt = order_tt | (jnp.arange(t) < self.prefix)[None]
            mask_bts = mask_bts & order_tt[None]
        return mask_bts

    def dense_from(self, first: Int[Array, ""], count: int) -> Bool[Array, "b t s"]:
        """Returns the dense mask of `count` queries, from query number `first` on; without a prefix."""
        queries_bt = jax.lax.dynamic_slice_in_dim(self.queries_bt, first, count, axis=1)
        mask_bts = queries_bt[:, :, None] == self.keys_bs[:, None, :]
        if self.causal:
            order_ts = jnp.arange(self.keys_bs.shape[1])[None] <= first + jnp.arange(count)[:, None]
            mask_bts = mask_bts & order_ts[None]
        return mask_bts
