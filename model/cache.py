"""What the decoder remembers from step to step, as plain pytrees in and out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from model.attention import KeysValues


class DecodeCache(NamedTuple):
    """Keys and values of every decoder layer, of the tokens so far and of the source.

    Beams are queries, not batch rows: slot c = step * m + beam of `past` holds what beam `beam` wrote at `step`, and
    beam search reorders the small table of who sees which slot instead of the cache. The source's keys and values
    stand here once a sentence, whatever the number of beams.
    """

    past: tuple[KeysValues, ...]
    source: tuple[KeysValues, ...]
    source_segments_bs: Int[Array, "b s"]

    def grow(self, slots: int) -> "DecodeCache":
        """The same cache with room for `slots` slots; the new ones are zero and must not be visible."""
        more = slots - self.past[0].k_bhsk.shape[2]

        def pad(seen: KeysValues) -> KeysValues:
            return KeysValues(
                jnp.pad(seen.k_bhsk, ((0, 0), (0, 0), (0, more), (0, 0))),
                jnp.pad(seen.v_bhse, ((0, 0), (0, 0), (0, more), (0, 0))),
                jnp.pad(seen.positions_bs, ((0, 0), (0, more))),
            )

        return self._replace(past=tuple(pad(seen) for seen in self.past))


def write(past: KeysValues, new: KeysValues, slot: Int[Array, ""]) -> KeysValues:
    """`past` with the keys, values and positions of `new` from `slot` on."""
    return KeysValues(
        jax.lax.dynamic_update_slice_in_dim(past.k_bhsk, new.k_bhsk, slot, axis=2),
        jax.lax.dynamic_update_slice_in_dim(past.v_bhse, new.v_bhse, slot, axis=2),
        jax.lax.dynamic_update_slice_in_dim(past.positions_bs, new.positions_bs, slot, axis=1),
    )
