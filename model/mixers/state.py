"""The cache of mixers whose memory of a sentence has a fixed size."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from vaswani.model.decoding import take_beams
from vaswani.model.masks import Mask


class BeamState(NamedTuple):
    """What a mixer remembers of each beam: arrays [b,m,..], of the same size however many tokens there were."""

    arrays: tuple[Array, ...]

    def select(self, parents_bm: Int[Array, "b m"]) -> "BeamState":
        """Returns the state in which beam i goes on from what was beam `parents_bm[:, i]`."""
        return BeamState(tuple(take_beams(x_bm, parents_bm) for x_bm in self.arrays))

    def grow(self, slots: int) -> "BeamState":
        """Returns the state itself, which needs no more room."""
        return self

    def begin(self, *arrays: Array) -> "BeamState":
        """Returns the state in which every beam of a row remembers the same, arrays [b,..]."""
        # [b,..] -> [b,m,..]: the beams of a row do not differ before their first token.
        beams = self.arrays[0].shape[1]

        def every_beam(x_b: Array) -> Array:
            return jnp.broadcast_to(x_b[:, None], (len(x_b), beams, *x_b.shape[1:]))

        return BeamState(tuple(every_beam(x_b) for x_b in arrays))


def newest(x_bt: Array, mask: Mask, count: int) -> Array:
    """Returns x at the last `count` tokens of each row, [b,count,..]; zeros before the first.

    A row is one sentence, then padding.
    """
    other_axes = ((0, 0),) * (x_bt.ndim - 2)
    # Rows shorter than `count` get zeros in front.
    padded_bt = jnp.pad(x_bt, ((0, 0), (count, 0), *other_axes))
    lengths_b = jnp.sum(mask.keys_bs != 0, axis=1)
    places_bc = lengths_b[:, None] + jnp.arange(count)[None]  # the padding before a row moves it by `count`
    # A window of `count` ending at each row's last token: [b,t,..] -> [b,count,..].
    rows_b1 = jnp.arange(len(x_bt))[:, None]
    return padded_bt[rows_b1, places_bc]
