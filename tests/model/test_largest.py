"""The k largest numbers of a row are those of `jax.lax.top_k`, in its order, equal ones and infinite ones included."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.search.largest import BLOCK, top_k


def drawn(kind: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    x_bn = rng.standard_normal((7, n)).astype(np.float32)
    if kind == "ties":
        x_bn = np.round(x_bn)
    elif kind == "mostly -inf":
        x_bn = np.where(rng.random(x_bn.shape) < 1 - 3 / n, -np.inf, x_bn)
    elif kind == "all -inf":
        x_bn = np.full_like(x_bn, -np.inf)
    elif kind == "side by side":
        x_bn -= 50.0
        x_bn[:, n - 20 :] += 9.0
    return x_bn


@pytest.mark.parametrize("kind", ["any", "ties", "mostly -inf", "all -inf", "side by side"])
@pytest.mark.parametrize("k", [1, 5, 8])
@pytest.mark.parametrize("n", [40, 4 * 8 * BLOCK + 1, 7_200, 12_164])
def test_the_largest_are_those_of_jax(kind: str, k: int, n: int) -> None:
    x_bn = jnp.asarray(drawn(kind, n))
    found = jax.jit(functools.partial(top_k, k=k))(x_bn)
    for ours, theirs in zip(found, jax.lax.top_k(x_bn, k), strict=True):
        np.testing.assert_array_equal(ours, theirs)
