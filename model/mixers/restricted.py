"""Restricted self-attention (section 4): every position attends to its r neighbours, at a cost of r and not of n."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vaswani.model.attention import attention
from vaswani.model.masks import NO_SEGMENT, Mask
from vaswani.model.mixers.attention import MultiHeadAttention
from vaswani.model.mixers.kv_cache import KeysValues, KVCache, StoredKeysValues
from vaswani.model.mixers.state import newest
from vaswani.model.noise import Noise, dropout


def reach(neighbours: int, causal: bool) -> tuple[int, int]:
    """Returns how many positions before its own, and how many after, a query attends to.

    With r = 5 neighbours: (4, 0) under a causal mask, else (2, 2). With r = 4: (3, 0), else (2, 2), which is one more
    than r, since two sides cannot share three.
    """
    if causal:
        # The position itself is one of the r.
        return neighbours - 1, 0
    return neighbours // 2, neighbours // 2


def block_length(neighbours: int, length: int, causal: bool) -> int:
    """Returns the length of the blocks that rows of `length` are split into: as far as the neighbourhood reaches."""
    before, _ = reach(neighbours, causal)
    return max(1, min(length, before))


class Window(NamedTuple):
    """A KV cache with room for the newest r tokens of each beam; every further token overwrites the oldest."""

    cache: KVCache

    def add(self, new: KeysValues) -> tuple["Window", KeysValues, Mask]:
        """Returns the cache with one more token of each beam, and what these tokens attend to, with its mask."""
        cache, keys_values, visible = self.cache.add(new)
        room = cache.visible_bmc.shape[2]
        # After the last slot comes the first again, whose token is the oldest.
        return Window(cache._replace(used=cache.used % room)), keys_values, visible

    def begin(self, rows: KeysValues, mask: Mask) -> "Window":
        """Returns the cache with the last r tokens of each row, which every beam begins with.

        Each token takes as many slots as there are beams: all beams see the first of them, and the rest stay hidden.
        The slots of the oldest token are the first to be overwritten.
        """
        b, m, room = self.cache.visible_bmc.shape

        def spread(x_bs: Array) -> Array:
            """From [b,s,..] to the newest in every m-th of the slots, [b,c,..]."""
            return jnp.repeat(newest(x_bs, mask, room // m), m, axis=1)

        past = KeysValues(
            spread(rows.k_bhsk.swapaxes(1, 2)).swapaxes(1, 2),
            spread(rows.v_bhse.swapaxes(1, 2)).swapaxes(1, 2),
            spread(rows.positions_bs),
        )
        first_c = jnp.arange(room) % m == 0
        visible_bc = (spread(mask.keys_bs) != 0) & first_c[None]
        visible_bmc = jnp.broadcast_to(visible_bc[:, None], (b, m, room))
        return Window(KVCache(StoredKeysValues.of(past), visible_bmc, used=jnp.int32(0)))

    def select(self, parents_bm: Int[Array, "b m"]) -> "Window":
        """Returns the cache in which beam i goes on from what was beam `parents_bm[:, i]`."""
        return Window(self.cache.select(parents_bm))

    def grow(self, slots: int) -> "Window":
        """Returns the cache itself, which needs no more room."""
        return self


class Blocks(NamedTuple):
    """How b rows of t positions are split into n blocks each, and how many blocks on either side a block sees.

    In names, p are the b * n blocks of all rows, with queries q and keys s. Each is a row to attention, which does not
    know about blocks.
    """

    b: int
    t: int
    n: int
    length: int
    sides: tuple[int, int]

    @classmethod
    def of(cls, neighbours: int, shape_bt: tuple[int, ...], causal: bool) -> "Blocks":
        """Returns the blocks of rows of this shape."""
        b, t = shape_bt
        block = block_length(neighbours, t, causal)
        sides = (1, 0) if causal else (1, 1)
        return cls(b, t, -(-t // block), block, sides)

    def queries(self, x_bt: Array, fill: int = 0) -> Array:
        """Returns the positions of each block, from [b,t,..] to [p,q,..]."""
        # [b,t,..] is filled up to n * q positions and reshaped: no value is computed.
        other_axes = ((0, 0),) * (x_bt.ndim - 2)
        x_bt = jnp.pad(x_bt, ((0, 0), (0, self.n * self.length - self.t), *other_axes), constant_values=fill)
        return x_bt.reshape(self.b * self.n, self.length, *x_bt.shape[2:])

    def keys(self, x_bt: Array, fill: int = 0) -> Array:
        """Returns the positions that each block sees, its own and its neighbours', from [b,t,..] to [p,s,..]."""
        x_pq = self.queries(x_bt, fill)
        x_bnq = x_pq.reshape(self.b, self.n, *x_pq.shape[1:])
        other_axes = ((0, 0),) * (x_bnq.ndim - 2)
        x_bnq = jnp.pad(x_bnq, ((0, 0), self.sides, *other_axes), constant_values=fill)
        # Shifted copies side by side: the block before, itself and, if not causal, the one after.
        neighbours = [x_bnq[:, i : i + self.n] for i in range(1 + sum(self.sides))]
        x_bns = jnp.concatenate(neighbours, axis=2)
        return x_bns.reshape(self.b * self.n, *x_bns.shape[2:])

    def joined(self, x_pq: Array) -> Array:
        """Returns whole rows without what they were filled up with, from [p,q,..] to [b,t,..]."""
        return x_pq.reshape(self.b, self.n * self.length, *x_pq.shape[2:])[:, : self.t]

    def visible(self, mask: Mask, neighbours: int) -> Bool[Array, "p q s"]:
        """Returns which of its keys each query of a block attends to."""
        # A key counts if it is of the query's sentence and within reach.
        queries_pq = self.queries(mask.queries_bt, NO_SEGMENT)
        keys_ps = self.keys(mask.queries_bt, NO_SEGMENT)
        same_pqs = queries_pq[..., :, None] == keys_ps[..., None, :]
        place_q = jnp.arange(self.length)
        blocks_before, blocks_after = self.sides
        place_s = jnp.arange(-blocks_before * self.length, (1 + blocks_after) * self.length)
        distance_qs = place_q[:, None] - place_s[None, :]
        before, after = reach(neighbours, mask.causal)
        near_qs = (distance_qs <= before) & (distance_qs >= -after)
        return same_pqs & near_qs[None]

    def whole(self, weights_phqs: Float[Array, "p h q s"]) -> Float[Array, "b h t t"]:
        """Returns weights over the keys of the whole row, given those over the keys of the o blocks that a block sees.

        These are the block before it, itself and, without a causal mask, the block after it: -1 .. o - 2 from its own.
        """
        n = self.n
        o = 1 + sum(self.sides)
        number_no = jnp.arange(n)[:, None] + jnp.arange(-1, o - 1)[None, :]  # which block each neighbour is
        own_nop = (number_no[:, :, None] == jnp.arange(n)[None, None, :]).astype(weights_phqs.dtype)
        # Each block of keys is put where it is in the row, by a product with 0 and 1: o -> p.
        h = weights_phqs.shape[1]
        weights_bnhqos = weights_phqs.reshape(self.b, n, h, self.length, o, self.length)
        weights_bhnqps = jnp.einsum("bnhqos,nop->bhnqps", weights_bnhqos, own_nop)
        return weights_bhnqps.reshape(self.b, h, n * self.length, n * self.length)[:, :, : self.t, : self.t]


class RestrictedAttention(MultiHeadAttention):
    """Softmax attention to the r = `config.neighbours` nearest positions of the sentence.

    Under a causal mask they are the position itself and the r - 1 before it; otherwise it and r // 2 on either side,
    which is one more if r is even.

    Rows are split into blocks as long as the neighbourhood reaches. The queries of a block attend to its own keys and
    those of the blocks next to it, of which a mask hides those too far away: no array is [t,t].
    """

    def init_cache(self, rows: int, beams: int, slots: int) -> Window:
        """Returns an empty cache, whose room does not depend on `slots`."""
        room = self.config.neighbours * beams
        return Window(KVCache.empty(self.config, rows, beams, room))

    def attend(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        keys_values: KeysValues,
        mask: Mask,
        noise: Noise | None = None,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b h t s"] | None]:
        """Returns the output and the weights, which cost nothing where they are not used.

        A dense mask is that of a search's next tokens: the cache holds no more than their neighbours.
        """
        if mask.dense_bts is not None:
            return super().attend(x_btd, positions_bt, keys_values, mask, noise, table_rh)
        c = self.config
        blocks = Blocks.of(c.neighbours, positions_bt.shape, mask.causal)
        # Heads after positions, which blocks cut, and then before them again.
        q_phqk = blocks.queries(self.queries(x_btd, positions_bt).swapaxes(1, 2)).swapaxes(1, 2)
        k_phsk = blocks.keys(keys_values.k_bhsk.swapaxes(1, 2)).swapaxes(1, 2)
        v_phse = blocks.keys(keys_values.v_bhse.swapaxes(1, 2)).swapaxes(1, 2)
        positions_pq = blocks.queries(positions_bt)
        positions_ps = blocks.keys(positions_bt)

        def scores(q_phqk: Array, k_phsk: Array) -> Array:
            return self.scores(q_phqk, k_phsk, positions_pq, positions_ps, table_rh)

        def drop(weights_phqs: Array) -> Array:
            # By rows: a row's dropout depends on its number in the batch.
            weights_bnhqs = weights_phqs.reshape(blocks.b, blocks.n, *weights_phqs.shape[1:])
            return dropout(weights_bnhqs, c.P_drop_attention, noise).reshape(weights_phqs.shape)

        visible_pqs = blocks.visible(mask, c.neighbours)
        heads_phqe, weights_phqs = attention(q_phqk, k_phsk, v_phse, visible_pqs, scores, self.softmax, drop)
        heads_bthe = blocks.joined(heads_phqe.swapaxes(1, 2))
        return self.output(heads_bthe.swapaxes(1, 2)), blocks.whole(weights_phqs)
