"""Who may attend to whom; True = may attend.

A row may hold one sentence and padding, or several sentences packed one after the other. Both are told by segments:
0 for padding, 1, 2, .. for the sentences of the row.
"""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int


def same_segment(segments_bt: Int[Array, "b t"], segments_bs: Int[Array, "b s"]) -> Bool[Array, "b t s"]:
    """Queries see the keys of their own sentence. Padding sees padding, so that its rows are never empty."""
    return segments_bt[:, :, None] == segments_bs[:, None, :]


def causal(segments_bt: Int[Array, "b t"]) -> Bool[Array, "b t t"]:
    """Queries see their own sentence up to and including themselves (section 3.2.3)."""
    t = segments_bt.shape[1]
    return same_segment(segments_bt, segments_bt) & jnp.tril(jnp.ones((t, t), bool))[None]


class Segments(struct.PyTreeNode):
    """`same_segment` or `causal`, not yet worked out: kernels take this and never hold the table [b,t,s]."""

    # Any, because jax also builds this tree with tracers, shapes or shardings in the place of arrays.
    queries_bt: Any  # int32
    keys_bs: Any  # int32
    causal: bool = struct.field(pytree_node=False, default=False)

    def table(self) -> Bool[Array, "b t s"]:
        """True = may attend."""
        return causal(self.queries_bt) if self.causal else same_segment(self.queries_bt, self.keys_bs)
