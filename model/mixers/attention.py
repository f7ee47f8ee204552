"""Multi-head attention (section 3.2.2): projections, `model.attention` in every head, and W^O.

The einsums of `model.attention` are the definition; tests/model/test_kernels.py compares the faster kernels of
model/mixers/kernels.py to them.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.attention import (
    additive_scores,
    attention,
    dot_products,
    relative_scores,
    relative_values,
    scaled_dot_products,
    softmax,
    softmax_one,
)
from vaswani.model.config import ModelConfig
from vaswani.model.masks import Mask
from vaswani.model.mixers import kernels
from vaswani.model.mixers.kv_cache import KeysValues, KVCache
from vaswani.model.noise import Noise, dropout
from vaswani.model.positions import NoPositions, clipped_distances


class Heads(nn.Module):
    """The projections of every kind of attention here: W^Q, W^K, W^V and W^O of all heads.

    The paper's have no biases; with `config.biases` each has one. With `config.qk_norm` the queries and keys of each
    head are divided by their root mean square and scaled (Henry et al. 2020, arXiv 2010.04245, with RMS for the norm).
    With `config.scores` "additive" each head has the vector v of `additive_scores`.
    `gain` multiplies the initial values of W^V and W^O.
    """

    config: ModelConfig
    encoding: NoPositions  # `NoPositions` in cross-attention and in linear attention
    gain: float = 1.0

    def setup(self) -> None:
        c = self.config
        # "We linearly project the queries, keys and values h times": all heads in one array, [d,h,k] and [h,e,d].
        glorot_in = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))
        value_init = nn.initializers.variance_scaling(self.gain**2, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))
        output_init = nn.initializers.variance_scaling(self.gain**2, "fan_avg", "uniform", in_axis=(0, 1), out_axis=2)
        self.wq = self.param("wq", glorot_in, (c.d_model, c.h, c.d_k))
        self.wk = self.param("wk", glorot_in, (c.d_model, c.h, c.d_k))
        self.wv = self.param("wv", value_init, (c.d_model, c.h, c.d_v))
        self.wo = self.param("wo", output_init, (c.h, c.d_v, c.d_model))
        self.bq = self.bk = self.bv = self.bo = None
        if c.biases:
            self.bq = self.param("bq", nn.initializers.zeros, (c.h, c.d_k))
            self.bk = self.param("bk", nn.initializers.zeros, (c.h, c.d_k))
            self.bv = self.param("bv", nn.initializers.zeros, (c.h, c.d_v))
            self.bo = self.param("bo", nn.initializers.zeros, (c.d_model,))
        if c.qk_norm:
            self.q_norm = nn.RMSNorm(epsilon=c.norm_epsilon, dtype=c.dtype)
            self.k_norm = nn.RMSNorm(epsilon=c.norm_epsilon, dtype=c.dtype)
        if c.scores == "additive":
            # v of the additive scores, a vector for each head.
            # Glorot-uniform for each head by itself, from d_k energies to one number.
            glorot_energy = nn.initializers.variance_scaling(
                1.0, "fan_avg", "uniform", in_axis=1, out_axis=(), batch_axis=0
            )
            self.energy = self.param("energy", glorot_energy, (c.h, c.d_k))
        if self.encoding.distances:
            # Shaw's vectors of keys and values, one for each distance, for all heads alike.
            glorot = nn.initializers.glorot_uniform()
            self.relative_k = self.param("relative_k", glorot, (self.encoding.distances, c.d_k))
            self.relative_v = self.param("relative_v", glorot, (self.encoding.distances, c.d_v))
        self.softmax = softmax_one if c.softmax_one else softmax

    def scores(
        self,
        q_bhtk: Float[Array, "b h t k"],
        k_bhsk: Float[Array, "b h s k"],
        positions_bt: Int[Array, "b t"],
        positions_bs: Int[Array, "b s"],
        table_rh: Float[Array, "r h"] | None,
    ) -> Float[Array, "b h t s"]:
        """Returns how compatible queries and keys are, in float32; positions that act inside attention are added."""
        if self.config.scores == "additive":
            scores_bhts = additive_scores(q_bhtk, k_bhsk, self.energy)
        elif self.config.scale_attention:
            scores_bhts = scaled_dot_products(q_bhtk, k_bhsk)
        else:
            scores_bhts = dot_products(q_bhtk, k_bhsk)

        # What positions add, where they act inside attention.
        bias_bhts = self.encoding.bias(positions_bt, positions_bs, table_rh)
        if self.encoding.distances:
            distance_btsr = clipped_distances(positions_bt, positions_bs, self.config.max_distance)
            bias_bhts = relative_scores(q_bhtk, self.relative_k, distance_btsr, self.config.scale_attention)
        return scores_bhts if bias_bhts is None else scores_bhts + bias_bhts

    def queries(self, x_btd: Float[Array, "b t d"], positions_bt: Int[Array, "b t"]) -> Float[Array, "b h t k"]:
        """Returns Q W^Q of every head, rotated where positions are rotary."""
        # From the residual stream to every head: [b,t,d] -> [b,h,t,k].
        q_bhtk = self._project(x_btd, self.wq, self.bq)
        if self.config.qk_norm:
            q_bhtk = self.q_norm(q_bhtk)
        return self.encoding.queries(q_bhtk, positions_bt)

    def keys_values(self, x_bsd: Float[Array, "b s d"], positions_bs: Int[Array, "b s"]) -> KeysValues:
        """Returns K W^K and V W^V of every head; keys are already rotated where positions are rotary."""
        # [b,s,d] -> [b,h,s,k] and [b,h,s,e].
        k_bhsk = self._project(x_bsd, self.wk, self.bk)
        if self.config.qk_norm:
            k_bhsk = self.k_norm(k_bhsk)
        k_bhsk = self.encoding.keys(k_bhsk, positions_bs)
        v_bhse = self._project(x_bsd, self.wv, self.bv)
        return KeysValues(k_bhsk, v_bhse, positions_bs)

    def output(self, heads_bhte: Float[Array, "b h t e"]) -> Float[Array, "b t d"]:
        """Returns Concat(head_1 .. head_h) W^O."""
        # "These are concatenated and once again projected": [b,h,t,e] -> [b,t,d].
        y_btd = jnp.einsum("bthe,hed->btd", heads_bhte.swapaxes(1, 2), self.wo.astype(heads_bhte.dtype))
        return add_bias(y_btd, self.bo)

    def _project(
        self, x_btd: Float[Array, "b t d"], w_dhk: Float[Array, "d h k"], bias_hk: Float[Array, "h k"] | None
    ) -> Float[Array, "b h t k"]:
        # Heads after positions make it a single matrix product; with heads first, XLA on CPU copies the weights.
        x_bthk = jnp.einsum("btd,dhk->bthk", x_btd, w_dhk.astype(x_btd.dtype))
        return add_bias(x_bthk, bias_hk).swapaxes(1, 2)


class MultiHeadAttention(Heads):
    """Concat(head_1 .. head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (section 3.2.2).

    A mixer, of whole rows and, with the cache that `init_cache` makes, of one more token of each beam (see
    `model.mixers`). Encoder-decoder attention calls its parts, `keys_values` and `attend`.
    """

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask | None,
        cache: Any = None,
        noise: Noise | None = None,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b t d"], Any, Float[Array, "b h t s"] | None]:
        """Returns `attend` of x to itself and to what the cache holds, the cache with x, and the weights."""
        keys_values = self.keys_values(x_btd, positions_bt)
        if cache is not None:
            # In a search, keys and values of earlier tokens are not computed again.
            cache, keys_values, mask = cache.update(keys_values, mask)
        assert mask is not None
        y_btd, weights_bhts = self.attend(x_btd, positions_bt, keys_values, mask, noise, table_rh)
        return y_btd, cache, weights_bhts

    def init_cache(self, rows: int, beams: int, slots: int) -> Any:
        """Returns an empty cache of `slots` slots; each step fills `beams` of them."""
        return KVCache.empty(self.config, rows, beams, slots)

    def attend(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        keys_values: KeysValues,
        mask: Mask,
        noise: Noise | None = None,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b h t s"] | None]:
        """Returns the output [b,t,d] and the weights [b,h,t,s] in float32.

        A mask without `dense_bts` selects what `kernels.chosen` chooses: a kernel returns None for the weights; all
        else is the einsum. `table_rh` is the stack's table of biases, where positions have one.
        """
        c = self.config
        k_bhsk, v_bhse, positions_bs = keys_values
        q_bhtk = self.queries(x_btd, positions_bt)
        impl = kernels.chosen(c, q_bhtk.shape[2], k_bhsk.shape[2])
        if mask.dense_bts is None and impl == "einsum":
            mask = mask.with_dense()
        if mask.dense_bts is None:
            # A kernel masks by segments and never has the weights [b,h,t,s] in memory.
            heads_bhte = kernels.attend(impl, q_bhtk, k_bhsk, v_bhse, mask)
            return self.output(heads_bhte), None

        # What this config has in place of Q K^T / sqrt(d_k), and between the softmax and V.
        def scores(q_bhtk: Array, k_bhsk: Array) -> Array:
            return self.scores(q_bhtk, k_bhsk, positions_bt, positions_bs, table_rh)

        def drop(weights_bhts: Array) -> Array:
            return dropout(weights_bhts, c.P_drop_attention, noise)

        heads_bhte, weights_bhts = attention(q_bhtk, k_bhsk, v_bhse, mask.dense_bts, scores, self.weights, drop)
        if self.encoding.distances:
            distance_btsr = clipped_distances(positions_bt, positions_bs, c.max_distance)
            # Shaw's a^V_ij are added to the values, so their weighted sum is added to the heads.
            kept_bhts = weights_bhts.astype(x_btd.dtype)
            heads_bhte = heads_bhte + relative_values(kept_bhts, self.relative_v, distance_btsr)
        return self.output(heads_bhte), weights_bhts

    def weights(self, scores_bhts: Float[Array, "b h t s"]) -> Float[Array, "b h t s"]:
        """Returns the softmax over keys, as a method of its own, which `infer.inside` records and patches."""
        return self.softmax(scores_bhts)


def add_bias(x_bt: Array, bias: Array | None) -> Array:
    """Returns x [b,t,..] with the bias [..] added at every position; x itself without one."""
    if bias is None:
        return x_bt
    # Cast only then, so that the bias's gradient, a sum over all positions, is added up in the bias's own float32.
    return x_bt + jnp.broadcast_to(bias, x_bt.shape).astype(x_bt.dtype)
