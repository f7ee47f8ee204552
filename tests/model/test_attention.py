"""Equation 1 alone: what its gradient is, and what it keeps in memory."""

import jax
import jax.numpy as jnp
import numpy as np

from tests import tolerance
from vaswani.model.attention import attention, softmax


def test_for_the_gradient_of_an_attention_the_weights_are_kept_and_not_what_they_are_made_of():
    b, h, t, k = 8, 4, 128, 32
    x_bhtk = jax.ShapeDtypeStruct((b, h, t, k), jnp.float32)
    mask_bts = jax.ShapeDtypeStruct((b, t, t), bool)

    def memory(layers):
        def loss(x_bhtk, mask_bts):
            for layer in range(layers):
                heads_bhtk, _ = attention(x_bhtk, x_bhtk * (layer + 2), x_bhtk - 1, mask_bts)
                x_bhtk = x_bhtk + heads_bhtk
            return (x_bhtk**2).sum()

        return jax.jit(jax.grad(loss)).lower(x_bhtk, mask_bts).compile().memory_analysis().temp_size_in_bytes

    # A layer keeps one array of weights [b,h,t,s], and queries, keys and values [b,h,t,k].
    weights = b * h * t * t * 4  # bytes
    kept = weights + 3 * b * h * t * k * 4
    # Keeping exp of the scores as well would be one more array of the weights' size.
    assert weights <= (memory(3) - memory(1)) / 2 < kept + weights / 2


def test_the_softmax_and_its_gradient_are_those_of_jax():
    scores_bhts = 5 * jax.random.normal(jax.random.key(0), (2, 3, 5, 7))
    gradient_bhts = jax.random.normal(jax.random.key(1), scores_bhts.shape)
    weights_bhts, of_scores = jax.vjp(softmax, scores_bhts)
    right_bhts, right_of_scores = jax.vjp(jax.nn.softmax, scores_bhts)
    np.testing.assert_array_equal(weights_bhts, right_bhts)
    # Products of weights, at most 1, with gradients; a sum over seven keys, and two more roundings.
    bound = np.abs(gradient_bhts).max() * tolerance.LIKELY * np.sqrt(7 + 2) * tolerance.UNIT
    np.testing.assert_allclose(of_scores(gradient_bhts)[0], right_of_scores(gradient_bhts)[0], rtol=0, atol=bound)
