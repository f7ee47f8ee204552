"""The encoder layer and the decoder layer of Figure 1: sub-layers, residual connections and norms."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from model.attention import KeysValues, MultiHeadAttention
from model.cache import write
from model.config import ModelConfig
from model.dropout import Dropout
from model.masks import Segments

glorot = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


def layer_norm(config: ModelConfig) -> nn.LayerNorm:
    """Layer normalisation with scale and bias. Its epsilon is not in the paper; 1e-6 is tensor2tensor's."""
    return nn.LayerNorm(epsilon=1e-6, dtype=config.dtype, use_fast_variance=False)


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, at every position alike (section 3.3, equation 2)."""

    config: ModelConfig

    def setup(self) -> None:
        c = self.config
        self.w1 = self.param("w1", glorot, (c.d_model, c.d_ff))
        self.b1 = self.param("b1", nn.initializers.zeros, (c.d_ff,))
        self.w2 = self.param("w2", glorot, (c.d_ff, c.d_model))
        self.b2 = self.param("b2", nn.initializers.zeros, (c.d_model,))
        self.dropout = Dropout(c.P_drop_relu, c.dropout_bits)

    def __call__(self, x_btd: Float[Array, "b t d"], rows_b: Int[Array, " b"] | None) -> Float[Array, "b t d"]:
        w1, b1, w2, b2 = (w.astype(x_btd.dtype) for w in (self.w1, self.b1, self.w2, self.b2))
        x_btf = jax.nn.relu(jnp.einsum("btd,df->btf", x_btd, w1) + b1[None, None])
        return jnp.einsum("btf,fd->btd", self.dropout(x_btf, rows_b), w2) + b2[None, None]


def residual(
    x_btd: Float[Array, "b t d"],
    f: Callable[[Array], Array],
    norm: nn.LayerNorm,
    placement: str,
    dropout: Callable[[Array], Array],
) -> Float[Array, "b t d"]:
    """LayerNorm(x + Dropout(f(x))), sections 3.1 and 5.4.

    With placement "pre", x + Dropout(f(LayerNorm(x))), as in Xiong et al. 2020 (arXiv 2002.04745).
    """
    if placement == "post":
        return norm(x_btd + dropout(f(x_btd)))
    return x_btd + dropout(f(norm(x_btd)))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    config: ModelConfig

    def setup(self) -> None:
        c = self.config
        self.self_attention = MultiHeadAttention(c, relative=True)
        self.feed_forward = FeedForward(c)
        self.norm_1, self.norm_2 = layer_norm(c), layer_norm(c)
        self.dropout = Dropout(c.P_drop, c.dropout_bits)

    def __call__(
        self,
        x_bsd: Float[Array, "b s d"],
        positions_bs: Int[Array, "b s"],
        mask: Bool[Array, "b s s"] | Segments,
        rows_b: Int[Array, " b"] | None,
    ) -> tuple[Float[Array, "b s d"], Float[Array, "b h s s"] | None]:
        """Returns the layer's output and its attention weights, None where the mask is told as segments."""
        norm = self.config.norm
        made: dict[str, Any] = {}

        def drop(y_bsd: Array) -> Array:
            return self.dropout(y_bsd, rows_b)

        def attend(y_bsd: Array) -> Array:
            seen = self.self_attention.keys_values(y_bsd, positions_bs)
            out_bsd, made["self"] = self.self_attention(y_bsd, positions_bs, seen, mask, rows_b)
            return out_bsd

        x_bsd = residual(x_bsd, attend, self.norm_1, norm, drop)
        x_bsd = residual(x_bsd, lambda y_bsd: self.feed_forward(y_bsd, rows_b), self.norm_2, norm, drop)
        return x_bsd, made["self"]

    def dropouts(self) -> list[Dropout]:
        """In the order of their calls in a pass."""
        return [self.self_attention.dropout, self.dropout, self.feed_forward.dropout, self.dropout]


class DecoderLayer(nn.Module):
    """Self-attention over the tokens so far, attention to the encoder's output, then the feed-forward network."""

    config: ModelConfig

    def setup(self) -> None:
        c = self.config
        self.self_attention = MultiHeadAttention(c, relative=True)
        self.cross_attention = MultiHeadAttention(c, relative=False)
        self.feed_forward = FeedForward(c)
        self.norm_1, self.norm_2, self.norm_3 = layer_norm(c), layer_norm(c), layer_norm(c)
        self.dropout = Dropout(c.P_drop, c.dropout_bits)

    def source(self, memory_bsd: Float[Array, "b s d"], positions_bs: Int[Array, "b s"]) -> KeysValues:
        """This layer's keys and values of the encoder's output."""
        return self.cross_attention.keys_values(memory_bsd, positions_bs)

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        self_mask: Bool[Array, "b t c"] | Segments,
        source: KeysValues,
        source_mask: Bool[Array, "b t s"] | Segments,
        rows_b: Int[Array, " b"] | None,
        past: KeysValues | None = None,
        slot: Int[Array, ""] | None = None,
    ) -> tuple[Float[Array, "b t d"], KeysValues, Float[Array, "b h t c"] | None, Float[Array, "b h t s"] | None]:
        """Returns output, the keys and values that self-attention saw, its weights and those over the source.

        Without `past` the tokens of x see each other (c = t); with it they are written into it from `slot` on and see
        its slots.
        """
        norm = self.config.norm
        made: dict[str, Any] = {}

        def drop(y_btd: Array) -> Array:
            return self.dropout(y_btd, rows_b)

        def attend_self(y_btd: Array) -> Array:
            new = self.self_attention.keys_values(y_btd, positions_bt)
            made["seen"] = new if past is None or slot is None else write(past, new, slot)
            out_btd, made["self"] = self.self_attention(y_btd, positions_bt, made["seen"], self_mask, rows_b)
            return out_btd

        def attend_source(y_btd: Array) -> Array:
            out_btd, made["cross"] = self.cross_attention(y_btd, positions_bt, source, source_mask, rows_b)
            return out_btd

        x_btd = residual(x_btd, attend_self, self.norm_1, norm, drop)
        x_btd = residual(x_btd, attend_source, self.norm_2, norm, drop)
        x_btd = residual(x_btd, lambda y_btd: self.feed_forward(y_btd, rows_b), self.norm_3, norm, drop)
        return x_btd, made["seen"], made["self"], made["cross"]

    def dropouts(self) -> list[Dropout]:
        """In the order of their calls in a pass."""
        self_attention, cross_attention = self.self_attention.dropout, self.cross_attention.dropout
        return [self_attention, self.dropout, cross_attention, self.dropout, self.feed_forward.dropout, self.dropout]
