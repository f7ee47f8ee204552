"""Sparse self-attention, strided (Child et al. 2019, arXiv 1904.10509): the nearest positions, and every r-th."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vaswani.model.masks import MASKED, NO_SEGMENT, Mask
from vaswani.model.mixers.attention import MultiHeadAttention
from vaswani.model.mixers.kv_cache import KeysValues
from vaswani.model.mixers.restricted import Blocks, reach
from vaswani.model.noise import Noise, dropout


class Columns(NamedTuple):
    """How b rows of t positions are split into c columns of n positions each, whose distances are multiples of c.

    In names, p are the b * c columns of all rows, with queries n and keys m.
    """

    b: int
    t: int
    c: int
    n: int

    @classmethod
    def of(cls, neighbours: int, shape_bt: tuple[int, ...]) -> "Columns":
        """Returns the columns of rows of this shape."""
        b, t = shape_bt
        return cls(b, t, neighbours, -(-t // neighbours))

    def split(self, x_bt: Array, fill: int = 0) -> Array:
        """Returns the positions of each column, from [b,t,..] to [p,n,..]."""
        other_axes = ((0, 0),) * (x_bt.ndim - 2)
        x_bt = jnp.pad(x_bt, ((0, 0), (0, self.n * self.c - self.t), *other_axes), constant_values=fill)
        x_bcn = x_bt.reshape(self.b, self.n, self.c, *x_bt.shape[2:]).swapaxes(1, 2)
        return x_bcn.reshape(self.b * self.c, *x_bcn.shape[2:])

    def joined(self, x_pn: Array) -> Array:
        """Returns whole rows, from [p,n,..] to [b,t,..]: the inverse of `split`."""
        x_bnc = x_pn.reshape(self.b, self.c, *x_pn.shape[1:]).swapaxes(1, 2)
        return x_bnc.reshape(self.b, self.n * self.c, *x_bnc.shape[3:])[:, : self.t]

    def visible(self, mask: Mask) -> Bool[Array, "p n m"]:
        """Returns which keys of its column each query attends to, except itself, which is among the near ones."""
        # Column c holds the positions c, c + r, c + 2 r, ..; keys are the column's own positions.
        segments_pn = self.split(mask.queries_bt, NO_SEGMENT)
        same_pnm = segments_pn[..., :, None] == segments_pn[..., None, :]
        place_n = jnp.arange(self.n)
        # Earlier ones of the column, or all but itself.
        if mask.causal:
            other_nm = place_n[:, None] > place_n[None, :]
        else:
            other_nm = place_n[:, None] != place_n[None, :]
        return same_pnm & other_nm[None]

    def whole(self, weights_phnm: Float[Array, "p h n m"]) -> Float[Array, "b h t t"]:
        """Returns weights over the keys of the whole row, given those over the keys of a column."""
        h = weights_phnm.shape[1]
        weights_bchnm = weights_phnm.reshape(self.b, self.c, h, self.n, self.n)
        # A query n or a key m of column c stands at place n * r + c, or m * r + c, of the row.
        own_cd = jnp.eye(self.c, dtype=weights_phnm.dtype)
        weights_bhncmd = jnp.einsum("bchnm,cd->bhncmd", weights_bchnm, own_cd)
        return weights_bhncmd.reshape(self.b, h, self.n * self.c, self.n * self.c)[:, :, : self.t, : self.t]


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
        blocks = Blocks.of(c.neighbours, positions_bt.shape, mask.causal)
        columns = Columns.of(c.neighbours, positions_bt.shape)
        # Heads after positions, so that blocks and columns cut the second axis.
        q_bthk = self.queries(x_btd, positions_bt).swapaxes(1, 2)
        k_bthk = keys_values.k_bhsk.swapaxes(1, 2)
        v_bthe = keys_values.v_bhse.swapaxes(1, 2)
        # Near keys: those of the block and of the block beside it, [p,h,q,s].
        near_phqs = self.scores(
            blocks.queries(q_bthk).swapaxes(1, 2),
            blocks.keys(k_bthk).swapaxes(1, 2),
            blocks.queries(positions_bt),
            blocks.keys(positions_bt),
            table_rh,
        )
        # Far keys: those of the same column, [p,h,n,m].
        positions_pn = columns.split(positions_bt)
        far_phnm = self.scores(
            columns.split(q_bthk).swapaxes(1, 2),
            columns.split(k_bthk).swapaxes(1, 2),
            positions_pn,
            positions_pn,
            table_rh,
        )

        # One softmax over both kinds of keys takes whole rows, the near keys and the far ones side by side, u = s + m.
        def side_by_side(near_pq: Array, far_pn: Array) -> Array:
            return jnp.concatenate([blocks.joined(near_pq), columns.joined(far_pn)], axis=-1)

        scores_bthu = side_by_side(near_phqs.swapaxes(1, 2), far_phnm.swapaxes(1, 2))
        visible_btu = side_by_side(blocks.visible(mask, c.neighbours), columns.visible(mask))
        # As in `model.attention`.
        legal_bhtu = jnp.where(visible_btu[:, None], scores_bthu.swapaxes(1, 2), MASKED)
        weights_bhtu = self.softmax(legal_bhtu)
        kept_bhtu = dropout(weights_bhtu, c.P_drop_attention, noise).astype(x_btd.dtype)

        # The weights part again, each kind to its own values.
        def parted(weights_bhtu: Array) -> tuple[Array, Array]:
            near_bthu, far_bthu = jnp.split(weights_bhtu.swapaxes(1, 2), [near_phqs.shape[-1]], axis=-1)
            return blocks.queries(near_bthu), columns.split(far_bthu)

        kept_pqhs, kept_pnhm = parted(kept_bhtu)
        heads_pqhe = jnp.einsum("pqhs,pshe->pqhe", kept_pqhs, blocks.keys(v_bthe))
        heads_pnhe = jnp.einsum("pnhm,pmhe->pnhe", kept_pnhm, columns.split(v_bthe))
        # Both are parts of one weighted sum.
        heads_bthe = blocks.joined(heads_pqhe) + columns.joined(heads_pnhe)
        near_pqhs, far_pnhm = parted(weights_bhtu)
        weights_bhtt = blocks.whole(near_pqhs.swapaxes(1, 2)) + columns.whole(far_pnhm.swapaxes(1, 2))
        return self.output(heads_bthe.swapaxes(1, 2)), weights_bhtt

    def _reached(self, positions_bt: Int[Array, "b t"], positions_bs: Int[Array, "b s"]) -> Bool[Array, "b t s"]:
        """Returns which keys a query attends to of those that are not after it."""
        r = self.config.neighbours
        distance_bts = positions_bt[:, :, None] - positions_bs[:, None]
        near, _ = reach(r, causal=True)
        return (distance_bts <= near) | (distance_bts % r == 0)
