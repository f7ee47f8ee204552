"""The loss against the definition: cross-entropy with the distribution written out; and chunked against unchunked."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from tests import tiny
from tests.tolerance import UNIT, rounding
from vaswani.configs.common import default
from vaswani.data.batching import TextBatch
from vaswani.data.images import ImageBatch
from vaswani.model.baselines.recurrent_translator import RecurrentConfig
from vaswani.model.config import CommonConfig
from vaswani.model.embed import logits_of
from vaswani.tasks import MODULES, task, task_of
from vaswani.tasks import vision as vision_task
from vaswani.tasks.loss import chunks, cross_entropy, one_pass, softmax_cross_entropy


def brute_force(logits_btv: np.ndarray, target_bt: np.ndarray, weights_bt: np.ndarray, eps_ls: float) -> tuple:
    loss = nll = count = 0.0
    v = logits_btv.shape[-1]
    for logits_tv, target_t, weights_t in zip(logits_btv.astype(np.float64), target_bt, weights_bt, strict=True):
        for logits_v, target, weight in zip(logits_tv, target_t, weights_t, strict=True):
            p_v = np.exp(logits_v - logits_v.max())
            p_v /= p_v.sum()
            q_v = np.full(v, eps_ls / (v - 1))
            q_v[target] = 1.0 - eps_ls
            loss -= weight * float(np.sum(q_v * np.log(p_v)))
            nll -= weight * float(np.log(p_v[target]))
            count += weight
    return loss, nll, count


@pytest.mark.parametrize("eps_ls", [0.0, 0.1, 0.2])
def test_sums_are_those_of_the_definition(eps_ls: float) -> None:
    rng = np.random.default_rng(0)
    logits_btv = rng.normal(scale=3.0, size=(3, 5, 7)).astype(np.float32)
    target_bt = rng.integers(0, 7, size=(3, 5)).astype(np.int32)  # 0 is an ordinary token: weights decide
    weights_bt = rng.choice([0.0, 0.5, 1.0], size=(3, 5)).astype(np.float32)
    assert {0.0, 0.5, 1.0} == set(weights_bt.flat)
    loss = cross_entropy(*map(jnp.asarray, (logits_btv, target_bt, weights_bt)), eps_ls)
    np.testing.assert_allclose(loss, brute_force(logits_btv, target_bt, weights_bt, eps_ls), rtol=1e-6)


def test_logits_of_weight_0_do_not_matter_even_when_they_are_not_finite() -> None:
    logits_btv = jnp.zeros((1, 2, 4)).at[0, 1].set(jnp.inf)
    loss = cross_entropy(logits_btv, jnp.asarray([[3, 0]]), jnp.asarray([[1.0, 0.0]]), 0.1)
    np.testing.assert_allclose(loss, (np.log(4), np.log(4), 1), rtol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    loss = cross_entropy(jnp.asarray([[[0.0, 1e4, 0.0]]]), jnp.asarray([[1]]), jnp.ones((1, 1)), 0.0)
    np.testing.assert_allclose(loss, (0.0, 0.0, 1), atol=1e-6)


def factors(dtype: Any = jnp.float32) -> tuple[jax.Array, ...]:
    """Hidden states [3,10,8], a softmax matrix [30,8], targets, and weights, some of them 0."""
    rng = np.random.default_rng(0)
    x_btd, softmax_vd = rng.normal(size=(3, 10, 8)), rng.normal(size=(30, 8)).astype(np.float32)
    target_bt = rng.integers(0, 30, (3, 10)).astype(np.int32)
    weights_bt = rng.choice([0.0, 0.5, 1.0], (3, 10)).astype(np.float32)
    return jnp.asarray(x_btd, dtype), *map(jnp.asarray, (softmax_vd, target_bt, weights_bt))


def definition(x_btd: jax.Array, softmax_vd: jax.Array, *rest: Any) -> Any:
    return cross_entropy(logits_of(x_btd, softmax_vd), *rest)


def mean_and_gradients(loss: Any, *arguments: Any) -> Any:
    """The mean loss, so that the cotangent is not 1, and what is reported besides."""

    def mean(*arguments: Any) -> Any:
        found = loss(*arguments)
        return found.loss_sum / found.tokens, found

    return jax.jit(jax.value_and_grad(mean, (0, 1), has_aux=True), static_argnums=(4, 5))(*arguments)


# In 4 chunks (of 3 positions a row, 2 of them padding), 1, 10, 5 and 1.
@pytest.mark.parametrize("chunk", [9, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in (0, 1, 8, 1_000))])
@pytest.mark.parametrize("eps_ls", [0.0, 0.1])
def test_in_chunks_the_loss_and_its_gradients_are_the_definitions(eps_ls: float, chunk: int) -> None:
    expected = mean_and_gradients(definition, *factors(), eps_ls)
    found = mean_and_gradients(softmax_cross_entropy, *factors(), eps_ls, chunk)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), found, expected)
    forward = softmax_cross_entropy(*factors(), eps_ls, chunk)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), forward, expected[0][1])


def test_chunks_are_as_large_as_asked_for_and_waste_little() -> None:
    assert chunks(3, 10, 0) == chunks(3, 10, 30) == (1, 10)
    assert chunks(3, 10, 1) == (10, 1)
    assert chunks(400, 10, 1_200) == (5, 2)  # 3 a row would be 12 for 10
    assert chunks(132, 31, 528) == (8, 4)
    for rows, length in ((2_500, 10), (390, 64), (97, 256), (1, 4_096), (33, 31)):
        count, each = chunks(rows, length, 1_024)
        assert each == 1 or (rows * each <= 1_024 and length <= count * each < 1.1 * length)


def test_only_a_chunk_of_the_logits_is_in_memory() -> None:
    x_btd, target_bt = jnp.zeros((4, 64, 8)), jnp.zeros((4, 64), jnp.int32)
    arguments = x_btd, jnp.zeros((1_000, 8)), target_bt, jnp.ones((4, 64))

    def megabytes(chunk: int) -> float:
        gradient = jax.grad(lambda *a: softmax_cross_entropy(*a, 0.1, chunk).loss_sum, (0, 1))
        return jax.jit(gradient).lower(*arguments).compile().memory_analysis().temp_size_in_bytes / 1e6

    assert megabytes(0) > 4 * 64 * 1_000 * 4 / 1e6  # all logits, 1 MB
    assert megabytes(16) < 3 * 16 * 1_000 * 4 / 1e6  # a sixteenth of them, their gradient, and the matrix's


def test_only_two_reductions_read_the_logits() -> None:
    def reductions(jaxpr: Any) -> list[str]:
        inside = [name for e in jaxpr.eqns for inner in jaxprs_in_params(e.params) for name in reductions(inner)]
        v = factors()[1].shape[0]
        own = [e for e in jaxpr.eqns if e.primitive.name.startswith("reduce_") and e.invars[0].aval.shape[-1:] == (v,)]
        return inside + [e.primitive.name for e in own]

    gradient = jax.grad(lambda *a: softmax_cross_entropy(*a, 0.1, 6).loss_sum, (0, 1))
    assert sorted(reductions(jax.make_jaxpr(gradient)(*factors()).jaxpr)) == ["reduce_max", "reduce_sum"]


def test_one_pass_finds_the_logsumexp_of_two() -> None:
    v = 300
    x_pnv = np.random.default_rng(0).normal(scale=20.0, size=(1, 7, v)).astype(np.float32)
    x_pnv[0, 0] += 1e4
    x_pnv[0, 1, : v // 2] = -np.inf
    x_pnv[0, 2] = -np.inf
    largest_pn1 = x_pnv.max(axis=-1, keepdims=True).clip(min=-1e30).astype(np.float64)
    with np.errstate(divide="ignore"):
        expected_pn = (largest_pn1 + np.log(np.exp(x_pnv - largest_pn1).sum(axis=-1, keepdims=True)))[..., 0]
    # Of each term of the sum a difference is rounded, an exponential, a product and a sum.
    np.testing.assert_allclose(jax.jit(one_pass)(x_pnv), expected_pn, rtol=2 * UNIT, atol=rounding(4 * v))


def test_in_bfloat16_the_gradient_of_the_logits_is_bfloat16_and_the_sums_float32() -> None:
    def products(jaxpr: Any) -> list[Any]:
        inside = [product for e in jaxpr.eqns for inner in jaxprs_in_params(e.params) for product in products(inner)]
        return inside + [e for e in jaxpr.eqns if e.primitive.name == "dot_general"]

    gradient = jax.grad(lambda *a: softmax_cross_entropy(*a, 0.1, 0).loss_sum, (0, 1))
    found_products = products(jax.make_jaxpr(gradient)(*factors(jnp.bfloat16)).jaxpr)
    assert [str(v.aval.dtype) for e in found_products for v in e.invars] == ["bfloat16"] * 6
    # Of the logits, of the matrix's gradient, to which every chunk adds, and of that by the hidden states.
    assert [str(v.aval.dtype) for e in found_products for v in e.outvars] == ["float32", "float32", "bfloat16"]
    arguments = factors(jnp.bfloat16)
    (_, exact), expected = mean_and_gradients(definition, arguments[0].astype(jnp.float32), *arguments[1:], 0.1)
    (_, loss), found = mean_and_gradients(softmax_cross_entropy, *arguments, 0.1, 6)
    assert [g.dtype for g in found] == [jnp.bfloat16, jnp.float32] and loss.loss_sum.dtype == jnp.float32
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-2), loss, exact)
    for mine, its in zip(found, expected, strict=True):
        assert np.linalg.norm(mine - its) < 1e-2 * np.linalg.norm(its)


def test_in_bfloat16_the_sum_of_the_softmax_matrix_is_float32() -> None:
    """All logits are equal, so the loss is log v; the sum, 1,339.9 in each column, would be 1,336 in bfloat16."""
    v = 1_003
    x_btd = jnp.ones((1, 2, 64), jnp.bfloat16)
    softmax_vd = jnp.full((v, 64), 4 / 3)
    loss = softmax_cross_entropy(x_btd, softmax_vd, jnp.ones((1, 2), jnp.int32), jnp.ones((1, 2)), 0.1, 0)
    np.testing.assert_allclose(loss.loss_sum / loss.tokens, np.log(v), rtol=1e-5)


def test_a_position_of_weight_0_has_no_gradient_even_when_its_logits_are_not_finite() -> None:
    x_btd, softmax_vd, target_bt, weights_bt = factors()
    huge_btd = jnp.where(weights_bt[:, :, None] == 0, 1e38, x_btd)
    _, (dx_btd, _) = mean_and_gradients(softmax_cross_entropy, huge_btd, softmax_vd, target_bt, weights_bt, 0.1, 6)
    assert (np.asarray(dx_btd)[np.asarray(weights_bt) == 0] == 0).all() and np.isfinite(dx_btd).all()


@pytest.mark.parametrize("name", MODULES)
def test_the_smoothing_and_the_chunk_are_those_of_the_config(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = default()
    cfg.task, cfg.loss.eps_ls, cfg.loss.chunk, cfg.data.classes = name, 0.3, 7, "a,b"
    prefix = "full" if name == "prefix_lm" else "none"
    config: CommonConfig = dataclasses.replace(tiny.TINY, positions="none", prefix=prefix)
    if name == "recurrent_translation":
        config = RecurrentConfig(tiny.TINY.vocab_size, N=2, d_model=16, P_drop=0.0, recurrent="dot")
    batch: Any = jax.tree.map(jnp.asarray, tiny.batch())
    if name == "language_model":
        batch = TextBatch(batch.target, batch.labels_bt)
    if name == "vision":
        pixels = jnp.zeros((2, cfg.image.height, cfg.image.width))
        batch = ImageBatch(pixels, jnp.zeros(2, jnp.int32), jnp.ones(2, jnp.int32))
    given: list[tuple] = []

    def of_tokens(*arguments: Any) -> Any:
        given.append(arguments[4:])
        return softmax_cross_entropy(*arguments)

    def of_images(*arguments: Any) -> Any:
        given.append(arguments[3:])
        return cross_entropy(*arguments)

    monkeypatch.setattr(task, "softmax_cross_entropy", of_tokens)
    monkeypatch.setattr(vision_task, "cross_entropy", of_images)
    objective = task_of(name).objective(cfg, config)
    jax.eval_shape(lambda key: objective.loss(objective.init(key), batch, None), jax.random.key(0))
    assert given == [(0.3,) if name == "vision" else (0.3, 7)]
