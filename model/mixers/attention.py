"""Scaled dot-product attention and multi-head attention (section 3.2).

This einsum is the definition; tests/model/test_kernels.py compares the faster kernels of model/mixers/kernels.py to it.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from model.config import ModelConfig
from model.masks import MASKED, Mask
from model.mixers import kernels
from model.mixers.kv_cache import KeysValues, KVCache
from model.noise import Noise, dropout
from model.positions import NoPositions, clipped_distances


def attention_weights(
    q_bhtk: Float[Array, "b h t k"],
    k_bhsk: Float[Array, "b h s k"],
    mask_bts: Bool[Array, "b t s"],
    bias_bhts: Float[Array, "b h t s"] | None = None,
    scale: bool = True,
    softmax_one: bool = False,
) -> Float[Array, "b h t s"]:
    """Returns softmax(Q K^T / sqrt(d_k) + bias) over unmasked keys, in float32 (section 3.2.1, equation 1).

    Without `scale`, logits are not divided by sqrt(d_k). With `softmax_one`, exp(0) is added to the softmax's
    denominator, so that a head may attend to nothing (Miller 2023, "Attention is off by one").
    """
    logits_bhts = dot_products(q_bhtk, k_bhsk, scale)
    return masked_softmax(logits_bhts, mask_bts, bias_bhts, softmax_one)


def dot_products(
    q_bhtk: Float[Array, "b h t k"], k_bhsk: Float[Array, "b h s k"], scale: bool
) -> Float[Array, "b h t s"]:
    """Returns Q K^T, divided by sqrt(d_k) if `scale`, in float32."""
    logits_bhts = jnp.einsum("bhtk,bhsk->bhts", q_bhtk, k_bhsk, preferred_element_type=jnp.float32)
    if not scale:
        return logits_bhts
    d_k = q_bhtk.shape[-1]
    return logits_bhts / jnp.sqrt(jnp.float32(d_k))


def additive_attention_weights(
    q_bhtk: Float[Array, "b h t k"],
    k_bhsk: Float[Array, "b h s k"],
    energy_hk: Float[Array, "h k"],
    mask_bts: Bool[Array, "b t s"],
    bias_bhts: Float[Array, "b h t s"] | None = None,
    softmax_one: bool = False,
) -> Float[Array, "b h t s"]:
    """Returns softmax(v^T tanh(q + k) + bias), in float32, with `attention_weights`' mask and `softmax_one`.

    Bahdanau et al. 2015 (appendix A.1.2), with the projections of Q and K for their W and U, a v for each head, and no
    hidden layer beside it: the "additive attention" of section 3.2.1. Memory grows with t s d_k, not with t s.
    """
    energies_bhtsk = jnp.tanh(q_bhtk[:, :, :, None] + k_bhsk[:, :, None])
    v_hk = energy_hk.astype(energies_bhtsk.dtype)
    logits_bhts = jnp.einsum("bhtsk,hk->bhts", energies_bhtsk, v_hk, preferred_element_type=jnp.float32)
    return masked_softmax(logits_bhts, mask_bts, bias_bhts, softmax_one)


def masked_softmax(
    logits_bhts: Float[Array, "b h t s"],
    mask_bts: Bool[Array, "b t s"],
    bias_bhts: Float[Array, "b h t s"] | None,
    softmax_one: bool,
) -> Float[Array, "b h t s"]:
    """Returns softmax(logits + bias) over unmasked keys; with `softmax_one`, see `attention_weights`."""
    if bias_bhts is not None:
        logits_bhts = logits_bhts + bias_bhts
    masked_bhts = jnp.where(mask_bts[:, None], logits_bhts, MASKED)
    if softmax_one:
        with_zero_bhtu = jnp.pad(masked_bhts, ((0, 0), (0, 0), (0, 0), (0, 1)))
        return jax.nn.softmax(with_zero_bhtu, axis=-1)[..., :-1]
    return jax.nn.softmax(masked_bhts, axis=-1)


class Heads(nn.Module):
    """The projections of every kind of attention here: W^Q, W^K, W^V and W^O of all heads.

    The paper's have no biases; with `config.biases` each has one. With `config.qk_norm` the queries and keys of each
    head are divided by their root mean square and scaled (Henry et al. 2020, arXiv 2010.04245, with RMS for the norm).
    With `config.scores` "additive" each head has the vector v of `additive_attention_weights`, too.
    `gain` multiplies the initial values of W^V and W^O.
    """

    config: ModelConfig
    encoding: NoPositions  # `NoPositions()` in cross-attention and in linear attention
    gain: float = 1.0

    def setup(self) -> None:
        c = self.config
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
            # Glorot-uniform for each head by itself, from d_k energies to one number.
            glorot_energy = nn.initializers.variance_scaling(
                1.0, "fan_avg", "uniform", in_axis=1, out_axis=(), batch_axis=0
            )
            self.energy = self.param("energy", glorot_energy, (c.h, c.d_k))
        if self.encoding.distances:
            glorot = nn.initializers.glorot_uniform()
            self.relative_k = self.param("relative_k", glorot, (self.encoding.distances, c.d_k))
            self.relative_v = self.param("relative_v", glorot, (self.encoding.distances, c.d_v))

    def queries(self, x_btd: Float[Array, "b t d"], positions_bt: Int[Array, "b t"]) -> Float[Array, "b h t k"]:
        """Returns Q W^Q of every head, rotated where positions are rotary."""
        q_bhtk = self._project(x_btd, self.wq, self.bq)
        if self.config.qk_norm:
            q_bhtk = self.q_norm(q_bhtk)
        return self.encoding.rotate(q_bhtk, positions_bt)

    def keys_values(self, x_bsd: Float[Array, "b s d"], positions_bs: Int[Array, "b s"]) -> KeysValues:
        """Returns K W^K and V W^V of every head; keys are already rotated where positions are rotary."""
        k_bhsk = self._project(x_bsd, self.wk, self.bk)
        if self.config.qk_norm:
            k_bhsk = self.k_norm(k_bhsk)
        k_bhsk = self.encoding.rotate(k_bhsk, positions_bs)
        v_bhse = self._project(x_bsd, self.wv, self.bv)
        return KeysValues(k_bhsk, v_bhse, positions_bs)

    def output(self, heads_bhte: Float[Array, "b h t e"]) -> Float[Array, "b t d"]:
        """Returns Concat(head_1 .. head_h) W^O."""
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

    A mixer: `__call__` processes whole rows; `step` decodes the next token of each beam, with the cache that
    `init_cache` makes and `prefill` fills with whole rows. Encoder-decoder attention calls its parts, `keys_values` and
    `attend`.
    """

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask,
        noise: Noise | None = None,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b h t t"] | None]:
        """Returns `attend` of x to itself."""
        keys_values = self.keys_values(x_btd, positions_bt)
        return self.attend(x_btd, positions_bt, keys_values, mask, noise, table_rh)

    def init_cache(self, rows: int, beams: int, slots: int) -> KVCache:
        """Returns an empty cache of `slots` slots; each step fills `beams` of them."""
        return KVCache.empty(self.config, rows, beams, slots)

    def step(
        self,
        x_bmd: Float[Array, "b m d"],
        positions_bm: Int[Array, "b m"],
        cache: KVCache,
        table_rh: Float[Array, "r h"] | None = None,
    ) -> tuple[Float[Array, "b m d"], KVCache]:
        """Returns the output for the next token of each of m beams, and the updated cache."""
        cache = cache.append(self.keys_values(x_bmd, positions_bm))
        visible = Mask(dense_bts=cache.visible_bmc)
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
        new = self.keys_values(x_btd, positions_bt)
        y_btd, _ = self.attend(x_btd, positions_bt, new, mask, None, table_rh)
        return y_btd, cache.prefill(new, mask.keys_bs != 0)

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

        A mask without `dense_bts` selects the kernel of `config.attention_impl`, if that is one, which returns None for
        the weights; all else is the einsum. `table_rh` is the stack's table of biases, where positions have one.
        """
        c = self.config
        k_bhsk, v_bhse, positions_bs = keys_values
        q_bhtk = self.queries(x_btd, positions_bt)
        if mask.dense_bts is None and c.attention_impl == "einsum":
            mask = mask.with_dense()
        if mask.dense_bts is None:
            heads_bhte = kernels.attend(c.attention_impl, q_bhtk, k_bhsk, v_bhse, mask)
            return self.output(heads_bhte), None

        distance_btsr = None
        bias_bhts = self.encoding.bias(positions_bt, positions_bs, table_rh)
        if self.encoding.distances:
            distance_btsr = clipped_distances(positions_bt, positions_bs, self.encoding.max_distance)
            bias_bhts = self._relative_logits(q_bhtk, distance_btsr)
        weights_bhts = self.weights(q_bhtk, k_bhsk, mask, bias_bhts)
        kept_bhts = dropout(weights_bhts, c.P_drop_attention, noise, c.dropout_bits).astype(x_btd.dtype)
        heads_bhte = jnp.einsum("bhts,bhse->bhte", kept_bhts, v_bhse)
        if distance_btsr is not None:
            heads_bhte = heads_bhte + self._relative_values(kept_bhts, distance_btsr)
        return self.output(heads_bhte), weights_bhts

    def weights(
        self,
        q_bhtk: Float[Array, "b h t k"],
        k_bhsk: Float[Array, "b h s k"],
        mask: Mask,
        bias_bhts: Float[Array, "b h t s"] | None,
    ) -> Float[Array, "b h t s"]:
        """Returns the weights of every head, in float32; the mask is dense."""
        c = self.config
        if c.scores == "additive":
            return additive_attention_weights(q_bhtk, k_bhsk, self.energy, mask.dense_bts, bias_bhts, c.softmax_one)
        return attention_weights(q_bhtk, k_bhsk, mask.dense_bts, bias_bhts, c.scale_attention, c.softmax_one)

    def _relative_logits(
        self, q_bhtk: Float[Array, "b h t k"], distance_btsr: Float[Array, "b t s r"]
    ) -> Float[Array, "b h t s"]:
        """Returns q_i a^K_ij, scaled like q_i k_j (Shaw et al. 2018, equation 4), in float32."""
        table_rk = self.relative_k.astype(q_bhtk.dtype)
        logits_bhtr = jnp.einsum("bhtk,rk->bhtr", q_bhtk, table_rk, preferred_element_type=jnp.float32)
        if self.config.scale_attention:
            logits_bhtr = logits_bhtr / jnp.sqrt(jnp.float32(q_bhtk.shape[-1]))
        return jnp.einsum("bhtr,btsr->bhts", logits_bhtr, distance_btsr)

    def _relative_values(
        self, weights_bhts: Float[Array, "b h t s"], distance_btsr: Float[Array, "b t s r"]
    ) -> Float[Array, "b h t e"]:
        """Returns sum_j alpha_ij a^V_ij (Shaw et al. 2018, equation 3)."""
        weights_bhtr = jnp.einsum("bhts,btsr->bhtr", weights_bhts, distance_btsr.astype(weights_bhts.dtype))
        return jnp.einsum("bhtr,re->bhte", weights_bhtr, self.relative_v.astype(weights_bhts.dtype))


def add_bias(x_bt: Array, bias: Array | None) -> Array:
    """Returns x [b,t,..] with the bias [..] added at every position; x itself without one."""
    if bias is None:
        return x_bt
    # Cast only then, so that the bias's gradient, a sum over all positions, is added up in the bias's own float32.
    return x_bt + jnp.broadcast_to(bias, x_bt.shape).astype(x_bt.dtype)
