"""Log-probabilities of given translations, by teacher forcing."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from base.ids import BOS, PAD
from base.tokens import Tokens
from model.search.state import Model


def forced_log_probs(
    model: Model, params: Any, source_bs: Int[Array, "b s"], target_bt: Int[Array, "b t"]
) -> Float[Array, "b t"]:
    """Returns the log-probability of each target token given those before it (teacher forcing); 0 at padding.

    Rows are ids with EOS, then 0. The sum of a row is the log p of beam search.
    """
    shifted_bt = jnp.pad(target_bt, ((0, 0), (1, 0)), constant_values=BOS)[:, :-1]
    real_bt = target_bt != PAD
    source = Tokens.of(source_bs)
    target = Tokens.of(jnp.where(real_bt, shifted_bt, PAD))
    logits_btv: Any = model.apply({"params": params}, source, target)
    log_probs_btv = jax.nn.log_softmax(logits_btv)
    log_probs_bt = jnp.take_along_axis(log_probs_btv, target_bt[..., None], axis=-1)[..., 0]
    return jnp.where(real_bt, log_probs_bt, 0.0)
