"""The layers of Table 1 against their formulas, written out position by position."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.mixers.attention import attention_weights
from paper.tables.layer_types import (
    Gates,
    Projections,
    attend_nearby,
    attend_to_all,
    convolutional,
    recurrent,
    self_attention,
)


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


@pytest.mark.parametrize(("t", "r"), [(12, 5), (13, 5), (3, 9)])
def test_nearby_attention_is_masked_attention(t: int, r: int) -> None:
    """Also where blocks do not fill the sequence, and where one block is longer than it."""
    q_tk, k_tk, v_te = normal(0, t, 4), normal(1, t, 4), normal(2, t, 6)
    near_ts = np.abs(np.arange(t)[:, None] - np.arange(t)) <= r // 2
    weights_11ts = attention_weights(q_tk[None, None], k_tk[None, None], jnp.asarray(near_ts)[None])
    near_te = jax.jit(attend_nearby, static_argnums=3)(q_tk, k_tk, v_te, r)
    np.testing.assert_allclose(near_te, weights_11ts[0, 0] @ v_te, atol=1e-6)


def test_a_neighbourhood_of_everything_is_attention_to_all() -> None:
    q_tk, k_tk, v_te = normal(0, 7, 4), normal(1, 7, 4), normal(2, 7, 6)
    near_te = jax.jit(attend_nearby, static_argnums=3)(q_tk, k_tk, v_te, 13)
    np.testing.assert_allclose(near_te, jax.jit(attend_to_all)(q_tk, k_tk, v_te), atol=1e-6)


def test_nearby_attention_makes_nothing_of_the_sequence_squared() -> None:
    t, r = 512, 17
    program = jax.make_jaxpr(partial(attend_nearby, r=r))(*[jnp.zeros((t, 4))] * 3)
    largest = max(variable.aval.size for equation in program.eqns for variable in equation.outvars)
    assert largest <= 2 * t * r < t * t


@pytest.mark.parametrize("r", [1, 4])
def test_a_neighbourhood_has_a_middle(r: int) -> None:
    with pytest.raises(ValueError, match=f"r is {r}: .* is 3, 5, 7"):
        attend_nearby(*[jnp.zeros((8, 4))] * 3, r)


def test_projections_are_applied_before_and_after() -> None:
    params, x_td = Projections(normal(0, 5, 3), normal(1, 5, 3), normal(2, 5, 2), normal(3, 2, 5)), normal(4, 6, 5)
    q_tk, k_tk, v_te = (np.asarray(x_td @ w) for w in params[:3])
    weights_ts = np.exp(q_tk @ k_tk.T / np.sqrt(3))
    weights_ts /= weights_ts.sum(axis=1, keepdims=True)
    expected_td = weights_ts @ v_te @ np.asarray(params.wo)
    projected = jax.jit(self_attention, static_argnums=2)
    np.testing.assert_allclose(projected(params, x_td, attend_to_all), expected_td, atol=1e-4)


def test_an_lstm_is_its_equations() -> None:
    params, x_td = Gates(normal(0, 3, 4, 5), normal(1, 5, 4, 5)), normal(2, 6, 3)
    wx, wh = np.asarray(params.wx), np.asarray(params.wh)
    h_e = c_e = np.zeros(5)
    expected_te = []
    for x_d in np.asarray(x_td):
        i, f, o, g = (x_d @ wx[:, gate] + h_e @ wh[:, gate] for gate in range(4))
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c_e = f * c_e + i * np.tanh(g)
        h_e = o * np.tanh(c_e)
        expected_te.append(h_e)
    np.testing.assert_allclose(recurrent(params, x_td), expected_te, atol=1e-5)


@pytest.mark.parametrize(("w", "dilation"), [(3, 1), (3, 3), (4, 2), (2, 16)])
def test_a_convolution_sees_positions_a_dilation_apart(w: int, dilation: int) -> None:
    w_wde, x_td = normal(0, w, 3, 5), normal(1, 11, 3)
    expected_te = np.zeros((11, 5))
    for t in range(11):
        for back in range(w):
            if t - back * dilation >= 0:
                expected_te[t] += np.asarray(x_td[t - back * dilation]) @ np.asarray(w_wde[w - 1 - back])
    np.testing.assert_allclose(convolutional(w_wde, x_td, dilation), expected_te, atol=1e-5)
