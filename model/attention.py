"""Scaled dot-product attention and multi-head attention (section 3.2).

This einsum form is the definition; model/kernels.py has faster ones, which tests/test_kernels.py holds to it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from model.config import ModelConfig
from model.dropout import Dropout
from model.kernels import attend
from model.masks import Segments
from model.positions import alibi_bias, rotate

# Finite, so that a query which sees no key at all gets uniform weights and not NaN.
MASKED = -1e9

glorot_in = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))
glorot_out = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=(0, 1), out_axis=2)


class KeysValues(NamedTuple):
    """What a query may look at: keys, values and their positions in the sentence."""

    k_bhsk: Float[Array, "b h s k"]
    v_bhse: Float[Array, "b h s e"]
    positions_bs: Int[Array, "b s"]


def attention_weights(
    q_bhtk: Float[Array, "b h t k"],
    k_bhsk: Float[Array, "b h s k"],
    mask_bts: Bool[Array, "b t s"],
    bias_bhts: Float[Array, "b h t s"] | None = None,
) -> Float[Array, "b h t s"]:
    """softmax(Q K^T / sqrt(d_k) + bias) over the keys the mask allows, in float32 (section 3.2.1, equation 1)."""
    logits_bhts = jnp.einsum("bhtk,bhsk->bhts", q_bhtk, k_bhsk, preferred_element_type=jnp.float32)
    logits_bhts = logits_bhts / jnp.sqrt(jnp.float32(q_bhtk.shape[-1]))
    if bias_bhts is not None:
        logits_bhts = logits_bhts + bias_bhts
    return jax.nn.softmax(jnp.where(mask_bts[:, None], logits_bhts, MASKED), axis=-1)


class MultiHeadAttention(nn.Module):
    """Concat(head_1 .. head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), without biases (section 3.2.2).

    `relative` marks self-attention, the only place where rotary and ALiBi positions act. Projections have heads after
    positions, where one product of two matrices yields them; with heads first XLA copies the weights on CPU every time.
    """

    config: ModelConfig
    relative: bool

    def setup(self) -> None:
        c = self.config
        self.wq = self.param("wq", glorot_in, (c.d_model, c.h, c.d_k))
        self.wk = self.param("wk", glorot_in, (c.d_model, c.h, c.d_k))
        self.wv = self.param("wv", glorot_in, (c.d_model, c.h, c.d_v))
        self.wo = self.param("wo", glorot_out, (c.h, c.d_v, c.d_model))
        self.dropout = Dropout(c.P_drop_attention, c.dropout_bits)

    def keys_values(self, x_bsd: Float[Array, "b s d"], positions_bs: Int[Array, "b s"]) -> KeysValues:
        """K W^K and V W^V of every head; keys are already rotated where positions are rotary."""
        k_bhsk = jnp.einsum("bsd,dhk->bshk", x_bsd, self.wk.astype(x_bsd.dtype)).swapaxes(1, 2)
        v_bhse = jnp.einsum("bsd,dhe->bshe", x_bsd, self.wv.astype(x_bsd.dtype)).swapaxes(1, 2)
        if self.relative and self.config.positions == "rope":
            k_bhsk = rotate(k_bhsk, positions_bs)
        return KeysValues(k_bhsk, v_bhse, positions_bs)

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        seen: KeysValues,
        mask: Bool[Array, "b t s"] | Segments,
        rows_b: Int[Array, " b"] | None,
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b h t s"] | None]:
        """Attends from x to what is seen; returns the output [b,t,d] and the weights [b,h,t,s] in float32.

        With a mask told as segments a kernel attends, which makes no weights: None.
        """
        dtype = x_btd.dtype
        q_bhtk = jnp.einsum("btd,dhk->bthk", x_btd, self.wq.astype(dtype)).swapaxes(1, 2)
        bias_bhts = None
        if self.relative and self.config.positions == "rope":
            q_bhtk = rotate(q_bhtk, positions_bt)
        if self.relative and self.config.positions == "alibi":
            bias_bhts = alibi_bias(positions_bt, seen.positions_bs, self.config.h)
        if isinstance(mask, Segments):
            weights_bhts = None
            heads_bhte = attend(self.config.attention_impl, q_bhtk, seen.k_bhsk, seen.v_bhse, mask)
        else:
            weights_bhts = attention_weights(q_bhtk, seen.k_bhsk, mask, bias_bhts)
            kept_bhts = self.dropout(weights_bhts, rows_b).astype(dtype)
            heads_bhte = jnp.einsum("bhts,bhse->bhte", kept_bhts, seen.v_bhse)
        return jnp.einsum("bthe,hed->btd", heads_bhte.swapaxes(1, 2), self.wo.astype(dtype)), weights_bhts
