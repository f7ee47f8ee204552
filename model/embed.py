"""From ids to vectors and from vectors to logits (section 3.4)."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from model.config import ModelConfig
from model.noise import Noise, dropout


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

    Without `config.scale_embeddings` they are not scaled. Their sum is normalised by `norm`, if given.

    Raises:
      ValueError: a row is longer than the table of learned positions, `positions_ld`.
    """
    x_btd = embed_vd[ids_bt]
    if config.scale_embeddings:
        x_btd = x_btd * jnp.sqrt(jnp.float32(config.d_model))
    x_btd = config.encoding.embed(x_btd, positions_bt, positions_ld)
    x_btd = norm(x_btd) if norm else x_btd
    return dropout(x_btd.astype(config.dtype), config.P_drop, noise, config.dropout_bits)


def logits(config: ModelConfig, x_btd: Float[Array, "b t d"], softmax_vd: Float[Array, "v d"]) -> Float[Array, "b t v"]:
    """Returns x E^T in float32, without bias; with `config.scale_logits`, divided by sqrt(d_model)."""
    if config.scale_logits:
        x_btd = x_btd * config.d_model**-0.5
    return jnp.einsum("btd,vd->btv", x_btd, softmax_vd.astype(x_btd.dtype), preferred_element_type=jnp.float32)
