"""The k largest extensions are those of `jax.lax.top_k`, in its order, equal ones and infinite ones included."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vaswani.search.largest import BLOCK, top_k


def drawn(kind: str, v: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns x [7,4,v], and what is subtracted and added."""
    rng = np.random.default_rng(v)
    x_bmv = rng.standard_normal((7, 4, v)).astype(np.float32)
    minus_bm1 = rng.standard_normal((7, 4, 1)).astype(np.float32)
    plus_bm1 = rng.standard_normal((7, 4, 1)).astype(np.float32)
    if kind == "ties":
        x_bmv = np.round(x_bmv)
        minus_bm1 = np.round(minus_bm1)
        plus_bm1 = np.round(plus_bm1)
    elif kind == "ties by rounding":
        x_bmv *= 1e-6  # many of them round to the same sum
        plus_bm1[...] = -20.0
    elif kind == "mostly -inf":
        x_bmv = np.where(rng.random(x_bmv.shape) < 1 - 1 / v, -np.inf, x_bmv)
    elif kind == "dead beams":
        plus_bm1[:, 1:] = -np.inf
    elif kind == "all -inf":
        x_bmv = np.full_like(x_bmv, -np.inf)
    elif kind == "side by side":
        x_bmv[..., v - 20 :] += 9.0
    return x_bmv, minus_bm1, plus_bm1


@pytest.mark.parametrize(
    "kind", ["any", "ties", "ties by rounding", "mostly -inf", "dead beams", "all -inf", "side by side"]
)
@pytest.mark.parametrize("k", [1, 5, 8])
@pytest.mark.parametrize("v", [30, 8 * BLOCK + 1, 1_800, 1_808, 3_041])
def test_the_largest_are_those_of_jax(kind: str, k: int, v: int) -> None:
    x_bmv, minus_bm1, plus_bm1 = drawn(kind, v)
    found = jax.jit(functools.partial(top_k, k=k))(x_bmv, minus_bm1, plus_bm1)
    sums_bn = jnp.asarray(plus_bm1 + (x_bmv - minus_bm1)).reshape(7, 4 * v)
    largest_bk, place_bk = jax.lax.top_k(sums_bn, k)
    for ours, theirs in zip(found, (largest_bk, place_bk // v, place_bk % v), strict=True):
        np.testing.assert_array_equal(ours, theirs)
