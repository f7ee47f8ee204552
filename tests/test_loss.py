"""The loss against the definition: cross-entropy with the distribution written out."""

import jax.numpy as jnp
import numpy as np
import pytest

from train.loss import cross_entropy


def brute_force(logits_btv: np.ndarray, target_bt: np.ndarray, eps_ls: float) -> tuple[float, float, int]:
    loss = nll = 0.0
    count = 0
    v = logits_btv.shape[-1]
    for logits_tv, target_t in zip(logits_btv.astype(np.float64), target_bt, strict=True):
        for logits_v, target in zip(logits_tv, target_t, strict=True):
            if target == 0:
                continue
            p_v = np.exp(logits_v - logits_v.max())
            p_v /= p_v.sum()
            q_v = np.full(v, eps_ls / (v - 1))
            q_v[target] = 1.0 - eps_ls
            loss -= float(np.sum(q_v * np.log(p_v)))
            nll -= float(np.log(p_v[target]))
            count += 1
    return loss, nll, count


@pytest.mark.parametrize("eps_ls", [0.0, 0.1, 0.2])
def test_sums_are_those_of_the_definition(eps_ls: float) -> None:
    rng = np.random.default_rng(0)
    logits_btv = rng.normal(scale=3.0, size=(3, 5, 7)).astype(np.float32)
    target_bt = rng.integers(0, 7, size=(3, 5)).astype(np.int32)
    assert 0 < np.count_nonzero(target_bt) < target_bt.size
    loss = cross_entropy(jnp.asarray(logits_btv), jnp.asarray(target_bt), eps_ls)
    np.testing.assert_allclose(loss, brute_force(logits_btv, target_bt, eps_ls), rtol=1e-6)


def test_pad_logits_do_not_matter_even_when_they_are_not_finite() -> None:
    logits_btv = jnp.zeros((1, 2, 4)).at[0, 1].set(jnp.inf)
    loss = cross_entropy(logits_btv, jnp.asarray([[3, 0]]), 0.1)
    np.testing.assert_allclose(loss, (np.log(4), np.log(4), 1), rtol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    loss = cross_entropy(jnp.asarray([[[0.0, 1e4, 0.0]]]), jnp.asarray([[1]]), 0.0)
    np.testing.assert_allclose(loss, (0.0, 0.0, 1), atol=1e-6)
