"""Neither a scan over layers nor rematerialisation changes a number or a dropout mask."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tolerance
from tests.tiny import TINY, apply_jitted, noise, padded_ids, perturbed, tokens
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer

DROPOUTS = {"P_drop": 0.2, "P_drop_attention": 0.1, "P_drop_relu": 0.1, "dropout_bits": "hash"}


def loss_of(config, train=True):
    """The mean square of the logits, so that a single wrong mask shows, as a function of the parameters."""
    rng = np.random.default_rng(0)
    source, target = (tokens(padded_ids(rng, [5, 3], 5, config.vocab_size)) for _ in range(2))

    def loss(params):
        given = noise(1, 2, config.dropout_bits) if train else None
        return (Transformer(config).apply({"params": params}, source, target, given) ** 2).mean()

    return loss


def assert_same(changes, config, train=True):
    params = perturbed(config)
    (value, gradient), (expected_value, expected_gradient) = (
        jax.jit(jax.value_and_grad(loss_of(c, train)))(params) for c in (dataclasses.replace(config, **changes), config)
    )
    np.testing.assert_allclose(value, expected_value, rtol=2 * tolerance.forward(config))  # a mean of squares
    assert tolerance.gradient_error(gradient, expected_gradient) <= tolerance.backward(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes, train",
    [
        pytest.param({}, False, id="evaluation"),
        pytest.param({"P_drop": 0.2}, True, id="threefry"),
        pytest.param({**DROPOUTS, "N": 3, "norm": "pre", "positions": "rope"}, True, id="hash-everywhere-pre-rope"),
    ],
)
def test_a_scan_gives_the_values_gradients_and_dropout_of_unrolled_layers(changes, train):
    assert_same({"scan_layers": True}, dataclasses.replace(TINY, **changes), train)


@pytest.mark.slow
@pytest.mark.parametrize("scan_layers, N", [(False, 1), (True, 2)])
def test_keeping_products_only_changes_no_number(scan_layers, N):
    """test_invariants.py tests `full`, which saves nothing."""
    assert_same({"remat": "dots", "scan_layers": scan_layers}, dataclasses.replace(TINY, N=N, **DROPOUTS))


@pytest.mark.slow
def test_a_scan_leaves_parameters_decoding_and_maps_as_they_are():
    scanned = dataclasses.replace(TINY, scan_layers=True)
    fresh, expected = (init_params(Transformer(config), jax.random.key(0)) for config in (scanned, TINY))
    jax.tree.map(np.testing.assert_array_equal, fresh, expected)
    params, rng = perturbed(TINY), np.random.default_rng(1)
    source, target = (padded_ids(rng, [4, 2], 4, TINY.vocab_size) for _ in range(2))
    maps = apply_jitted(scanned, params, source, target, method="attention_maps")
    expected = apply_jitted(TINY, params, source, target, method="attention_maps")
    jax.tree.map(np.testing.assert_array_equal, maps, expected)

    def step(config):
        model = Transformer(config)
        start = jax.jit(lambda params, ids: model.apply({"params": params}, ids, 1, 2, method="start"))
        token_b, cache = start(params, jnp.asarray(source))
        step = jax.jit(lambda params, *args: model.apply({"params": params}, *args, method="step"))
        return step(params, token_b[:, None], jnp.int32(0), cache)[0]

    tolerance.assert_close(step(scanned), step(TINY), tolerance.forward(TINY))


def programs(jaxpr):
    """A traced program and the programs in it, each once however often it runs."""
    yield jaxpr
    for equation in jaxpr.eqns:
        for leaf in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            inner = getattr(leaf, "jaxpr", leaf)
            if hasattr(inner, "eqns"):
                yield from programs(inner)


def products(**changes):
    config = dataclasses.replace(TINY, **changes)
    traced = jax.make_jaxpr(jax.grad(loss_of(config)))(perturbed(config)).jaxpr
    return sum(equation.primitive.name == "dot_general" for jaxpr in programs(traced) for equation in jaxpr.eqns)


@pytest.mark.slow
def test_a_scan_compiles_one_layer_whatever_their_number():
    keys_and_values_of_the_source = 2 * 3  # made outside of the layers, forward and backward
    assert products(N=3, scan_layers=True) - products(N=2, scan_layers=True) == keys_and_values_of_the_source
    assert products(N=3) - products(N=2) > 50


@pytest.mark.slow
@pytest.mark.parametrize("scan_layers", [False, True])
def test_full_computes_all_products_again_and_dots_those_of_attention(scan_layers):
    none, full, dots = (products(N=1, scan_layers=scan_layers, remat=remat) for remat in ("none", "full", "dots"))
    assert dots - none == 3 * 2  # Q K^T and the weights times V, of three attentions
    encoder, decoder = 4 + 2 + 2, 4 + 2 + 2 + 2 + 2  # keys and values of the source are kept
    assert full - none == encoder + decoder


def test_attention_weights_leave_no_scan():
    """A scan stacks what its body returns, even if it is never used."""
    config = dataclasses.replace(TINY, scan_layers=True, h=7)
    traced = jax.make_jaxpr(loss_of(config))(perturbed(config)).jaxpr
    loops = [equation for equation in traced.eqns if equation.primitive.name == "scan"]
    assert len(loops) == 2
    assert not [v.aval.shape for loop in loops for v in loop.outvars if v.aval.shape[-3:] == (7, 5, 5)]
