"""Sparse self-attention, strided (Child et al. 2019, arXiv 1904.10509): the nearest positions, and every r-th."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vaswani.model.masks import MASKED, NO_SEGMENT, Mask
from vaswani.model.mixers.attention import MultiHeadAttention
from vaswani.model.mixers.kv_cache import KeysValues
from vaswani.model.mixers.restricted import Blocks, as_rows, over_whole_rows, reach
from vaswani.model.noise import Noise, dropout


class Columns(NamedTuple):
    """How rows are split into c columns of n positions each, whose distances are multiples of c."""

    c: int
    n: int

    @classmethod
    def of(cls, neighbours: int, length: int) -> "Columns":
        """Returns the columns of rows of `length` positions."""
        return cls(neighbours, -(-length // neighbours))

    def split(self, x_bt: Array, fill: int = 0) -> Array:
        """From [b,t,..] to columns [b,c,n,..]."""
        b, t = x_bt.shape[:2]
        other_axes = ((0, 0),) * (x_bt.ndim - 2)
        x_bt = jnp.pad(x_bt, ((0, 0), (0, self.n * self.c - t), *other_axes), constant_values=fill)
        return x_bt.reshape(b, self.n, self.c, *x_bt.shape[2:]).swapaxes(1, 2)

    def joined(self, x_bcn: Array) -> Array:
        """From columns [b,c,n,..] to [b,t,..], with what was padded at its end."""
        # The inverse of `split`: [b,c,n,..] -> [b,n,c,..] -> [b,t,..].
        x_bnc = x_bcn.swapaxes(1, 2)
        return x_bnc.reshape(len(x_bnc), self.n * self.c, *x_bnc.shape[3:])

    def visible(self, mask: Mask) -> Bool[Array, "b c n m"]:
        """Returns which keys m of its column each query n attends to, except itself, which is among the near ones."""
        # Column c holds the positions c, c + r, c + 2 r, ..; keys are the column's own positions.
        segments_bcn = self.split(mask.queries_bt, NO_SEGMENT)
        same_bcnm = segments_bcn[..., :, None] == segments_bcn[..., None, :]
        place_n = jnp.arange(self.n)
        # Earlier ones of the column, or all but itself.
        if mask.causal:
            other_nm = place_n[:, None] > place_n[None, :]
        else:
            other_nm = place_n[:, None] != place_n[None, :]
        return same_bcnm & other_nm[None, None]


class _Pieces(NamedTuple):
    """How whole rows [b,t,..] are cut into blocks and into columns, and how they are joined.

    In names, p are the blocks of all rows, with queries q and keys s, or the columns of all rows, with queries n and
    keys m; u are the keys of both kinds, those of the block first.
    """

    b: int
    t: int
    blocks: Blocks
    columns: Columns

    def in_blocks(self, x_bt: Array) -> Array:
        """Returns the queries of each block, [p,q,..]."""
        return as_rows(self.blocks.split(x_bt))

    def beside_blocks(self, x_bt: Array) -> Array:
        """Returns the keys that each block sees, [p,s,..]."""
        return as_rows(self.blocks.beside(self.blocks.split(x_bt)))

    def in_columns(self, x_bt: Array) -> Array:
        """Returns the queries of each column, which are its keys, too, [p,n,..]."""
        return as_rows(self.columns.split(x_bt))

    def from_blocks(self, x_pq: Array) -> Array:
        """Returns whole rows, given their blocks."""
        return x_pq.reshape(self.b, self.blocks.n * self.blocks.length, *x_pq.shape[2:])[:, : self.t]

    def from_columns(self, x_pn: Array) -> Array:
        """Returns whole rows, given their columns."""
        return self.columns.joined(x_pn.reshape(self.b, self.columns.c, *x_pn.shape[1:]))[:, : self.t]

    def side_by_side(self, near: Array, far: Array) -> Array:
        """Returns whole rows over all keys, [b,t,..,u], given [p,q,..,s] of blocks and [p,n,..,m] of columns."""
        return jnp.concatenate([self.from_blocks(near), self.from_columns(far)], axis=-1)


class StridedAttention(MultiHeadAttention):
    """Softmax attention to the r = `config.neighbours` nearest positions of the sentence, and to every r-th position.

    The nearest are those of `RestrictedAttention`; the others are at distances that are multiples of r, before the
    position and, without a causal mask, after it. Each position costs r + n / r in place of n: least for r = sqrt(n).
    It is the authors' merged head, one softmax over both kinds; their separate heads are not here.

    Rows are split into blocks for the nearest, and into r columns for the others: no array is [t,t].
    """

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

        A dense mask is that of a search's next tokens, of which the cache holds all that were before.
        """
        if mask.dense_bts is not None:
            # What the cache shows, and of that the near ones and every r-th.
            reached_bts = self._reached(positions_bt, keys_values.positions_bs)
            reached = Mask(dense_bts=mask.dense_bts & reached_bts)
            return super().attend(x_btd, positions_bt, keys_values, reached, noise, table_rh)
        c = self.config
        b, t, _ = x_btd.shape
        blocks = Blocks.of(c.neighbours, t, mask.causal)
        columns = Columns.of(c.neighbours, t)
        k_bhtk, v_bhte, _ = keys_values
        # Heads after positions, so that blocks and columns cut the second axis.
        q_bthk = self.queries(x_btd, positions_bt).swapaxes(1, 2)
        k_bthk = k_bhtk.swapaxes(1, 2)
        v_bthe = v_bhte.swapaxes(1, 2)

        pieces = _Pieces(b, t, blocks, columns)
        # What biases of positions need: of the queries and of both kinds of keys.
        positions_pq = pieces.in_blocks(positions_bt)
        positions_ps = pieces.beside_blocks(positions_bt)
        positions_pn = pieces.in_columns(positions_bt)
        visible_pqs = as_rows(blocks.visible(mask, c.neighbours))
        visible_pnm = as_rows(columns.visible(mask))
        # Near keys: those of the block and of the block beside it, [p,h,q,s].
        scores_phqs = self.scores(
            pieces.in_blocks(q_bthk).swapaxes(1, 2),
            pieces.beside_blocks(k_bthk).swapaxes(1, 2),
            positions_pq,
            positions_ps,
            table_rh,
        )
        # Far keys: those of the same column, [p,h,n,m].
        scores_phnm = self.scores(
            pieces.in_columns(q_bthk).swapaxes(1, 2),
            pieces.in_columns(k_bthk).swapaxes(1, 2),
            positions_pn,
            positions_pn,
            table_rh,
        )

        # One softmax over both kinds of keys takes whole rows.
        scores_bthu = pieces.side_by_side(scores_phqs.swapaxes(1, 2), scores_phnm.swapaxes(1, 2))
        visible_btu = pieces.side_by_side(visible_pqs, visible_pnm)
        # As in `model.attention`, but over near and far keys side by side, u = s + m.
        legal_bhtu = jnp.where(visible_btu[:, None], scores_bthu.swapaxes(1, 2), MASKED)
        weights_bhtu = self.softmax(legal_bhtu)
        kept_bhtu = dropout(weights_bhtu, c.P_drop_attention, noise).astype(x_btd.dtype)

        keys_near = visible_pqs.shape[-1]
        kept_bthu = kept_bhtu.swapaxes(1, 2)
        # The weights part again, each kind to its own values.
        kept_pqhs = pieces.in_blocks(kept_bthu[..., :keys_near])
        kept_pnhm = pieces.in_columns(kept_bthu[..., keys_near:])
        heads_pqhe = jnp.einsum("pqhs,pshe->pqhe", kept_pqhs, pieces.beside_blocks(v_bthe))
        heads_pnhe = jnp.einsum("pnhm,pmhe->pnhe", kept_pnhm, pieces.in_columns(v_bthe))
        # Both are parts of one weighted sum.
        heads_bthe = pieces.from_blocks(heads_pqhe) + pieces.from_columns(heads_pnhe)
        y_btd = self.output(heads_bthe.swapaxes(1, 2))
        return y_btd, _whole(weights_bhtu.swapaxes(1, 2), keys_near, blocks, columns)

    def _reached(self, positions_bt: Int[Array, "b t"], positions_bs: Int[Array, "b s"]) -> Bool[Array, "b t s"]:
        """Returns which keys a query attends to of those that are not after it."""
        r = self.config.neighbours
        distance_bts = positions_bt[:, :, None] - positions_bs[:, None]
        near, _ = reach(r, causal=True)
        return (distance_bts <= near) | (distance_bts % r == 0)


def _whole(
    weights_bthu: Float[Array, "b t h u"], keys_near: int, blocks: Blocks, columns: Columns
) -> Float[Array, "b h t t"]:
    """Returns weights over the keys of the whole row, given those over the near keys and those of the column."""
    t = weights_bthu.shape[1]
    # Near weights, block by block, at their places in the row.
    near_bnqhs = blocks.split(weights_bthu[..., :keys_near])
    near_bhtt = over_whole_rows(near_bnqhs.swapaxes(2, 3), blocks.length)[:, :, :t, :t]
    far_bcnhm = columns.split(weights_bthu[..., keys_near:])
    # A key m of column c stands at place m * r + c of the row.
    own_cd = jnp.eye(columns.c, dtype=weights_bthu.dtype)
    far_bhncmd = jnp.einsum("bcnhm,cd->bhncmd", far_bcnhm, own_cd)
    whole = columns.n * columns.c
    return near_bhtt + far_bhncmd.reshape(*far_bhncmd.shape[:2], whole, whole)[:, :, :t, :t]
