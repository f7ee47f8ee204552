"""Schedules against published values, Adam against plain numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.train.optim import learning_rate, optimizer

PARAMS = {"w1": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "b1": np.ones(3, np.float32)}


def config(**changes: object) -> ConfigDict:
    cfg = default().optim
    cfg.update(changes)
    return cfg


@pytest.mark.parametrize(
    ("d_model", "step", "value"),
    [(512, 4_000, 6.987e-4), (512, 100_000, 1.398e-4), (1024, 4_000, 4.941e-4), (1024, 300_000, 5.705e-5)],
)
def test_the_papers_learning_rates(d_model: int, step: int, value: float) -> None:
    assert float(learning_rate(config(), d_model, 100_000, step)) == pytest.approx(value, rel=5e-4)


def test_the_papers_schedule_rises_linearly_from_update_1() -> None:
    rates = [float(learning_rate(config(lr=2.0), 512, 100_000, step)) for step in (1, 2, 4_000)]
    assert rates[0] == pytest.approx(2.0 * 512**-0.5 * 4_000**-1.5, rel=1e-6)
    assert rates[1:] == pytest.approx([2 * rates[0], 4_000 * rates[0]], rel=1e-5)


def test_the_inverse_square_root_has_its_peak_at_lr() -> None:
    cfg = config(schedule="inverse_sqrt", lr=5e-3, warmup=2_000, warmup_from=1e-3)
    rates = [float(learning_rate(cfg, 128, 8_000, step)) for step in (1, 1_000, 2_000, 8_000)]
    assert rates == pytest.approx([1e-3 + 4e-3 / 2_000, 3e-3, 5e-3, 2.5e-3], rel=1e-5)
    papers = config(lr=5e-3 * (128 * 2_000) ** 0.5, warmup=2_000)
    cfg.warmup_from = 0.0
    for step in (1, 1_999, 2_000, 2_001, 8_000):
        expected = float(learning_rate(papers, 128, 8_000, step))
        assert float(learning_rate(cfg, 128, 8_000, step)) == pytest.approx(expected, rel=1e-5)


def test_cosine_rises_to_lr_and_falls_to_nothing() -> None:
    cfg = config(schedule="cosine", lr=3e-4, warmup=10)
    rates = [float(learning_rate(cfg, 512, 110, step)) for step in (1, 10, 60, 110)]
    assert rates == pytest.approx([3e-5, 3e-4, 1.5e-4, 0.0], abs=1e-9)


def test_a_constant_rate_stays_at_lr_after_its_warmup() -> None:
    cfg = config(schedule="constant", lr=3e-4, warmup=10)
    rates = [float(learning_rate(cfg, 512, 110, step)) for step in (1, 5, 10, 11, 1_000)]
    assert rates == pytest.approx([3e-5, 1.5e-4, 3e-4, 3e-4, 3e-4], rel=1e-6)


def adam(cfg: ConfigDict, gradients: list[dict], decay: float, decayed: tuple[str, ...]) -> dict:
    """Kingma and Ba 2015, algorithm 1, in float64; weight decay as in Loshchilov and Hutter 2019."""
    params = {name: leaf.astype(np.float64) for name, leaf in PARAMS.items()}
    m = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    v = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    for step, gradient in enumerate(gradients, 1):
        rate = cfg.lr * 16**-0.5 * min(step**-0.5, step * cfg.warmup**-1.5)
        for name, g in gradient.items():
            m[name] = cfg.b1 * m[name] + (1 - cfg.b1) * g
            v[name] = cfg.b2 * v[name] + (1 - cfg.b2) * g**2
            m_hat, v_hat = m[name] / (1 - cfg.b1**step), v[name] / (1 - cfg.b2**step)
            decay_term = decay * params[name] if name in decayed else 0.0
            params[name] = params[name] - rate * (m_hat / (np.sqrt(v_hat) + cfg.eps) + decay_term)
    return params


@pytest.mark.parametrize(("name", "decay"), [("adam", 0.0), ("adamw", 0.1)])
def test_updates_are_plain_adams(name: str, decay: float) -> None:
    cfg = config(name=name, warmup=3, weight_decay=decay)
    rng = np.random.default_rng(1)
    gradients = [
        {key: rng.normal(size=leaf.shape).astype(np.float32) for key, leaf in PARAMS.items()} for _ in "123456"
    ]
    tx = optimizer(cfg, d_model=16, steps=6)
    params = jax.tree.map(jnp.asarray, PARAMS)
    state = tx.init(params)
    for gradient in gradients:
        updates, state = tx.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    expected = adam(cfg, gradients, decay, decayed=("w1",))
    for key in PARAMS:
        np.testing.assert_allclose(params[key], expected[key], rtol=2e-5, atol=1e-6)


def test_epsilon_is_the_configs_where_gradients_are_as_small() -> None:
    """Gradients of 1e-9, as large as the paper's epsilon, make half the steps of larger ones."""
    cfg = config(warmup=1)
    gradient = {name: np.full_like(leaf, cfg.eps) for name, leaf in PARAMS.items()}
    tx = optimizer(cfg, d_model=16, steps=1)
    updates, _ = tx.update(gradient, tx.init(PARAMS), PARAMS)
    for update in jax.tree.leaves(updates):
        np.testing.assert_allclose(update, -0.5 * cfg.lr * 16**-0.5, rtol=1e-3)


def test_clipping_bounds_the_global_norm() -> None:
    gradient = {"w1": np.full((2, 3), 3.0, np.float32), "b1": np.full(3, 4.0, np.float32)}
    tx = optimizer(config(clip_norm=1.0), d_model=16, steps=1)
    _, state = tx.update(gradient, tx.init(PARAMS), PARAMS)
    mu = next(leaf.mu for leaf in jax.tree.leaves(state, is_leaf=lambda x: hasattr(x, "mu")) if hasattr(leaf, "mu"))
    assert float(optax.tree.norm(mu)) == pytest.approx(0.1, rel=1e-5)  # (1 - b1) of a gradient of norm 1


def test_biases_and_norms_do_not_decay() -> None:
    """With gradients of zero, AdamW's updates are its decay alone."""
    model = ModelConfig(8, N=1, d_model=4, d_ff=8, h=2, d_k=2, d_v=2, biases=True)
    params = jax.tree.map(jnp.ones_like, init_params(Transformer(model), jax.random.key(0)))
    tx = optimizer(config(name="adamw", weight_decay=0.1), d_model=4, steps=1)
    updates, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    decays = {path[-1]: bool(np.any(update)) for path, update in flatten_dict(updates).items()}
    matrices = ("embed", "wq", "wk", "wv", "wo", "w1", "w2")
    vectors = ("bq", "bk", "bv", "bo", "b1", "b2", "scale", "bias")
    assert decays == dict.fromkeys(matrices, True) | dict.fromkeys(vectors, False)


@pytest.mark.parametrize("decay", [0.5, 0.9999, 0.99999, 0.99999999])
def test_after_one_update_the_moving_average_is_the_parameters_whatever_its_decay(decay: float) -> None:
    tx = optimizer(config(warmup=1, ema=decay), d_model=16, steps=2)
    params = jax.tree.map(jnp.asarray, PARAMS)
    updates, state = tx.update(params, tx.init(params), params)
    new_params = optax.apply_updates(params, updates)
    jax.tree.map(lambda mean, new: np.testing.assert_allclose(mean, new, rtol=1e-6), state[-1].ema, new_params)


def test_an_unknown_optimiser_is_none_of_the_others() -> None:
    with pytest.raises(ValueError, match=r"^optim\.name is 'lion', which train/optim\.py does not know$"):
        optimizer(config(name="lion"), d_model=16, steps=1)
