"""muP (train/mup.py): what updates change is as large at every width, and other models are what they were."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict

from tests import tiny
from tests.tiny import TINY
from vaswani.configs.common import default
from vaswani.configs.rules import ENCODER_DECODER
from vaswani.data.batching import Batch
from vaswani.errors import UserError
from vaswani.ids import BOS
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run.checkpoint import load_params
from vaswani.run.records import read_metrics
from vaswani.tasks import MODULES
from vaswani.tasks.translation import objective
from vaswani.tokens import Tokens
from vaswani.train import loop
from vaswani.train.check import check
from vaswani.train.mup import RULES, power, scale_by_mup
from vaswani.train.optim import learning_rate, optimizer
from vaswani.train.step import TrainState, make_train_step

# Of narrower models, and with more positions in a batch, changes are some percent larger than in the limit: the sum of
# many signs of gradients that have little to do with each other is a part of them, which falls with 1 / width.
WIDTHS = (64, 256, 512)
BASE = 64
SEEDS = 4
UPDATES = 3
RATE = 2e-4
ROWS, LENGTH = 4, 4
# Methods of the model's parts that return activations: queries, keys, values, weights, hidden layers, outputs of
# sub-layers, of norms and of stacks, and logits.
METHODS = ("__call__", "queries", "keys_values", "attend", "hidden_layer")
# With everything that muP allows and the paper's model lacks.
MODERN = {
    "norm": "pre",
    "norm_kind": "rms",
    "activation": "swiglu",
    "positions": "rope",
    "biases": True,
    "output_bias": True,
}


def model(width: int, parametrisation: str, changes: dict[str, Any]) -> ModelConfig:
    """A model of this width: heads grow in number, and the hidden layers with them."""
    sizes = {"N": 1, "d_model": width, "d_ff": 2 * width, "h": width // 16, "d_k": 16, "d_v": 16, "P_drop": 0.0}
    kind = {"tie_embeddings": False, "parametrisation": parametrisation, "mup_width": BASE}
    return ModelConfig(vocab_size=48, **{**sizes, **kind, **changes})


def reversals() -> Batch:
    """Rows to be translated to themselves, in reverse."""
    source = np.random.default_rng(0).integers(4, 48, (ROWS, LENGTH)).astype(np.int32)
    labels = source[:, ::-1]
    target = np.concatenate([np.full((ROWS, 1), BOS, np.int32), labels[:, :-1]], axis=1)
    return Batch(Tokens.of(jnp.asarray(source)), Tokens.of(jnp.asarray(target)), jnp.asarray(labels))


def embedded(config: ModelConfig, params: dict, batch: Batch) -> tuple[jax.Array, jax.Array]:
    def both(model: Transformer) -> tuple[jax.Array, jax.Array]:
        source, target = batch.source, batch.target
        source_bsd = model.source_embedding.encode(source.ids_bt, source.positions_bt, None)
        return source_bsd, model.target_embedding.encode(target.ids_bt, target.positions_bt, None)

    return Transformer(config).apply({"params": params}, method=both)


def activations(config: ModelConfig, params: dict, batch: Batch) -> dict[str, jax.Array]:
    _, captured = Transformer(config).apply(
        {"params": params}, batch.source, batch.target, capture_intermediates=lambda module, name: name in METHODS
    )
    found = dict(zip(("source", "target"), embedded(config, params, batch), strict=True))
    for name, values in flatten_dict(captured["intermediates"], sep="/").items():
        for number, leaf in enumerate(jax.tree.leaves(values)):
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                found[f"{name}/{number}"] = leaf
    return found


def changes_in(config: ModelConfig, softmax: float) -> dict[str, np.ndarray]:
    """The logarithm of what a few updates of Adam change in each activation, in root mean square, averaged by seeds.

    The initial values of the softmax's matrix are multiplied by `softmax`.
    """
    goal = objective(config, 0.1)
    cfg = default().optim
    cfg.update({"schedule": "inverse_sqrt", "lr": RATE, "warmup": 100, "warmup_from": RATE})  # the rate is RATE
    tx = optimizer(cfg, config.base_width, UPDATES, config.d_model / config.base_width)
    batch = reversals()

    def mean_loss(params: dict) -> jax.Array:
        loss = goal.loss(params, batch, None)
        return loss.loss_sum / loss.tokens

    def update(state: Any, _: None) -> tuple[Any, None]:
        params, opt_state = state
        updates, opt_state = tx.update(jax.grad(mean_loss)(params), opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    def sizes(params: dict) -> dict[str, jax.Array]:
        (updated, _), _ = jax.lax.scan(update, (params, tx.init(params)), None, length=UPDATES)
        both = jax.tree.map(lambda *leaves: jnp.stack(leaves), params, updated)
        found = jax.vmap(lambda params: activations(config, params, batch))(both)
        return {name: 0.5 * jnp.log(jnp.mean((after - before) ** 2)) for name, (before, after) in found.items()}

    # Not compiled with the updates: on CPU jaxlib 0.10 computes garbage for a product with a constant 0 under vmap.
    initial = jax.jit(jax.vmap(goal.init))(jax.random.split(jax.random.key(0), SEEDS))
    initial["softmax"] = softmax * initial["softmax"]
    of_seeds = jax.jit(jax.vmap(sizes))(initial)
    return {name: np.mean(logs) for name, logs in of_seeds.items()}


def slopes(
    parametrisation: str, changes: dict[str, Any], widths: tuple[int, ...], softmax: float = 1.0
) -> dict[str, float]:
    """The slope of log size against log width, for each activation."""
    by_width = [changes_in(model(width, parametrisation, changes), softmax) for width in widths]
    return {name: float(np.polyfit(np.log(widths), [sizes[name] for sizes in by_width], 1)[0]) for name in by_width[0]}


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "widths"), [({}, WIDTHS), (MODERN, (128, 256, 512))])
def test_updates_change_every_activation_as_much_at_every_width(
    changes: dict[str, Any], widths: tuple[int, ...]
) -> None:
    """The coordinate check of Yang et al. 2022, appendix D.1, with a softmax that begins at 0, as they advise."""
    found = slopes("mup", changes, widths, softmax=0.0)
    assert len(found) >= 38
    assert max(abs(slope) for slope in found.values()) < 0.05, found


@pytest.mark.slow
def test_what_the_initial_softmax_adds_to_the_changes_shrinks_with_width() -> None:
    found = slopes("mup", {}, (64, 512))
    assert -0.25 < found["__call__/0"] < 0.0  # of the logits; alone, the part would have a slope of -0.5
    assert max(abs(slope) for slope in found.values()) < 0.25, found


@pytest.mark.slow
def test_with_the_standard_parametrisation_they_change_the_more_the_wider_a_model_is() -> None:
    found = slopes("standard", {}, (64, 256))
    assert min(found.values()) > 0.4, found
    assert found["__call__/0"] > 1.0  # of the logits


def flat(tree: Any) -> dict[str, Any]:
    return flatten_dict(tree, sep="/")


def test_at_the_base_it_begins_as_the_standard_model_does() -> None:
    begun, expected = (
        flat(init_params(Transformer(model(BASE, kind, {})), jax.random.key(3))) for kind in ("mup", "standard")
    )
    assert begun.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(begun[name], expected[name], err_msg=name)


def test_a_model_four_times_as_wide_begins_with_a_quarter_of_the_softmaxs_values_and_else_as_the_standard_model() -> (
    None
):
    kinds = ("mup", "standard")
    begun, expected = (flat(init_params(Transformer(model(4 * BASE, kind, {})), jax.random.key(3))) for kind in kinds)
    np.testing.assert_allclose(begun.pop("softmax"), expected.pop("softmax") / 2, rtol=1e-6)  # a quarter of the base's
    for name in expected:
        np.testing.assert_array_equal(begun[name], expected[name], err_msg=name)


def updated(config: ModelConfig, params: dict) -> dict:
    """The parameters after three updates with the paper's schedule."""
    cfg = default().optim
    tx = optimizer(cfg, config.base_width, 3, config.d_model / config.base_width)
    step = make_train_step(objective(config, 0.1), tx, accumulate=2)
    state = TrainState(jnp.int32(0), params, tx.init(params))
    for _ in range(3):
        state, _ = step(state, reversals(), jax.random.key(1))
    return flat(jax.device_get(state.params))


def test_at_the_base_updates_are_those_of_the_standard_model() -> None:
    found = updated(model(BASE, "mup", {}), init_params(Transformer(model(BASE, "mup", {})), jax.random.key(3)))
    expected = updated(
        model(BASE, "standard", {}), init_params(Transformer(model(BASE, "standard", {})), jax.random.key(3))
    )
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize("width", [16, 96])
def test_a_standard_model_is_its_own_base_and_its_updates_are_plain_adams(width: int) -> None:
    config = model(width, "standard", {})
    assert config.base_width == width
    tx = optimizer(default().optim, config.base_width, 3, config.d_model / config.base_width)
    params = init_params(Transformer(config), jax.random.key(0))
    gradient = jax.tree.map(jnp.cos, params)
    rate = width**-0.5 * 4_000**-1.5
    plain = optax.adam(lambda done: jnp.float32(rate) * (done + 1), 0.9, 0.98, 1e-9)
    assert jax.tree.structure(tx.init(params)) == jax.tree.structure(plain.init(params))
    found, expected = (flat(tx.update(gradient, tx.init(params))[0]) for tx in (tx, plain))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, err_msg=name)


def test_the_first_update_of_a_model_four_times_as_wide_has_the_rates_of_table_3() -> None:
    config = model(4 * BASE, "mup", MODERN)
    params = init_params(Transformer(config), jax.random.key(0))
    tx = optimizer(default().optim, config.base_width, 3, config.d_model / config.base_width)
    updates, _ = tx.update(jax.tree.map(jnp.ones_like, params), tx.init(params))
    base_rate = BASE**-0.5 * 4_000**-1.5
    for name, update in flat(updates).items():
        if name in ("source_embed", "target_embed"):
            expected = 1 / 2
        elif update.ndim == 1 or name.endswith(("bq", "bk", "bv")):
            expected = 1.0
        else:
            expected = 1 / 4
        np.testing.assert_allclose(update, -base_rate * expected, rtol=1e-5, err_msg=name)


def test_the_average_of_parameters_is_of_those_that_there_are() -> None:
    """Not of those that updates of the standard parametrisation would have made."""
    cfg = default().optim
    cfg.ema, cfg.warmup = 0.5, 1
    tx = optimizer(cfg, BASE, 3, 4.0)
    params = {"softmax": jnp.ones((2, 2))}
    updates, state = tx.update({"softmax": jnp.ones((2, 2))}, tx.init(params), params)
    changed = optax.apply_updates(params, updates)["softmax"]
    assert float(jnp.abs(changed - 1).max()) > 1e-4
    np.testing.assert_allclose(state[-1].ema["softmax"], changed, rtol=1e-6)


@pytest.mark.parametrize("changes", [{}, MODERN, {"norm": "deep", "activation": "geglu", "share_layers": True}])
def test_a_rule_names_every_parameter(changes: dict[str, Any]) -> None:
    shapes = jax.eval_shape(lambda: init_params(Transformer(model(BASE, "mup", changes)), jax.random.key(0)))
    for name in flat(shapes):
        power(name)  # raises where none does


def test_every_rule_names_a_parameter() -> None:
    shapes = jax.eval_shape(lambda: init_params(Transformer(model(BASE, "mup", MODERN)), jax.random.key(0)))
    names = set(flat(shapes))
    for pattern, _ in RULES:
        matched = {name for name in names if re.search(pattern, name)}
        assert matched, pattern
        names -= matched
    assert not names


def test_a_parameter_that_no_rule_names_is_an_error() -> None:
    updates = {"encoder": {"layer_0": {"feed_forward": {"w3": jnp.ones(2)}}}}
    with pytest.raises(ValueError, match=r"^train/mup\.py: no rule names encoder/layer_0/feed_forward/w3; add one"):
        scale_by_mup(2.0).update(updates, scale_by_mup(2.0).init(updates))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie_embeddings": True}, "needs model.tie_embeddings to be False; it is True"),
        ({"scale_embeddings": False}, "needs model.scale_embeddings to be True; it is False"),
        ({"scale_logits": True}, "needs model.scale_logits to be False; it is True"),
        ({"scale_attention": False}, "needs model.scale_attention to be True; it is False"),
        ({"qk_norm": True}, "needs model.qk_norm to be False; it is True"),
        ({"scores": "additive"}, "needs model.scores to be dot; it is 'additive'"),
        ({"mixer": "linear"}, "needs model.mixer to be attention; it is 'linear'"),
        (
            {"positions": "learned"},
            "needs model.positions to be sinusoidal, none, rope or alibi; it is 'learned'",
        ),
        ({"positions": "shaw"}, "it is 'shaw'"),
        ({"positions": "t5"}, "it is 't5'"),
        ({"prefix": "full"}, "needs model.prefix to be none; it is 'full'"),
    ],
)
def test_a_model_that_mup_is_not_derived_for_is_refused(changes: dict[str, Any], message: str) -> None:
    allowed = dataclasses.replace(TINY, tie_embeddings=False)
    dataclasses.replace(allowed, parametrisation="mup")
    dataclasses.replace(allowed, **changes)
    with pytest.raises(ValueError, match=rf"^model\.parametrisation=mup [^\n]*{re.escape(message)}: its rates are"):
        dataclasses.replace(allowed, parametrisation="mup", **changes)


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [
        *(("task", task, "translation or denoising") for task in MODULES if task not in ENCODER_DECODER),
        *(("optim.name", name, "adam") for name in ("adamw", "muon", "ademamix", "adafactor")),
        ("optim.clip_norm", 1.0, "0.0"),
    ],
)
def test_a_training_that_mup_is_not_derived_for_is_refused(key: str, value: Any, right: str) -> None:
    cfg = default()
    cfg.model.prefix = "full" if value == "prefix_lm" else "none"
    cfg.model.recurrent = "dot" if value == "recurrent_translation" else "none"
    if value == "recurrent_translation":
        cfg.model.positions = "none"
    cfg.data.classes = "yes,no" if value == "classification" else ""
    cfg.update_from_flattened_dict({key: value})
    check(cfg, default())
    cfg.model.parametrisation = "mup"
    message = f"config: model.parametrisation=mup needs {key} to be {right}; it is {value!r}: "
    if value == "recurrent_translation":  # which would ignore it
        message = "config: model.recurrent=dot needs model.parametrisation to be 'standard'; it is 'mup': "
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        check(cfg, default())


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits_and_scans_and_microbatches_change_them_by_rounding(
    tmp_path: Path,
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.model.update({"parametrisation": "mup", "tie_embeddings": False, "mup_width": cfg.model.d_model // 2})
    cfg.checkpoint.keep_last = 3
    run = tmp_path / "run"
    assert loop.train(cfg, run) == 0
    rates = [record["learning_rate"] for record in read_metrics(run) if record["kind"] == "train"]
    width = cfg.model.mup_width
    assert rates[-1] == pytest.approx(float(learning_rate(cfg.optim, width, cfg.steps, cfg.steps)))
    again = shutil.copytree(run, tmp_path / "again")
    shutil.rmtree(again / "checkpoints" / str(cfg.steps))
    assert loop.train(cfg, again) == 0
    whole = load_params(run, cfg.steps)
    jax.tree.map(np.testing.assert_array_equal, load_params(again, cfg.steps), whole)

    cfg.model.scan_layers = True
    cfg.optim.accumulate = 2
    assert loop.train(cfg, tmp_path / "scanned") == 0
    scanned = load_params(tmp_path / "scanned", cfg.steps)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=2e-3), scanned, whole)
