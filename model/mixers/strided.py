"""Sparse self-attention, strided (Child et al. 2019, arXiv 1904.10509): the nearest positions, and every r-th."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from model.masks import NO_SEGMENT, Mask
from model.mixers.attention import MultiHeadAttention, dot_products, masked_softmax
from model.mixers.kv_cache import KVCache
from model.mixers.restricted import Blocks, over_whole_rows, reach
from model.noise import Noise, dropout


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
        x_bnc = x_bcn.swapaxes(1, 2)
        return x_bnc.reshape(len(x_bnc), self.n * self.c, *x_bnc.shape[3:])

    def visible(self, mask: Mask) -> Bool[Array, "b c n m"]:
        """Returns which keys m of its column each query n attends to, except itself, which is among the near ones."""
        segments_bcn = self.split(mask.queries_bt, NO_SEGMENT)
        same_bcnm = segments_bcn[..., :, None] == segments_bcn[..., None, :]
        place_n = jnp.arange(self.n)
        if mask.causal:
            other_nm = place_n[:, None] > place_n[None, :]
        else:
            other_nm = place_n[:, None] != place_n[None, :]
        return same_bcnm & other_nm[None, None]


class StridedAttention(MultiHeadAttention):
    """Softmax attention to the r = `config.neighbours` nearest positions of the sentence, and to every r-th position.

    The nearest are those of `RestrictedAttention`; the others are at distances that are multiples of r, before the
    position and, without a causal mask, after it. Each position costs r + n / r in place of n: least for r = sqrt(n).
    It is the authors' merged head, one softmax over both kinds; their separate heads are not here.

    Rows are split into blocks for the nearest, and into r columns for the others: no array is [t,t].
    """

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask,
        noise: Noise | None = None,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b h t t"]]:
        """Returns the output for whole rows and the weights, which cost nothing where they are not used."""
        c = self.config
        b, t, _ = x_btd.shape
        blocks = Blocks.of(c.neighbours, t, mask.causal)
        columns = Columns.of(c.neighbours, t)
        k_bhtk, v_bhte, _ = self.keys_values(x_btd, positions_bt)
        q_bthk = self.queries(x_btd, positions_bt).swapaxes(1, 2)
        k_bthk = k_bhtk.swapaxes(1, 2)
        v_bthe = v_bhte.swapaxes(1, 2)

        # Arrays without a b in their names have a row for each block, or for each column, of each of the b rows.
        def in_blocks(x_bt: Array) -> Array:
            return _as_rows(blocks.split(x_bt))

        def beside_blocks(x_bt: Array) -> Array:
            return _as_rows(blocks.beside(blocks.split(x_bt)))

        def in_columns(x_bt: Array) -> Array:
            return _as_rows(columns.split(x_bt))

        def from_blocks(x: Array) -> Array:
            """From [rows,q,..] of blocks to [b,t,..]."""
            return x.reshape(b, blocks.n * blocks.length, *x.shape[2:])[:, :t]

        def from_columns(x: Array) -> Array:
            """From [rows,n,..] of columns to [b,t,..]."""
            return columns.joined(x.reshape(b, columns.c, *x.shape[1:]))[:, :t]

        visible_near = _as_rows(blocks.visible(mask, c.neighbours))
        logits_near = self._logits(
            in_blocks(q_bthk), beside_blocks(k_bthk), in_blocks(positions_bt), beside_blocks(positions_bt), table_rh
        )
        visible_far = _as_rows(columns.visible(mask))
        logits_far = self._logits(
            in_columns(q_bthk), in_columns(k_bthk), in_columns(positions_bt), in_columns(positions_bt), table_rh
        )

        def side_by_side(near: Array, far: Array) -> Array:
            """From rows of blocks and rows of columns to [b,t,..], with the near keys before the far ones."""
            return jnp.concatenate([from_blocks(near), from_columns(far)], axis=-1)

        logits_bths = side_by_side(logits_near.swapaxes(1, 2), logits_far.swapaxes(1, 2))
        visible_bts = side_by_side(visible_near, visible_far)
        weights_bhts = masked_softmax(logits_bths.swapaxes(1, 2), visible_bts, None, c.softmax_one)
        kept_bhts = dropout(weights_bhts, c.P_drop_attention, noise, c.dropout_bits).astype(x_btd.dtype)

        keys_near = visible_near.shape[-1]
        kept_bths = kept_bhts.swapaxes(1, 2)
        kept_near = in_blocks(kept_bths[..., :keys_near])
        kept_far = in_columns(kept_bths[..., keys_near:])
        heads_near = jnp.einsum("bqhs,bshe->bqhe", kept_near, beside_blocks(v_bthe))
        heads_far = jnp.einsum("bqhs,bshe->bqhe", kept_far, in_columns(v_bthe))
        heads_bthe = from_blocks(heads_near) + from_columns(heads_far)
        y_btd = self.output(heads_bthe.swapaxes(1, 2))
        return y_btd, _whole(weights_bhts.swapaxes(1, 2), keys_near, blocks, columns)

    def step(
        self,
        x_bmd: Float[Array, "b m d"],
        positions_bm: Int[Array, "b m"],
        cache: KVCache,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b m d"], KVCache]:
        """Returns the output for the next token of each of m beams, and the updated cache, which holds all tokens."""
        r = self.config.neighbours
        cache = cache.append(self.keys_values(x_bmd, positions_bm))
        distance_bmc = positions_bm[:, :, None] - cache.past.positions_bc[:, None]
        near, _ = reach(r, causal=True)
        reached_bmc = (distance_bmc <= near) | (distance_bmc % r == 0)
        visible = Mask(dense_bts=cache.visible_bmc & reached_bmc)
        y_bmd, _ = self.attend(x_bmd, positions_bm, cache.past.keys_values(), visible, None, table_rh)
        return y_bmd, cache

    def prefill(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask,
        cache: KVCache,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b t d"], KVCache]:
        """Returns the output for whole rows that every beam begins with, and the cache with them."""
        y_btd, _ = self(x_btd, positions_bt, mask, None, table_rh)
        return y_btd, cache.prefill(self.keys_values(x_btd, positions_bt), mask.keys_bs != 0)

    def _logits(
        self, q_bqhk: Array, k_bshk: Array, positions_bq: Array, positions_bs: Array, table_rh: Array | None
    ) -> Float[Array, "b h q s"]:
        """Returns the scaled products of queries and keys, and the bias of their distance."""
        logits_bhqs = dot_products(q_bqhk.swapaxes(1, 2), k_bshk.swapaxes(1, 2), self.config.scale_attention)
        bias_bhqs = self.encoding.bias(positions_bq, positions_bs, table_rh)
        return logits_bhqs if bias_bhqs is None else logits_bhqs + bias_bhqs


def _as_rows(x_bn: Array) -> Array:
    """Returns blocks or columns in the place of rows, from [b,n,..] to [b n,..]."""
    return x_bn.reshape(-1, *x_bn.shape[2:])


def _whole(
    weights_bths: Float[Array, "b t h s"], keys_near: int, blocks: Blocks, columns: Columns
) -> Float[Array, "b h t t"]:
    """Returns weights over the keys of the whole row, given those over the near keys and those of the column."""
    t = weights_bths.shape[1]
    near_bnqhs = blocks.split(weights_bths[..., :keys_near])
    near_bhtt = over_whole_rows(near_bnqhs.swapaxes(2, 3), blocks.length)[:, :, :t, :t]
    far_bcnhm = columns.split(weights_bths[..., keys_near:])
    own_cd = jnp.eye(columns.c, dtype=weights_bths.dtype)
    far_bhncmd = jnp.einsum("bcnhm,cd->bhncmd", far_bcnhm, own_cd)
    whole = columns.n * columns.c
    return near_bhtt + far_bhncmd.reshape(*far_bhncmd.shape[:2], whole, whole)[:, :, :t, :t]
