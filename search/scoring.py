"""What a model says of given translations, by teacher forcing: each token is predicted from the true ones before it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vaswani.ids import BOS, EOS, PAD
from vaswani.model.types import Params
from vaswani.search.state import Model
from vaswani.tokens import Tokens


def forced_log_probs(
    model: Model, params: Params, source_bs: Int[Array, "b s"], target_bt: Int[Array, "b t"]
) -> Float[Array, "b t"]:
    """Returns the log-probability of each target token given those before it (teacher forcing); 0 at padding.

    Rows are ids with EOS, then 0. The sum of a row is the log p of beam search.
    """
    logits_btv = _forced_logits(model, params, source_bs, target_bt)
    log_probs_btv = jax.nn.log_softmax(logits_btv)
    log_probs_bt = jnp.take_along_axis(log_probs_btv, target_bt[..., None], axis=-1)[..., 0]
    return jnp.where(target_bt != PAD, log_probs_bt, 0.0)


def forced_errors(
    model: Model, params: Params, source_bs: Int[Array, "b s"], target_bt: Int[Array, "b t"]
) -> Bool[Array, "b t"]:
    """Returns which target tokens are not what greedy search would choose after the true tokens before them.

    The search is told the target's length: it never chooses EOS before the end, and always chooses it there. So a row
    without an error is exactly what greedy search would output. Rows are as in `forced_log_probs`.
    """
    logits_btv = _forced_logits(model, params, source_bs, target_bt)
    # Greedy search never generates PAD and BOS, and this one EOS only at the end.
    special_v = jnp.isin(jnp.arange(logits_btv.shape[-1]), jnp.array([PAD, BOS, EOS]))
    # NaN is not chosen: where all logits are NaN, PAD is, which is in no target.
    chosen_bt = jnp.nanargmax(jnp.where(special_v, -jnp.inf, logits_btv), axis=-1)
    # The end itself is told, so it is no error.
    inside_bt = (target_bt != PAD) & (target_bt != EOS)
    return inside_bt & (chosen_bt != target_bt)


def _forced_logits(
    model: Model, params: Params, source_bs: Int[Array, "b s"], target_bt: Int[Array, "b t"]
) -> Float[Array, "b t v"]:
    """Returns the logits of each target token."""
    # The decoder's input is the target shifted right by one, behind BOS (section 3.1); padding stays padding.
    shifted_bt = jnp.pad(target_bt, ((0, 0), (1, 0)), constant_values=BOS)[:, :-1]
    source = Tokens.of(source_bs)
    target = Tokens.of(jnp.where(target_bt != PAD, shifted_bt, PAD))
    return model.apply({"params": params}, source, target)
