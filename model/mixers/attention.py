"""Multi-head attention (section 3.2.2): projections, `model.attention` in every head, concatenation, and W^O.

This page is the paper's case. What may differ enters by a name of model/mixers/head_variants.py: a bias, a norm, the
scores, the softmax; kinds of positions change queries, keys and scores (model/positions.py).
"""

from functools import partial

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.attention import attention
from vaswani.model.decoding import Cache
from vaswani.model.masks import Mask
from vaswani.model.mixers import kernels
from vaswani.model.mixers.head_variants import HeadVariants, add_bias
from vaswani.model.mixers.kv_cache import AttentionCache, KeysValues, KVCache
from vaswani.model.noise import Noise, dropout


class Heads(HeadVariants):
    """The matrices W^Q, W^K, W^V and W^O of all heads, for every kind of attention here."""

    def setup(self) -> None:
        c = self.config
        # "We linearly project the queries, keys and values h times": all heads in one array, [d,h,k] and [h,e,d].
        self.wq = self.param("wq", into_heads(1.0), (c.d_model, c.h, c.d_k))
        self.wk = self.param("wk", into_heads(1.0), (c.d_model, c.h, c.d_k))
        self.wv = self.param("wv", into_heads(self.gain), (c.d_model, c.h, c.d_v))
        self.wo = self.param("wo", out_of_heads(self.gain), (c.h, c.d_v, c.d_model))
        self.make_variants()

    def queries(self, x_btd: Float[Array, "b t d"], positions_bt: Int[Array, "b t"]) -> Float[Array, "b h t k"]:
        """Returns Q W^Q of every head."""
        q_bhtk = project(x_btd, self.wq, self.bq)
        return self.encoding.queries(self.q_norm(q_bhtk), positions_bt)

    def keys_values(self, x_bsd: Float[Array, "b s d"], positions_bs: Int[Array, "b s"]) -> KeysValues:
        """Returns K W^K and V W^V of every head."""
        k_bhsk = project(x_bsd, self.wk, self.bk)
        k_bhsk = self.encoding.keys(self.k_norm(k_bhsk), positions_bs)
        v_bhse = project(x_bsd, self.wv, self.bv)
        return KeysValues(k_bhsk, v_bhse, positions_bs)

    def output(self, heads_bhte: Float[Array, "b h t e"]) -> Float[Array, "b t d"]:
        """Returns Concat(head_1 .. head_h) W^O."""
        # "These are concatenated and once again projected": [b,h,t,e] -> [b,t,d].
        y_btd = jnp.einsum("bthe,hed->btd", heads_bhte.swapaxes(1, 2), self.wo.astype(heads_bhte.dtype))
        return add_bias(y_btd, self.bo)


class MultiHeadAttention(Heads):
    """Concat(head_1 .. head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (section 3.2.2)."""

    def attend(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        keys_values: KeysValues,
        mask: Mask,
        noise: Noise | None = None,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b h t s"] | None]:
        """Returns the output [b,t,d] and the weights [b,h,t,s] in float32, or None for those if a kernel computes it.

        Encoder-decoder attention calls this by itself. `table_rh` is the stack's table of biases, where positions have
        one.
        """
        k_bhsk, v_bhse, positions_bs = keys_values
        q_bhtk = self.queries(x_btd, positions_bt)
        if mask.kernel is not None:
            # It masks by segments and never has the weights [b,h,t,s] in memory.
            heads_bhte = kernels.attend(mask.kernel, q_bhtk, k_bhsk, v_bhse, mask)
            return self.output(heads_bhte), None

        # "On each of these we then perform the attention function in parallel."
        mask_bts = mask.dense() if mask.dense_bts is None else mask.dense_bts
        scores = partial(self.scores, positions_bt=positions_bt, positions_bs=positions_bs, table_rh=table_rh)
        drop = partial(dropout, rate=self.config.P_drop_attention, noise=noise)
        heads_bhte, weights_bhts = attention(q_bhtk, k_bhsk, v_bhse, mask_bts, scores, self.weights, drop)
        heads_bhte = self.add_relative_values(heads_bhte, weights_bhts, positions_bt, positions_bs)
        return self.output(heads_bhte), weights_bhts

    def weights(self, scores_bhts: Float[Array, "b h t s"]) -> Float[Array, "b h t s"]:
        """Returns the softmax over keys, as a method of its own, which `infer.inside` records and patches."""
        return self.softmax(scores_bhts)

    # As a mixer (see `model.mixers`): self-attention.

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask,
        cache: AttentionCache | None = None,
        noise: Noise | None = None,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b t d"], AttentionCache | None, Float[Array, "b h t s"] | None]:
        """Returns `attend` of x to itself, the cache with x, and the weights."""
        keys_values = self.keys_values(x_btd, positions_bt)
        if cache is not None:
            cache = cache.begin(keys_values, mask)
        y_btd, weights_bhts = self.attend(x_btd, positions_bt, keys_values, mask, noise, table_rh)
        return y_btd, cache, weights_bhts

    def step(
        self,
        x_bmd: Float[Array, "b m d"],
        positions_bm: Int[Array, "b m"],
        cache: AttentionCache,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b m d"], AttentionCache]:
        """Returns `attend` of one more token of each beam to what the cache holds, and the cache with it."""
        # Keys and values of earlier tokens are not computed again.
        cache, keys_values, mask = cache.add(self.keys_values(x_bmd, positions_bm))
        y_bmd, _ = self.attend(x_bmd, positions_bm, keys_values, mask, None, table_rh)
        return y_bmd, cache

    def init_cache(self, rows: int, beams: int, slots: int) -> Cache:
        """Returns an empty cache of `slots` slots; each step fills `beams` of them."""
        return KVCache.empty(self.config, rows, beams, slots)


def project(
    x_btd: Float[Array, "b t d"], w_dhk: Float[Array, "d h k"], bias_hk: Float[Array, "h k"] | None
) -> Float[Array, "b h t k"]:
    """Returns x W of every head."""
    # Heads after positions make it a single matrix product; with heads first, XLA on CPU copies the weights.
    x_bthk = jnp.einsum("btd,dhk->bthk", x_btd, w_dhk.astype(x_btd.dtype))
    return add_bias(x_bthk, bias_hk).swapaxes(1, 2)


def into_heads(gain: float) -> nn.initializers.Initializer:
    """Returns Glorot's uniform initial values of a matrix [d,h,k], times `gain`."""
    return nn.initializers.variance_scaling(gain**2, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))


def out_of_heads(gain: float) -> nn.initializers.Initializer:
    """Returns Glorot's uniform initial values of a matrix [h,e,d], times `gain`."""
    return nn.initializers.variance_scaling(gain**2, "fan_avg", "uniform", in_axis=(0, 1), out_axis=2)
