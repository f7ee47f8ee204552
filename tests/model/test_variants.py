"""What readers changed later, each a field of the config: what defines it, and what every model must do with it.

tests/model/test_oracle.py compares each with NumPy, forward and backward.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests import tolerance
from tests.model import test_invariants as invariants
from tests.model import test_mixers as mixers
from tests.model import test_scan as scan
from tests.search import test_search as search
from tests.tiny import TINY, apply, apply_jitted, padded_ids, perturbed, tokens
from vaswani.model.attention import attention, softmax_one
from vaswani.model.block import Residual
from vaswani.model.config import ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run.sharding import placed_shapes

SHAW = {"positions": "shaw", "max_distance": 2, "norm": "deep", "activation": "swiglu"}
SHARED = {"share_layers": True, "N": 3, "qk_norm": True, "softmax_one": True, "activation": "geglu"}
ADDITIVE = {"scores": "additive"}
DEPTHS = {"N_encoder": 3, "N_decoder": 1}
OWN_VOCABULARIES = {"source_vocab_size": 32}
BARE = {"norm": "none", "residual": False, "N": 2}
NORMED = {"norm_embeddings": True}
variants = pytest.mark.parametrize(
    "changes",
    [
        pytest.param(SHAW, id="shaw"),
        pytest.param(SHARED, id="shared", marks=pytest.mark.slow),
        pytest.param(ADDITIVE, id="additive", marks=pytest.mark.slow),
        pytest.param(DEPTHS, id="depths"),
        pytest.param(BARE, id="bare"),
        pytest.param(NORMED, id="normed-embeddings"),
        pytest.param(OWN_VOCABULARIES, id="own-vocabularies", marks=pytest.mark.slow),
    ],
)


def test_the_softmax_is_tied_to_the_targets_own_table() -> None:
    """Of equal sizes, so that no shape tells the two tables apart."""
    config = dataclasses.replace(TINY, source_vocab_size=TINY.vocab_size)
    params = perturbed(config)
    ids = np.ones((1, 3), np.int32)
    _, softmax_vd = apply(config, params, ids, ids, method="logit_factors")
    np.testing.assert_array_equal(softmax_vd, params["target_embed"])
    assert not np.array_equal(params["target_embed"], params["source_embed"])


@variants
def test_cached_steps_give_the_logits_of_whole_rows(changes):
    mixers.test_cached_steps_give_the_logits_of_whole_rows(changes)


@pytest.mark.slow
@variants
@pytest.mark.parametrize(
    "invariant",
    [
        invariants.test_causality_by_gradient_through_all_layers,
        invariants.test_padding_and_batch_mates_change_nothing,
        invariants.test_packed_rows_equal_unpacked_ones_in_logits_and_gradients,
        invariants.test_bfloat16_is_close_to_float32_and_parameters_stay_float32,
    ],
)
def test_what_holds_for_every_model_holds(changes, invariant):
    invariant(changes)


@pytest.mark.slow
@variants
@pytest.mark.parametrize("how", [{"scan_layers": True}, {"remat": "full"}], ids=str)
def test_a_scan_over_layers_and_remat_change_no_number_nor_dropout(changes, how):
    scan.assert_same(how, dataclasses.replace(TINY, **{**scan.DROPOUTS, **changes}))


@pytest.mark.slow
@variants
def test_beam_search_is_the_plain_one_over_the_uncached_model(changes, monkeypatch):
    search.test_equals_the_definition_for_every_kind_of_model_while_the_cache_grows(monkeypatch, {"N": 2, **changes})


@variants
@pytest.mark.parametrize("biases", [False, True])
def test_parameters_are_sharded(changes, biases):
    config = dataclasses.replace(TINY, **{"vocab_size": 24, "N": 2, "biases": biases, **changes})
    tree = jax.eval_shape(lambda: init_params(Transformer(config), jax.random.key(0)))
    mesh = jax.sharding.AbstractMesh((2, 2, 2), ("data", "fsdp", "tensor"))
    placed = placed_shapes(tree, mesh)  # which refuses a matrix that no rule names
    if changes is SHAW:
        assert placed["encoder"]["layer_0"]["feed_forward"]["v"].sharding.spec == PartitionSpec("fsdp", "tensor")


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"positions": "shaw", "mixer": "restricted"},
            "model.mixer=restricted needs model.positions to be .* or t5; it is 'shaw': it has no relative",
        ),
        (
            {"positions": "shaw", "attention_impl": "splash"},
            "model.attention_impl=splash needs model.positions to be .*; it is 'shaw': .* einsum does",
        ),
        (
            {"softmax_one": True, "attention_impl": "splash"},
            "model.attention_impl=splash needs model.softmax_one to be False; it is True",
        ),
        (
            {"norm": "deep", "mixer": "convolution"},
            "model.norm=deep needs model.mixer to be attention, .* or linear; it is 'convolution'",
        ),
        ({"norm": "deep", "residual": False}, "model.norm=deep needs model.residual to be True; it is False"),
        (
            {"norm": "none", "norm_kind": "rms"},
            "model.norm=none needs model.norm_kind to be 'layer'; it is 'rms': there is no norm",
        ),
        ({"norm": "none", "norm_epsilon": 1e-3}, "model.norm=none needs model.norm_epsilon to be 1e-06; it is 0.001"),
        ({"positions": "shaw", "max_distance": 0}, "model.max_distance is 0; it must be at least 1"),
        ({"activation": "gated"}, "geglu, geglu_tanh, swiglu"),
        (
            {"scores": "additive", "mixer": "linear"},
            "model.scores=additive needs model.mixer to be attention; it is 'linear'",
        ),
        (
            {"scores": "additive", "positions": "rope"},
            "model.scores=additive needs model.positions to be .*; it is 'rope': they have no dot products",
        ),
        (
            {"scores": "additive", "scale_attention": False},
            "model.scores=additive needs model.scale_attention to be True; it is False",
        ),
        (
            {"scores": "additive", "attention_impl": "splash"},
            "model.attention_impl=splash needs model.scores to be dot; it is 'additive'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


def encoded(config, params, ids):
    return apply_jitted(config, params, ids, method="encode")


# Shaw's relative vectors; test_invariants.py shifts them.


def test_distances_beyond_the_last_are_not_told_apart_and_those_before_are():
    """The weights of one query over four equal keys at distances -3, -2, 2 and 3, with max_distance 2."""
    config = dataclasses.replace(TINY, positions="shaw", max_distance=2, N=1)
    params = perturbed(config)
    ids = np.full((1, 7), 5, np.int32)
    rows = tokens(ids, None, jnp.arange(7, dtype=jnp.int32)[None])
    maps = apply_jitted(dataclasses.replace(config), params, rows, rows, method="attention_maps")
    weights_hs = np.asarray(maps["encoder"])[0, 0, :, 3]
    np.testing.assert_allclose(weights_hs[:, 0], weights_hs[:, 1], rtol=1e-5)
    np.testing.assert_allclose(weights_hs[:, 5], weights_hs[:, 6], rtol=1e-5)
    assert (np.abs(weights_hs[:, 1] - weights_hs[:, 2]) > 1e-4).all()
    assert (np.abs(weights_hs[:, 1] - weights_hs[:, 5]) > 1e-4).all()


# Without residual connections, without layer norms


def test_without_residuals_what_a_sublayer_gives_is_all_that_is_left():
    """If W^O and W_2 of every layer are 0, x passes a stack with residual connections and does not pass one without."""
    ids = np.array([[5, 6, 7]], np.int32)
    found = []
    for residual in (True, False):
        config = dataclasses.replace(TINY, norm="none", residual=residual, N=2)
        params = perturbed(config)
        for layer in ("layer_0", "layer_1"):
            of_layer = params["encoder"][layer]
            for part, name in (("self_attention", "wo"), ("feed_forward", "w2"), ("feed_forward", "b2")):
                of_layer[part][name] = jnp.zeros_like(of_layer[part][name])
        found.append(np.asarray(encoded(config, params, ids)))
    assert found[0].any(axis=-1).all()
    assert not found[1].any()


def test_without_norms_there_are_no_parameters_of_norms():
    for norm, count in (("post", 2 * 2 * (2 + 3)), ("none", 0)):
        config = dataclasses.replace(TINY, norm=norm, N=2)
        shapes = jax.eval_shape(lambda config=config: init_params(Transformer(config), jax.random.key(0)))
        assert sum("norm" in str(path) for path, _ in jax.tree.leaves_with_path(shapes)) == count


# DeepNorm


def test_alpha_and_beta_are_those_of_the_paper():
    config = ModelConfig(11, N=6, norm="deep")
    encoder, decoder, alone = (Residual.of(config, *where) for where in ((2, False), (2, True), (1, False)))
    np.testing.assert_allclose(encoder, (0.81 * (6**4 * 6) ** (1 / 16), 0.87 * (6**4 * 6) ** (-1 / 16)))
    np.testing.assert_allclose(decoder, (18**0.25, 72**-0.25))
    np.testing.assert_allclose(alone, (12**0.25, 48**-0.25))
    assert Residual.of(dataclasses.replace(config, norm="post"), 2, True) == (1.0, 1.0)


@pytest.mark.slow
def test_initial_values_and_feed_forward_outputs_are_smaller_and_queries_are_not():
    gated = dataclasses.replace(TINY, activation="geglu")
    deep = dataclasses.replace(gated, norm="deep")
    scaled, plain = (init_params(Transformer(config), jax.random.key(0)) for config in (deep, gated))
    for stack, cross in (("encoder", False), ("decoder", True)):
        beta = Residual.of(deep, 2, cross).beta
        layer, expected = scaled[stack]["layer_1"], plain[stack]["layer_1"]
        for module in ("self_attention", "cross_attention")[: 1 + cross]:
            for name, factor in (("wq", 1.0), ("wk", 1.0), ("wv", beta), ("wo", beta)):
                np.testing.assert_allclose(layer[module][name], factor * expected[module][name], rtol=1e-6)
        for name in ("w1", "w2", "v"):
            np.testing.assert_allclose(layer["feed_forward"][name], beta * expected["feed_forward"][name], rtol=1e-6)


def test_relative_biases_and_vectors_begin_at_random():
    biases = init_params(Transformer(dataclasses.replace(TINY, positions="t5")), jax.random.key(0))["decoder"][
        "relative_bias"
    ]
    assert biases.std() == pytest.approx(TINY.d_model**-0.5, rel=0.3)  # of 64 or more
    shaw = init_params(Transformer(dataclasses.replace(TINY, positions="shaw")), jax.random.key(0))
    attention = shaw["encoder"]["layer_0"]["self_attention"]
    for name in ("relative_k", "relative_v"):
        rows, width = attention[name].shape
        assert attention[name].std() == pytest.approx((2 / (rows + width)) ** 0.5, rel=0.2)  # Glorot's


def test_a_model_of_one_stack_has_the_weights_of_one_stack():
    deep = dataclasses.replace(TINY, norm="deep")
    ids = tokens(np.ones((1, 2), np.int32))
    scaled, plain = (LanguageModel(config).init(jax.random.key(0), ids)["params"] for config in (deep, TINY))
    found, expected = (tree["decoder"]["layer_0"]["feed_forward"]["w1"] for tree in (scaled, plain))
    np.testing.assert_allclose(found, (8 * TINY.N) ** -0.25 * expected, rtol=1e-6)


# The others


def test_layers_that_share_are_the_first_layer_n_times():
    shared = dataclasses.replace(TINY, N=3, share_layers=True)
    unshared = dataclasses.replace(shared, share_layers=False)
    params = perturbed(shared)
    copied = dict(params)
    for stack in ("encoder", "decoder"):
        assert list(params[stack]) == ["layer_0"]
        copied[stack] = {f"layer_{n}": params[stack]["layer_0"] for n in range(3)}
    rng = np.random.default_rng(1)
    source, target = (padded_ids(rng, [5, 3], 5, TINY.vocab_size) for _ in range(2))
    found = apply_jitted(shared, params, source, target)
    tolerance.assert_close(found, apply_jitted(unshared, copied, source, target), tolerance.forward(shared))


def test_normed_queries_and_keys_do_not_depend_on_their_sizes():
    config = dataclasses.replace(TINY, qk_norm=True, norm_epsilon=1e-12, N=1)
    params = perturbed(config)
    ids = padded_ids(np.random.default_rng(2), [6], 6, config.vocab_size)
    larger = jax.tree_util.tree_map_with_path(lambda path, leaf: leaf * (3.0 if path[-1].key in "wq wk" else 1), params)
    tolerance.assert_close(encoded(config, larger, ids), encoded(config, params, ids), tolerance.forward(config))
    plain = dataclasses.replace(config, qk_norm=False)
    assert np.abs(encoded(plain, larger, ids) - encoded(plain, params, ids)).max() > 1e-2


def test_a_head_may_attend_to_nothing():
    rng = np.random.default_rng(3)
    q, k = (jnp.asarray(rng.standard_normal((1, 2, 4, 6)), jnp.float32) for _ in range(2))
    mask = jnp.asarray(np.tri(4, dtype=bool)[None])
    logits = np.where(mask[:, None], np.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(6), -np.inf)
    expected = np.exp(logits) / (1 + np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(attention(q, k, k, mask, softmax=softmax_one)[1], expected, rtol=1e-5)
    _, large = attention(100 * q, 100 * k, k, mask, softmax=softmax_one)
    assert np.isfinite(large).all()
    heads, weights = attention(q, k, k, jnp.zeros((1, 4, 4), bool), softmax=softmax_one)
    np.testing.assert_array_equal(weights, 0.0)
    np.testing.assert_array_equal(heads, 0.0)
