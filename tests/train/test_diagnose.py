"""`diagnose_every`: gradients, updates and attention of each layer."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from vaswani.model.noise import Noise
from vaswani.run.records import read_metrics
from vaswani.tasks.translation import objective
from vaswani.train import loop
from vaswani.train.diagnose import _entropy, make_diagnosis
from vaswani.train.optim import optimizer
from vaswani.train.step import init_state, make_train_step


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "schedule_free_adamw"])
def test_the_parts_add_up_to_the_update_that_is_made(name: str) -> None:
    goal = objective(tiny.TINY, 0.1)
    cfg = tiny.default().optim
    cfg.update({"name": name, "schedule": "constant", "lr": 0.02, "warmup": 1})
    tx = optimizer(cfg, 16, 10)
    state = init_state(goal.init, tx, jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, tiny.batch())
    key = jax.random.key(1)
    for _ in range(3):  # so that a schedule-free gradient is no longer taken at the parameters
        state, _ = make_train_step(goal, tx, 1)(state, batch, key)
    metrics = make_diagnosis(goal, tx, 1)(state, batch, key)
    before = state.params
    parts = {name.partition("/")[2] for name in metrics if name.startswith("gradient_norm/")}
    assert {"encoder/layer_0", "encoder/layer_1", "decoder/layer_1"} <= parts
    squares = [float(metrics[f"gradient_norm/{part}"]) ** 2 for part in parts]
    before = jax.tree.map(np.asarray, before)
    after, sums = make_train_step(goal, tx, 1)(state, batch, key)
    assert sum(squares) == pytest.approx(float(sums.gradient_norm) ** 2, rel=1e-4)
    layer, changed = before["decoder"]["layer_1"], after.params["decoder"]["layer_1"]
    moved = jax.tree.map(lambda old, new: np.asarray(new) - old, layer, changed)
    ratio = float(norm(moved) / norm(layer))
    assert float(metrics["update_ratio/decoder/layer_1"]) == pytest.approx(ratio, rel=1e-2)
    kinds = {name for name in metrics if name.startswith("attention_entropy/")}
    assert kinds == {f"attention_entropy/{kind}/layer_{n}" for kind in ("encoder", "decoder", "cross") for n in (0, 1)}


@pytest.mark.slow
def test_with_accumulation_the_gradient_is_that_of_the_first_microbatch_of_the_update() -> None:
    goal = objective(dataclasses.replace(tiny.TINY, P_drop=0.5), 0.1)
    tx = optimizer(tiny.default().optim, 16, 10)
    state = init_state(goal.init, tx, jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, tiny.batch())
    key = jax.random.key(1)
    metrics = make_diagnosis(goal, tx, 2)(state, batch, key)
    first = jax.tree.map(lambda x_b: x_b[::2], batch)
    rows = jax.tree.leaves(first)[0].shape[0]
    noise = Noise(jax.random.fold_in(key, state.step), 2 * jnp.arange(rows))

    def mean_loss(params: dict) -> jax.Array:
        loss = goal.loss(params, first, noise)
        return loss.loss_sum / loss.tokens

    gradient = jax.grad(mean_loss)(state.params)
    expected = norm(gradient["encoder"]["layer_0"])
    assert float(metrics["gradient_norm/encoder/layer_0"]) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.slow
def test_a_decoder_alone_has_entropies_too() -> None:
    goal = objective(dataclasses.replace(tiny.TINY, prefix="full"), 0.1)
    tx = optimizer(tiny.default().optim, 16, 10)
    state = init_state(goal.init, tx, jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, tiny.batch())
    metrics = make_diagnosis(goal, tx, 1)(state, batch, jax.random.key(1))
    kinds = {name for name in metrics if name.startswith("attention_entropy/")}
    assert kinds == {"attention_entropy/decoder/layer_0", "attention_entropy/decoder/layer_1"}


@pytest.mark.slow
def test_encoder_decoder_attention_has_entropies_whatever_the_mixer_is() -> None:
    goal = objective(dataclasses.replace(tiny.TINY, mixer="linear"), 0.1)
    tx = optimizer(tiny.default().optim, 16, 10)
    state = init_state(goal.init, tx, jax.random.key(0))
    metrics = make_diagnosis(goal, tx, 1)(state, jax.tree.map(jnp.asarray, tiny.batch()), jax.random.key(1))
    kinds = {name for name in metrics if name.startswith("attention_entropy/")}
    assert kinds == {"attention_entropy/cross/layer_0", "attention_entropy/cross/layer_1"}


def norm(tree: dict) -> np.ndarray:
    return np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(tree)))


def test_entropy_is_that_of_the_weights_of_queries_that_are_no_padding() -> None:
    weights = jnp.array([[[[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]]]])
    real = jnp.array([[True, True, False]])
    assert float(_entropy(weights, real)) == pytest.approx(np.log(4) / 2)


@pytest.mark.slow
def test_the_records_have_them_and_the_losses_stay(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps, cfg.log_every = 6, 2
    assert loop.train(cfg, tmp_path / "plain") == 0
    cfg.diagnose_every = 3
    cfg.optim.accumulate = 1
    assert loop.train(cfg, tmp_path / "run") == 0
    plain, looked = (read_metrics(tmp_path / name) for name in ("plain", "run"))
    assert [record["loss"] for record in looked] == [record["loss"] for record in plain]
    with_entropy = ["attention_entropy/cross/layer_0" in record for record in looked if record["kind"] == "train"]
    assert with_entropy == [False, True, True]
    assert json.dumps(looked)
