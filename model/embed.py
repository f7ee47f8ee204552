"""From ids to vectors and from vectors to logits (section 3.4)."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from model.config import ModelConfig
from model.noise import Noise, dropout
from model.rows import by_rows


def embed(
    config: ModelConfig,
    embed_vd: Float[Array, "v d"],
    positions_ld: Float[Array, "l d"] | None,
    ids_bt: Int[Array, "b t"],
    positions_bt: Int[Array, "b t"],
    noise: Noise | None,
    norm: nn.Module | None = None,
) -> Float[Array, "b t d"]:
    """Returns embeddings scaled by sqrt(d_model), plus positions, after dropout (sections 3.4, 3.5, 5.4).

    Without `config.scale_embeddings` they are not scaled. Their sum is normalised by `norm`, if given. `positions_ld`
    is the table of learned positions; `model.stack` raises an error if a row is longer.
    """
    x_btd = embed_vd[ids_bt]
    if config.scale_embeddings:
        x_btd = x_btd * jnp.sqrt(jnp.float32(config.d_model))
    x_btd = config.encoding.embed(x_btd, positions_bt, positions_ld)
    if norm is not None:
        x_btd = norm(x_btd)
    x_btd = dropout(x_btd.astype(config.dtype), config.P_drop, noise, config.dropout_bits)
    return by_rows(x_btd)


def logit_factors(
    config: ModelConfig,
    x_btd: Float[Array, "b t d"],
    softmax_vd: Float[Array, "v d"],
    bias_v: Float[Array, " v"] | None = None,
) -> tuple[Float[Array, "b t c"], Float[Array, "v c"]]:
    """Returns the two factors of the logits x E^T; with `config.scale_logits`, x is divided by sqrt(d_model).

    A bias is one more column of the second factor, times 1: c is d, or d + 1.
    """
    if config.scale_logits:
        x_btd = x_btd * config.d_model**-0.5
    if bias_v is None:
        return x_btd, softmax_vd
    ones_bt1 = jnp.ones((*x_btd.shape[:2], 1), x_btd.dtype)
    x_btc = jnp.concatenate([x_btd, ones_bt1], axis=-1)
    softmax_vc = jnp.concatenate([softmax_vd, bias_v[:, None]], axis=-1)
    return x_btc, softmax_vc


def logits_of(x_btc: Float[Array, "b t c"], softmax_vc: Float[Array, "v c"]) -> Float[Array, "b t v"]:
    """Returns the logits, in float32, from their factors."""
    return jnp.einsum("btc,vc->btv", x_btc, softmax_vc.astype(x_btc.dtype), preferred_element_type=jnp.float32)


def logits(
    config: ModelConfig,
    x_btd: Float[Array, "b t d"],
    softmax_vd: Float[Array, "v d"],
    bias_v: Float[Array, " v"] | None = None,
) -> Float[Array, "b t v"]:
    """Returns the product of the `logit_factors`."""
    x_btc, softmax_vc = logit_factors(config, x_btd, softmax_vd, bias_v)
    return logits_of(x_btc, softmax_vc)
