"""Keys and values: of whole rows, and as a search stores them, one token of every beam after another (the KV cache)."""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vaswani.model.config import ModelConfig
from vaswani.model.decoding import Cache
from vaswani.model.masks import Mask


class KeysValues(NamedTuple):
    """The keys and values of every head, and their positions in the sentence."""

    k_bhsk: Float[Array, "b h s k"]
    v_bhse: Float[Array, "b h s e"]
    positions_bs: Int[Array, "b s"]


class AttentionCache(Cache, Protocol):
    """What attention remembers during a search."""

    def begin(self, rows: KeysValues, mask: Mask) -> "AttentionCache":
        """Returns the cache with whole rows, which every beam begins with."""

    def add(self, new: KeysValues) -> tuple["AttentionCache", KeysValues, Mask]:
        """Returns the cache with one more token of each beam, and what these tokens attend to, with its mask."""


class StoredKeysValues(NamedTuple):
    """Keys and values for a search, which multiplies them with few queries at a time.

    Keys have their slots last: the product that reads them otherwise takes three times as long on a CPU.
    """

    k_bhkc: Float[Array, "b h k c"]
    v_bhce: Float[Array, "b h c e"]
    positions_bc: Int[Array, "b c"]

    @classmethod
    def of(cls, new: KeysValues) -> "StoredKeysValues":
        """Returns the keys and values as they are stored."""
        return cls(new.k_bhsk.swapaxes(2, 3), new.v_bhse, new.positions_bs)

    def keys_values(self) -> KeysValues:
        """Returns them as attention takes them."""
        return KeysValues(self.k_bhkc.swapaxes(2, 3), self.v_bhce, self.positions_bc)


class KVCache(NamedTuple):
    """The KV cache: keys and values of the tokens so far, for m beams per sentence.

    Beams are queries, not batch rows: slot step * m + beam, counted from the end of the prompt if there was one, holds
    what beam `beam` wrote at `step`, and the mask `visible_bmc` marks the slots of a beam's ancestors. Selecting beams
    permutes this small mask; keys and values do not move.
    """

    past: StoredKeysValues
    visible_bmc: Bool[Array, "b m c"]
    used: Int[Array, ""]  # slots

    @classmethod
    def empty(cls, c: ModelConfig, rows: int, beams: int, slots: int) -> "KVCache":
        """Returns a cache of `slots` slots, of which none is used or visible."""
        past = StoredKeysValues(
            jnp.zeros((rows, c.h, c.d_k, slots), c.dtype),
            jnp.zeros((rows, c.h, slots, c.d_v), c.dtype),
            jnp.zeros((rows, slots), jnp.int32),
        )
        visible_bmc = jnp.zeros((rows, beams, slots), bool)
        return cls(past, visible_bmc, used=jnp.int32(0))

    def begin(self, rows: KeysValues, mask: Mask) -> "KVCache":
        """Returns the cache with whole rows, which every beam begins with."""
        b, m, _ = self.visible_bmc.shape
        # t slots, which every beam sees, but for padding: [b,t] -> [b,m,t].
        real_bs = mask.keys_bs != 0
        return self._write(rows, jnp.broadcast_to(real_bs[:, None], (b, m, real_bs.shape[1])))

    def add(self, new: KeysValues) -> tuple["KVCache", KeysValues, Mask]:
        """Returns the cache with one more token of each beam, and what these tokens attend to, with its mask."""
        b, m, _ = self.visible_bmc.shape
        # A beam's new token is visible to that beam only.
        cache = self._write(new, jnp.broadcast_to(jnp.eye(m, dtype=bool), (b, m, m)))
        return cache, cache.past.keys_values(), Mask(dense_bts=cache.visible_bmc)

    def _write(self, new: KeysValues, visible_bms: Bool[Array, "b m s"]) -> "KVCache":
        # A slice of each array is replaced, which XLA does in place in the loop of a search.
        write = jax.lax.dynamic_update_slice_in_dim
        stored = StoredKeysValues.of(new)
        past = StoredKeysValues(
            write(self.past.k_bhkc, stored.k_bhkc, self.used, axis=3),
            write(self.past.v_bhce, stored.v_bhce, self.used, axis=2),
            write(self.past.positions_bc, stored.positions_bc, self.used, axis=1),
        )
        # Which beam sees the new slots; all others keep what they saw.
        visible_bmc = write(self.visible_bmc, visible_bms, self.used, axis=2)
        return KVCache(past, visible_bmc, self.used + visible_bms.shape[2])

    def select(self, parents_bm: Int[Array, "b m"]) -> "KVCache":
        """Returns the cache in which beam i continues what was beam `parents_bm[:, i]`."""
        # Keys and values stay where they are; a beam only takes over what its parent could see.
        return self._replace(visible_bmc=jnp.take_along_axis(self.visible_bmc, parents_bm[..., None], axis=1))

    def grow(self, slots: int) -> "KVCache":
        """Returns the cache padded to `slots` slots."""
        # New slots are at the end, and nobody sees them yet.
        more = slots - self.visible_bmc.shape[2]
        past = StoredKeysValues(
            jnp.pad(self.past.k_bhkc, ((0, 0), (0, 0), (0, 0), (0, more))),
            jnp.pad(self.past.v_bhce, ((0, 0), (0, 0), (0, more), (0, 0))),
            jnp.pad(self.past.positions_bc, ((0, 0), (0, more))),
        )
        visible_bmc = jnp.pad(self.visible_bmc, ((0, 0), (0, 0), (0, more)))
        return KVCache(past, visible_bmc, self.used)
