"""Cross-entropy with label smoothing, as sums and counts (paper, section 5.4)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Loss(NamedTuple):
    """Weighted sums over predicted tokens, in nats; divide by `tokens` only after all sums have been added up."""

    loss_sum: Float[Array, ""]  # cross-entropy against the smoothed distribution: what is minimised
    nll_sum: Float[Array, ""]  # negative log-likelihood of the true tokens, from which perplexity is computed
    tokens: Float[Array, ""]  # sum of the weights: with weights 1 and 0, the number of tokens


def cross_entropy(
    logits_btv: Float[Array, "b t v"], target_bt: Int[Array, "b t"], weights_bt: Float[Array, "b t"], eps_ls: float
) -> Loss:
    """Returns the smoothed and the plain cross-entropy of `target_bt`, each token weighted by `weights_bt`.

    A token of weight 0 is ignored, even if its logits are not finite.

    The paper does not say how the smoothing mass is distributed. Here, as in tensor2tensor and fairseq, the true token
    keeps 1 - eps_ls and each of the other v - 1 gets eps_ls / (v - 1); the entropy of that distribution, a constant, is
    not subtracted, so the smoothed loss cannot reach 0.

    With q the smoothed distribution, -sum_v q_v log p_v = lse(x) - sum_v q_v x_v, because q sums to one. This form
    needs neither log-probabilities nor one-hot targets of the size of the logits.
    """
    low = eps_ls / (logits_btv.shape[-1] - 1)
    lse_bt = jax.nn.logsumexp(logits_btv, axis=-1)
    gold_bt = jnp.take_along_axis(logits_btv, target_bt[:, :, None], axis=-1)[:, :, 0]
    nll_bt = lse_bt - gold_bt
    loss_bt = lse_bt - (1.0 - eps_ls - low) * gold_bt - low * jnp.sum(logits_btv, axis=-1)

    def total(x_bt: Array) -> Array:
        return jnp.sum(x_bt * weights_bt, where=weights_bt != 0)

    return Loss(total(loss_bt), total(nll_bt), jnp.sum(weights_bt))
