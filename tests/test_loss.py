"""The loss against the definition: cross-entropy with the distribution written out."""

import jax.numpy as jnp
import numpy as np
import pytest

from train.loss import cross_entropy


def brute_force(logits_btv: np.ndarray, target_bt: np.ndarray, weights_bt: np.ndarray, eps_ls: float) -> tuple:
    loss = nll = count = 0.0
    v = logits_btv.shape[-1]
    for logits_tv, target_t, weights_t in zip(logits_btv.astype(np.float64), target_bt, weights_bt, strict=True):
        for logits_v, target, weight in zip(logits_tv, target_t, weights_t, strict=True):
            p_v = np.exp(logits_v - logits_v.max())
            p_v /= p_v.sum()
            q_v = np.full(v, eps_ls / (v - 1))
            q_v[target] = 1.0 - eps_ls
            loss -= weight * float(np.sum(q_v * np.log(p_v)))
            nll -= weight * float(np.log(p_v[target]))
            count += weight
    return loss, nll, count


@pytest.mark.parametrize("eps_ls", [0.0, 0.1, 0.2])
def test_sums_are_those_of_the_definition(eps_ls: float) -> None:
    rng = np.random.default_rng(0)
    logits_btv = rng.normal(scale=3.0, size=(3, 5, 7)).astype(np.float32)
    target_bt = rng.integers(0, 7, size=(3, 5)).astype(np.int32)  # 0 is an ordinary token: weights decide
    weights_bt = rng.choice([0.0, 0.5, 1.0], size=(3, 5)).astype(np.float32)
    assert {0.0, 0.5, 1.0} == set(weights_bt.flat)
    loss = cross_entropy(*map(jnp.asarray, (logits_btv, target_bt, weights_bt)), eps_ls)
    np.testing.assert_allclose(loss, brute_force(logits_btv, target_bt, weights_bt, eps_ls), rtol=1e-6)


def test_logits_of_weight_0_do_not_matter_even_when_they_are_not_finite() -> None:
    logits_btv = jnp.zeros((1, 2, 4)).at[0, 1].set(jnp.inf)
    loss = cross_entropy(logits_btv, jnp.asarray([[3, 0]]), jnp.asarray([[1.0, 0.0]]), 0.1)
    np.testing.assert_allclose(loss, (np.log(4), np.log(4), 1), rtol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    loss = cross_entropy(jnp.asarray([[[0.0, 1e4, 0.0]]]), jnp.asarray([[1]]), jnp.ones((1, 1)), 0.0)
    np.testing.assert_allclose(loss, (0.0, 0.0, 1), atol=1e-6)
