"""The analytic count against the products in the traced program, and against XLA's own count."""

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.extend.core import jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr

from tests.slow import slow_but
from vaswani.configs.rules import CHOICES
from vaswani.data.batching import Batch
from vaswani.model.baselines.recurrent_translator import CELLS, RecurrentConfig
from vaswani.model.config import ModelConfig
from vaswani.model.parameter_count import parameter_count
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.tasks.translation import objective
from vaswani.tokens import Tokens
from vaswani.train.aot.flops import forward_flops, recomputed_flops, update_flops
from vaswani.train.step import init_state, make_train_step

TINY = ModelConfig(vocab_size=40, N=2, d_model=12, d_ff=20, h=2, d_k=4, d_v=6, P_drop=0.1, dropout_bits="hash")
BASE = ModelConfig(vocab_size=37_000)


def lowered(config: ModelConfig, rows: int, source: int, target: int, accumulate: int = 1) -> Any:
    """The traced train step, as jax gives it: `.jaxpr`, `.lower()`."""
    tx, key = optax.adam(1e-3), jax.eval_shape(lambda: jax.random.key(0))
    goal = objective(config, 0.1)
    state = jax.eval_shape(lambda: init_state(goal.init, tx, jax.random.key(0)))
    source_bs, target_bt = (jax.ShapeDtypeStruct((rows, length), jnp.int32) for length in (source, target))
    source = Tokens(source_bs, source_bs, source_bs)
    target = Tokens(target_bt, target_bt, target_bt)
    batch = Batch(source, target, target_bt)  # type: ignore[arg-type]
    return make_train_step(goal, tx, accumulate).trace(state, batch, key)


def products(jaxpr: Any) -> int:
    """Counts FLOPs of all matrix products in a traced program and its sub-programs, of every round of a loop."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            lengths = [equation.invars[0].aval.shape[axis] for axis in contracted]
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(lengths)
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(products(inner) for inner in jaxprs_in_params(equation.params))
    return total


VARIANTS = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "untied": {"tie_embeddings": False},
    "remat": {"remat": "full"},
    "remat, pre-norm": {"remat": "full", "norm": "pre"},
    "remat of attention": {"remat": "dots"},
    "scanned": {"scan_layers": True},
    "scanned remat": {"scan_layers": True, "remat": "full"},
    "depths": {"scan_layers": True, "remat": "full", "norm": "pre", "N_encoder": 3, "N_decoder": 1},
    "remat, no norm": {"remat": "full", "norm": "none"},
    "remat, neither": {"remat": "full", "norm": "none", "residual": False},
    "rope": {"positions": "rope"},
    "gated remat, pre-norm": {"activation": "swiglu", "remat": "full", "norm": "pre"},
}


@pytest.mark.parametrize("variant", slow_but(["paper", "scanned remat", "depths", "gated remat, pre-norm"], VARIANTS))
def test_the_count_is_that_of_every_product_in_the_train_step(variant: str) -> None:
    config = dataclasses.replace(TINY, **VARIANTS[variant])
    step = lowered(config, 3, 5, 7).jaxpr.jaxpr
    assert update_flops(config, 3, 5, 7) + recomputed_flops(config, 3, 5, 7) == products(step)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"mixer": "restricted", "neighbours": 3},
        {"mixer": "strided", "neighbours": 3},
        {"mixer": "linear"},
        {"mixer": "recurrent"},
        {"mixer": "convolution"},
    ],
    ids=lambda changes: changes["mixer"],
)
def test_the_count_of_every_mixer_is_that_of_the_products_in_the_forward_pass(changes: dict) -> None:
    config = dataclasses.replace(TINY, P_drop=0.0, **changes)
    params = jax.eval_shape(lambda: init_params(Transformer(config), jax.random.key(0)))
    rows = [Tokens(*[jax.ShapeDtypeStruct((3, length), jnp.int32)] * 3) for length in (5, 7)]
    traced = jax.make_jaxpr(lambda params, *rows: Transformer(config).apply({"params": params}, *rows))(params, *rows)
    needed, _ = dce_jaxpr(traced.jaxpr, [True])  # without the weights, which nobody asks for
    assert sum(forward_flops(config, 3, 5, 7)) == products(needed)


RECURRENT = CHOICES["model.recurrent"][1:]
KINDS = {
    f"{kind} {cell}": RecurrentConfig(TINY.vocab_size, N=2, d_model=TINY.d_model, P_drop=0.0, recurrent=kind, cell=cell)
    for kind in RECURRENT
    for cell in CELLS
}
FAST = [f"{kind} {cell}" for kind, cell in zip(RECURRENT, itertools.cycle(CELLS), strict=False)]


@pytest.mark.parametrize("kind", slow_but(FAST, KINDS))
def test_the_count_of_recurrent_translators_is_that_of_the_products_in_the_train_step(kind: str) -> None:
    config = KINDS[kind]
    assert update_flops(config, 3, 5, 7) == products(lowered(config, 3, 5, 7).jaxpr.jaxpr)


def test_relative_vectors_count_without_finding_them() -> None:
    """A product with a one-hot array finds the vectors' logits, and another their weights, for each head and pair."""
    config = dataclasses.replace(TINY, P_drop=0.0, positions="shaw", max_distance=4)
    params = jax.eval_shape(lambda: init_params(Transformer(config), jax.random.key(0)))
    rows = [Tokens(*[jax.ShapeDtypeStruct((3, length), jnp.int32)] * 3) for length in (5, 7)]
    traced = jax.make_jaxpr(lambda params, *rows: Transformer(config).apply({"params": params}, *rows))(params, *rows)
    finding = config.N * 2 * 2 * 3 * config.h * 9 * (5 * 5 + 7 * 7)
    assert sum(forward_flops(config, 3, 5, 7)) == products(traced.jaxpr) - finding


def test_microbatches_make_the_same_count() -> None:
    assert products(lowered(TINY, 4, 5, 7, accumulate=2).jaxpr.jaxpr) == update_flops(TINY, 4, 5, 7)


def test_xla_counts_a_few_per_cent_more() -> None:
    config = ModelConfig(vocab_size=2_000, N=2, d_model=256, d_ff=1024, h=4, dropout_bits="hash")
    by_xla = lowered(config, 8, 16, 24).lower().cost_analysis()["flops"]
    assert 1.0 < by_xla / update_flops(config, 8, 16, 24) < 1.05


def test_short_rows_cost_six_operations_a_parameter_and_position() -> None:
    """6 N B (Kaplan et al. 2020), for the lookups that cost nothing and the softmax share one matrix."""
    flops = update_flops(BASE, 1_000, 1, 1)
    assert flops / (6 * 1_000 * parameter_count(BASE)) == pytest.approx(1, rel=0.01)


def test_only_attention_grows_with_the_row() -> None:
    short, long = forward_flops(BASE, 64, 4, 4), forward_flops(BASE, 1, 256, 256)
    assert short.softmax == long.softmax
    more = 2 * 256 * (256 - 4) * BASE.h * (BASE.d_k + BASE.d_v)
    assert long.encoder - short.encoder == BASE.N * more
    assert long.decoder - short.decoder == BASE.N * 2 * more


def test_nothing_is_recomputed_without_remat() -> None:
    assert recomputed_flops(BASE, 2, 8, 8) == 0
