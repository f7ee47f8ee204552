"""Restricted self-attention (section 4): every position attends to its r neighbours, at a cost of r and not of n."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vaswani.model.attention import attention
from vaswani.model.masks import NO_SEGMENT, Mask
from vaswani.model.mixers.attention import MultiHeadAttention
from vaswani.model.mixers.kv_cache import KeysValues, KVCache, StoredKeysValues
from vaswani.model.mixers.state import newest
from vaswani.model.noise import Noise, dropout


def reach(neighbours: int, causal: bool) -> tuple[int, int]:
    """Returns how many positions before its own, and how many after, a query attends to.

    Of r = 5 neighbours: (4, 0) under a causal mask, else (2, 2). Of r = 4: (3, 0), else (2, 2), one more than r, since
    with r = 2 a side would have none.
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

    def update(self, new: KeysValues, mask: Mask | None) -> tuple["Window", KeysValues, Mask]:
        """Returns what every `AttentionCache` does."""
        if mask is not None:
            # A prompt attends to itself, in blocks; only its last r tokens are remembered.
            return self._begin(new, mask), new, mask
        cache, keys_values, visible = self.cache.update(new, None)
        room = cache.visible_bmc.shape[2]
        # After the last slot comes the first again, whose token is the oldest.
        return Window(cache._replace(used=cache.used % room)), keys_values, visible

    def _begin(self, new: KeysValues, mask: Mask) -> "Window":
        """Returns the cache with the last r tokens of each row, which every beam begins with.

        Each token takes as many slots as there are beams: all beams see the first of them, and the rest stay hidden.
        The slots of the oldest token are the first to be overwritten.
        """
        rows, beams, room = self.cache.visible_bmc.shape

        def spread(x_bs: Array) -> Array:
            """From [b,s,..] to the newest in every `beams`-th of the slots, [b,c,..]."""
            return jnp.repeat(newest(x_bs, mask, room // beams), beams, axis=1)

        past = KeysValues(
            spread(new.k_bhsk.swapaxes(1, 2)).swapaxes(1, 2),
            spread(new.v_bhse.swapaxes(1, 2)).swapaxes(1, 2),
            spread(new.positions_bs),
        )
        first_c = jnp.arange(room) % beams == 0
        visible_bc = (spread(mask.keys_bs) != 0) & first_c[None]
        visible_bmc = jnp.broadcast_to(visible_bc[:, None], (rows, beams, room))
        return Window(KVCache(StoredKeysValues.of(past), visible_bmc, used=jnp.int32(0)))

    def select(self, parents_bm: Int[Array, "b m"]) -> "Window":
        """Returns the cache in which beam i goes on from what was beam `parents_bm[:, i]`."""
        return Window(self.cache.select(parents_bm))

    def grow(self, slots: int) -> "Window":
        """Returns the cache itself, which needs no more room."""
        return self


class Blocks(NamedTuple):
    """How rows are split into n blocks, and how many blocks on either side a block sees."""

    n: int
    length: int
    sides: tuple[int, int]

    @classmethod
    def of(cls, neighbours: int, length: int, causal: bool) -> "Blocks":
        """Returns the blocks of rows of `length` positions."""
        block = block_length(neighbours, length, causal)
        sides = (1, 0) if causal else (1, 1)
        return cls(-(-length // block), block, sides)

    def split(self, x_bt: Array, fill: int = 0) -> Array:
        """From [b,t,..] to blocks [b,n,q,..]."""
        # [b,t,..] is filled up to n * q positions and reshaped: no value is computed.
        b, t = x_bt.shape[:2]
        other_axes = ((0, 0),) * (x_bt.ndim - 2)
        x_bt = jnp.pad(x_bt, ((0, 0), (0, self.n * self.length - t), *other_axes), constant_values=fill)
        return x_bt.reshape(b, self.n, self.length, *x_bt.shape[2:])

    def beside(self, x_bnq: Array, fill: int = 0) -> Array:
        """From blocks [b,n,q,..] to each with its neighbours, [b,n,s,..]."""
        other_axes = ((0, 0),) * (x_bnq.ndim - 2)
        x_bnq = jnp.pad(x_bnq, ((0, 0), self.sides, *other_axes), constant_values=fill)
        # Shifted copies side by side: the block before, itself and, if not causal, the one after.
        neighbours = [x_bnq[:, i : i + self.n] for i in range(1 + sum(self.sides))]
        return jnp.concatenate(neighbours, axis=2)

    def visible(self, mask: Mask, neighbours: int) -> Array:
        """Returns which of its keys s each query q of a block attends to, [b,n,q,s]."""
        segments_bnq = self.split(mask.queries_bt, NO_SEGMENT)
        segments_bns = self.beside(segments_bnq, NO_SEGMENT)
        # A key counts if it is of the query's sentence and within reach.
        same_bnqs = segments_bnq[..., :, None] == segments_bns[..., None, :]
        place_q = jnp.arange(self.length)
        blocks_before, blocks_after = self.sides
        place_s = jnp.arange(-blocks_before * self.length, (1 + blocks_after) * self.length)
        distance_qs = place_q[:, None] - place_s[None, :]
        before, after = reach(neighbours, mask.causal)
        near_qs = (distance_qs <= before) & (distance_qs >= -after)
        return same_bnqs & near_qs[None, None]


class RestrictedAttention(MultiHeadAttention):
    """Softmax attention to the r = `config.neighbours` nearest positions of the sentence.

    Under a causal mask they are the position itself and the r - 1 before it; otherwise it and r // 2 on either side, so
    of an even r one more.

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
        b, t, _ = x_btd.shape
        blocks = Blocks.of(c.neighbours, t, mask.causal)
        n = blocks.n
        k_bhtk, v_bhte, _ = keys_values
        q_bhtk = self.queries(x_btd, positions_bt)
        # Queries in blocks of q, keys and values in blocks of s = 2 q or 3 q.
        q_bnqhk = blocks.split(q_bhtk.swapaxes(1, 2))
        k_bnshk = blocks.beside(blocks.split(k_bhtk.swapaxes(1, 2)))
        v_bnshe = blocks.beside(blocks.split(v_bhte.swapaxes(1, 2)))
        positions_bnq = blocks.split(positions_bt)
        positions_bns = blocks.beside(positions_bnq)

        # Now every block is a row of its own, and equation 1 does not know about blocks.
        # In names, p are the b * n blocks of all rows.
        q_phqk = as_rows(q_bnqhk).swapaxes(1, 2)
        k_phsk = as_rows(k_bnshk).swapaxes(1, 2)
        v_phse = as_rows(v_bnshe).swapaxes(1, 2)
        positions_pq = as_rows(positions_bnq)
        positions_ps = as_rows(positions_bns)
        visible_pqs = as_rows(blocks.visible(mask, c.neighbours))

        def scores(q_phqk: Array, k_phsk: Array) -> Array:
            return self.scores(q_phqk, k_phsk, positions_pq, positions_ps, table_rh)

        def drop(weights_phqs: Array) -> Array:
            # By rows again: a row's dropout depends on its number in the batch.
            weights_bnhqs = weights_phqs.reshape(b, n, *weights_phqs.shape[1:])
            return as_rows(dropout(weights_bnhqs, c.P_drop_attention, noise))

        heads_phqe, weights_phqs = attention(q_phqk, k_phsk, v_phse, visible_pqs, scores, self.softmax, drop)
        # Back to rows, without what they were filled up with: [p,h,q,e] -> [b,t,h,e].
        heads_pqhe = heads_phqe.swapaxes(1, 2)
        heads_bthe = heads_pqhe.reshape(b, n * blocks.length, *heads_pqhe.shape[2:])[:, :t]
        weights_bnhqs = weights_phqs.reshape(b, n, *weights_phqs.shape[1:])
        weights_bhtt = over_whole_rows(weights_bnhqs, blocks.length)[:, :, :t, :t]
        return self.output(heads_bthe.swapaxes(1, 2)), weights_bhtt


def as_rows(x_bn: Array) -> Array:
    """Returns blocks or columns in the place of rows, from [b,n,..] to [b n,..]."""
    b, n = x_bn.shape[:2]
    return x_bn.reshape(b * n, *x_bn.shape[2:])


def over_whole_rows(weights_bnhqs: Float[Array, "b n h q s"], block: int) -> Float[Array, "b h t t"]:
    """Returns weights over the keys of the whole row, given those over the keys of the o blocks that a block sees.

    These are the block before it, itself and, without a causal mask, the block after it: -1 .. o - 2 from its own.
    """
    b, n, h, _, s = weights_bnhqs.shape
    o = s // block
    number_no = jnp.arange(n)[:, None] + jnp.arange(-1, o - 1)[None, :]  # which block each neighbour is
    own_nop = (number_no[:, :, None] == jnp.arange(n)[None, None, :]).astype(weights_bnhqs.dtype)
    # Each block of keys is put where it is in the row, by a product with 0 and 1: o -> p.
    weights_bnhqos = weights_bnhqs.reshape(b, n, h, block, o, block)
    weights_bhnqps = jnp.einsum("bnhqos,nop->bhnqps", weights_bnhqos, own_nop)
    return weights_bhnqps.reshape(b, h, n * block, n * block)
