"""Schedule-free AdamW against its paper's three sequences, in NumPy; and where training takes the gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from tests import tiny
from vaswani.configs.common import default
from vaswani.tasks.loss import Loss
from vaswani.tasks.translation import objective
from vaswani.train.optim import optimizer
from vaswani.train.schedule_free import gradient_point
from vaswani.train.step import TrainState, make_train_step

START = {"w": np.linspace(-1, 2, 6).reshape(2, 3), "b": np.array([0.5, -0.5, 1.5])}
CURVATURE = {"w": np.array([[1.0, 2, 3], [0.5, 4, 1]]), "b": np.array([2.0, 1, 0.1])}
STEPS = 12


def config(**changes: object) -> ConfigDict:
    cfg = default().optim
    cfg.update({"name": "schedule_free_adamw", "schedule": "constant", "lr": 0.05, "warmup": 4, "weight_decay": 0.1})
    cfg.update({"b1": 0.9, "b2": 0.95, "eps": 1e-8, **changes})
    return cfg


def sequences(cfg: ConfigDict) -> tuple[dict, dict]:
    """Returns x and the next y after `STEPS` updates on half the sum of CURVATURE parameter^2: the paper's algorithm 1.

    Its weights are the squares of the rates, and the decay is of y, as in section 3 there.
    """
    x = {name: leaf.copy() for name, leaf in START.items()}
    z = {name: leaf.copy() for name, leaf in START.items()}
    v = {name: np.zeros_like(leaf) for name, leaf in START.items()}
    total = 0.0
    for step in range(1, STEPS + 1):
        rate = cfg.lr * min(step / cfg.warmup, 1)
        total += rate**2
        for name in x:
            y = (1 - cfg.b1) * z[name] + cfg.b1 * x[name]
            g = CURVATURE[name] * y
            v[name] = cfg.b2 * v[name] + (1 - cfg.b2) * g**2
            decay = cfg.weight_decay if y.ndim > 1 else 0.0
            z[name] = z[name] - rate * (g / (np.sqrt(v[name] / (1 - cfg.b2**step)) + cfg.eps) + decay * y)
            x[name] = (1 - rate**2 / total) * x[name] + rate**2 / total * z[name]
    return x, {name: (1 - cfg.b1) * z[name] + cfg.b1 * x[name] for name in x}


def loss_sum(params: dict) -> Any:
    return sum(jnp.sum(CURVATURE[name] * leaf**2) / 2 for name, leaf in params.items())


def assert_close(ours: dict, expected: dict) -> None:
    for name, leaf in expected.items():
        np.testing.assert_allclose(ours[name], leaf, rtol=2e-5, atol=1e-6, err_msg=name)


def as_float32(params: dict) -> dict:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)


@pytest.mark.parametrize("clip_norm", [0.0, 1e6])  # the second in a chain, where nothing is clipped
def test_the_parameters_are_the_papers_x_and_gradients_are_taken_at_its_y(clip_norm: float) -> None:
    cfg = config(clip_norm=clip_norm)
    tx = optimizer(cfg, d_model=16, steps=STEPS)
    params = as_float32(START)
    state = tx.init(params)
    assert_close(gradient_point(params, state), START)
    for _ in range(STEPS):
        gradient = jax.grad(loss_sum)(gradient_point(params, state))
        updates, state = tx.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    x, y = sequences(cfg)
    assert_close(params, x)
    assert_close(gradient_point(params, state), y)


def test_training_takes_the_gradient_there() -> None:
    cfg = config()
    tx = optimizer(cfg, d_model=16, steps=STEPS)

    def loss(params: dict, batch: Any, noise: Any) -> Loss:
        return Loss(loss_sum(params), loss_sum(params), jnp.ones(()))

    whole = tiny.with_loss(objective(tiny.TINY, eps_ls=0.0), loss)
    update = make_train_step(whole, tx, accumulate=1)
    params = as_float32(START)
    state = TrainState(jnp.zeros((), jnp.int32), params, tx.init(params))
    for _ in range(STEPS):
        state, _ = update(state, tiny.batch(), jax.random.key(0))
    assert_close(state.params, sequences(cfg)[0])


@pytest.mark.parametrize("name", ["adam", "muon", "adafactor"])
def test_other_optimisers_take_it_at_the_parameters(name: str) -> None:
    params = as_float32(START)
    tx = optimizer(config(name=name, weight_decay=0.0, clip_norm=1.0, ema=0.9), d_model=16, steps=STEPS)
    assert gradient_point(params, tx.init(params)) is params
