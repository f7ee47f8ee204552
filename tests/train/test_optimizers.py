"""The optimisers besides Adam: updates written out in NumPy, resumption to the same bits, sharding, what is refused."""

import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from tests import tiny
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.model.config import ModelConfig
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run import saved
from vaswani.run.checkpoint import load_params
from vaswani.run.sharding import placed_shapes
from vaswani.train import loop, optim
from vaswani.train.check import check
from vaswani.train.optim import optimizer

NAMES = ("muon", "ademamix", "adafactor", "schedule_free_adamw")
SHAPES = {
    **{"wq": (4, 2, 3), "wo": (2, 3, 4), "w1": (4, 6), "b1": (6,), "embed": (130, 128)},
    **{"wx": (2, 4, 4, 3), "kernel": (3, 4, 2, 5)},
}
# Of Muon's matrices: each letter an axis, the inputs before the dash, the outputs after it; others count matrices.
MATRICES = {"wq": ("dhk", "d-hk"), "wo": ("hed", "he-d"), "w1": ("df", "d-f"), "wx": ("rdge", "d-e")}
MATRICES["kernel"] = ("wdge", "wd-e")
STEPS = 5
RATE = 0.01

Tree = dict[str, np.ndarray]


def draw(seed: int) -> Tree:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def config(name: str, **changes: object) -> ConfigDict:
    cfg = default().optim
    cfg.update({"name": name, "schedule": "inverse_sqrt", "lr": RATE, "warmup": 100, "warmup_from": RATE, **changes})
    return cfg  # the rate is RATE


def updated(cfg: ConfigDict) -> Tree:
    tx = optimizer(cfg, d_model=16, steps=STEPS)
    params: Any = jax.tree.map(jnp.asarray, draw(0))
    state = tx.init(params)
    for step in range(STEPS):
        updates, state = tx.update(draw(1 + step), state, params)
        params = optax.apply_updates(params, updates)
    return jax.device_get(params)


def in_float64(cfg: ConfigDict, equation: Any) -> Tree:
    """Returns the parameters after `STEPS` updates x - RATE equation(name, x, g, state, step)."""
    params = {name: leaf.astype(np.float64) for name, leaf in draw(0).items()}
    states: dict[str, dict[str, Any]] = {name: {} for name in params}
    for step in range(1, STEPS + 1):
        for name, g in draw(step).items():
            x = params[name]
            params[name] = x - RATE * equation(cfg, name, x, g.astype(np.float64), states[name], step)
    return params


def mean(state: dict[str, Any], name: str, decay: float, new: np.ndarray) -> np.ndarray:
    """Updates and returns an exponential mean that begins with 0."""
    state[name] = decay * state.get(name, 0.0) + (1 - decay) * new
    return state[name]


def muon(cfg: ConfigDict, name: str, x: np.ndarray, g: np.ndarray, state: dict[str, Any], step: int) -> np.ndarray:
    """Jordan et al. 2024 with the scale of Liu et al. 2025, equation 4; Adam with Nesterov's momentum (Dozat 2016)."""
    decay = 0.95 if name in MATRICES else cfg.b1
    m = mean(state, "m", decay, g)
    nesterov = decay * m / (1 - decay ** (step + 1)) + (1 - decay) * g / (1 - decay**step)
    if name not in MATRICES:
        v = mean(state, "v", cfg.b2, g**2) / (1 - cfg.b2**step)
        return nesterov / (np.sqrt(v) + cfg.eps)
    return orthogonal(name, nesterov) + cfg.weight_decay * x


def orthogonal(name: str, nesterov: np.ndarray) -> np.ndarray:
    """Returns every matrix with singular values of about 1, times 0.2 and the root of its longer side."""
    axes, of_matrix = MATRICES[name]
    inputs, outputs = of_matrix.split("-")
    counted = [axis for axis in axes if axis not in of_matrix]
    order = [axes.index(axis) for axis in (*counted, *inputs, *outputs)]
    moved = nesterov.transpose(order)
    rows = math.prod(nesterov.shape[axes.index(axis)] for axis in inputs)
    columns = math.prod(nesterov.shape[axes.index(axis)] for axis in outputs)
    matrices = moved.reshape(-1, rows, columns)
    found = []
    for y in matrices:
        y = y / np.linalg.norm(y)
        for _ in range(5):
            square = y @ y.T
            y = 3.4445 * y + (-4.775 * square + 2.0315 * square @ square) @ y
        found.append(0.2 * np.sqrt(max(rows, columns)) * y)
    return np.stack(found).reshape(moved.shape).transpose(np.argsort(order))


def ademamix(cfg: ConfigDict, name: str, x: np.ndarray, g: np.ndarray, state: dict[str, Any], step: int) -> np.ndarray:
    """Pagliardini et al. 2024, algorithm 1, with the schedules of section 3."""
    part = step / STEPS
    half_lives = (1 - part) * np.log(0.9999) + part * np.log(cfg.b1)
    slow_decay = np.exp(np.log(cfg.b1) * np.log(0.9999) / half_lives)
    fast = mean(state, "fast", cfg.b1, g) / (1 - cfg.b1**step)
    slow = mean(state, "slow", slow_decay, g)
    v = mean(state, "v", cfg.b2, g**2) / (1 - cfg.b2**step)
    decay = 0.0 if x.ndim == 1 else cfg.weight_decay
    return (fast + 5.0 * part * slow) / (np.sqrt(v) + cfg.eps) + decay * x


def adafactor(cfg: ConfigDict, name: str, x: np.ndarray, g: np.ndarray, state: dict[str, Any], step: int) -> np.ndarray:
    """Shazeer and Stern 2018, algorithms 4 and 5: of matrices from 128 wide on, rows and columns alone are kept."""
    decay = 1 - step**-0.8
    square = g**2 + 1e-30
    if name == "embed":
        rows = mean(state, "rows", decay, square.mean(1))
        columns = mean(state, "columns", decay, square.mean(0))
        v = np.outer(rows, columns) / rows.mean()
    else:
        v = mean(state, "v", decay, square)
    update = g / np.sqrt(v)
    update = update / max(1.0, np.sqrt((update**2).mean()))
    return update * max(1e-3, np.sqrt((x**2).mean()))


@pytest.mark.parametrize(("equation", "decay"), [(muon, 0.1), (ademamix, 0.1), (adafactor, 0.0)])
def test_updates_are_those_of_the_equations(equation: Any, decay: float) -> None:
    cfg = config(equation.__name__, weight_decay=decay)
    expected = in_float64(cfg, equation)
    for name, leaf in updated(cfg).items():
        # By the sum of the updates, of which AdEMAMix's slow mean is a few thousandths so early.
        start = draw(0)[name]
        np.testing.assert_allclose((leaf - start) / RATE, (expected[name] - start) / RATE, atol=2e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls_and_a_resumed_run_ends_with_the_same_bits_and_its_average(name: str, tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    schedule = "constant" if name == "schedule_free_adamw" else "cosine"
    cfg.optim.update({"name": name, "schedule": schedule, "lr": 0.02 if name != "adafactor" else 0.2, "ema": 0.9})
    cfg.checkpoint.keep_last = 3
    run = tmp_path / "run"
    assert loop.train(cfg, run) == 0
    again = shutil.copytree(run, tmp_path / "again")
    shutil.rmtree(again / "checkpoints" / str(cfg.steps))
    assert max(saved.steps(again / "checkpoints")) == 8
    assert loop.train(cfg, again) == 0
    jax.tree.map(np.testing.assert_array_equal, load_params(again, cfg.steps), load_params(run, cfg.steps))

    lines = (run / "metrics.jsonl").read_text().splitlines()
    losses = [float(line.partition('"loss": ')[2].split(",")[0]) for line in lines if '"kind": "train"' in line]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_state_is_sharded_as_its_parameters(name: str) -> None:
    params = {
        "embed": jnp.zeros((256, 128)),
        "encoder": {"layer_0": {"self_attention": {"wq": jnp.zeros((128, 4, 32)), "wo": jnp.zeros((4, 32, 128))}}},
    }
    tx = optimizer(config(name), d_model=128, steps=STEPS)
    state = jax.eval_shape(tx.init, params)
    mesh = jax.sharding.AbstractMesh((1, 2, 2), ("data", "fsdp", "tensor"))
    placed = jax.tree_util.tree_leaves_with_path(placed_shapes({"opt_state": state}, mesh))
    specs = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in placed}
    for path, leaf in specs.items():
        if leaf.shape == (128, 4, 32):
            assert leaf.sharding.spec == jax.sharding.PartitionSpec("fsdp", "tensor", None), path
        if "v_row" in path or "v_col" in path:
            assert not any(leaf.sharding.spec), path
    assert any(leaf.shape == (128, 4, 32) for leaf in specs.values())


@pytest.mark.parametrize("name", ["adam", "adafactor"])
def test_an_optimiser_without_weight_decay_is_given_none(name: str) -> None:
    cfg = default()
    cfg.optim.update({"name": name, "weight_decay": 0.1})
    with pytest.raises(
        UserError, match=rf"^config: optim.weight_decay=0.1 needs optim.name to be adamw, .*; it is '{name}'"
    ):
        check(cfg, default())


def test_a_schedule_free_optimiser_has_a_constant_rate() -> None:
    cfg = default()
    cfg.optim.name = "schedule_free_adamw"
    with pytest.raises(
        UserError, match=r"^config: optim.name=schedule_free_adamw needs optim.schedule to be constant; it is 'paper'"
    ):
        check(cfg, default())


@pytest.mark.parametrize("key", ["b1", "b2", "eps"])
def test_what_adafactor_would_ignore_is_refused(key: str) -> None:
    cfg = default()
    cfg.optim.name = "adafactor"
    check(cfg, default())
    cfg.optim[key] = 0.5
    message = rf"^config: optim\.name=adafactor needs optim\.{key} to be .*; it is 0\.5: it has only means of squares"
    with pytest.raises(UserError, match=message):
        check(cfg, default())
    cfg.optim.name = "adamw"
    check(cfg, default())


def test_adafactor_factors_arrays_of_two_long_axes_alone_and_says_so() -> None:
    params = {"w1": jnp.zeros((optim.FACTORED, 256)), "wq": jnp.zeros((512, 8, optim.FACTORED - 1))}
    cfg = default().optim
    cfg.name = "adafactor"
    state = jax.eval_shape(optimizer(cfg, d_model=512, steps=1).init, params)
    (moments,) = (part for part in state if hasattr(part, "v_row"))
    assert moments.v["w1"].shape == (1,)
    assert moments.v["wq"].shape == params["wq"].shape
    assert "FACTORED" in (optimizer.__doc__ or "")


@pytest.mark.parametrize("mixer", ["attention", "convolution", "recurrent"])
def test_muon_takes_every_hidden_matrix_whatever_the_mixer_and_the_family(mixer: str) -> None:
    model = ModelConfig(8, N=1, d_model=4, d_ff=8, h=2, d_k=2, d_v=2, biases=True, mixer=mixer)
    for family in (Transformer, MaskedLM):
        params = jax.eval_shape(partial(init_params, family(model)), jax.random.key(0))
        axes = flatten_dict(optim._hidden_matrices(params))
        for path, leaf in flatten_dict(params).items():
            is_hidden = len(leaf.shape) > 1 and path[-1] not in ("embed", "bq", "bk", "bv")
            assert (axes[path] is not None) == is_hidden, path


def test_muon_makes_each_gate_of_a_mixer_orthogonal_by_itself() -> None:
    cfg = default().optim
    cfg.update({"name": "muon", "schedule": "constant", "lr": 1.0, "warmup": 1})
    shapes = {"wx": (2, 6, 4, 3), "kernel": (3, 4, 2, 4)}
    rng = np.random.default_rng(0)
    gradient = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    tx = optimizer(cfg, d_model=4, steps=1)
    params = jax.tree.map(jnp.zeros_like, gradient)
    updates, _ = tx.update(gradient, tx.init(params), params)
    matrices = [*np.asarray(updates["wx"]).transpose(0, 2, 1, 3).reshape(8, 6, 3)]
    matrices += [*np.asarray(updates["kernel"]).transpose(2, 0, 1, 3).reshape(2, 12, 4)]
    for matrix in matrices:
        singular = np.linalg.svd(matrix, compute_uv=False) / (0.2 * max(matrix.shape) ** 0.5)
        assert np.all((singular > 0.5) & (singular < 1.3))
