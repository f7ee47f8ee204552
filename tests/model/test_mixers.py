"""Every mixer in attention's place: who influences whom, what packing, caches and search give, and its definition."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tolerance
from tests.model import test_invariants as invariants
from tests.model import test_scan as scan
from tests.search import test_search as search
from tests.slow import slow_but
from tests.tiny import TINY, apply_jitted, padded_ids, perturbed, tokens
from vaswani.model import block
from vaswani.model.config import ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.masks import Mask
from vaswani.model.mixers import linear
from vaswani.model.mixers.attention import MultiHeadAttention
from vaswani.model.mixers.convolution import GatedConvolution
from vaswani.model.mixers.head_variants import add_bias
from vaswani.model.mixers.recurrent import Recurrent
from vaswani.model.mixers.restricted import RestrictedAttention
from vaswani.model.mixers.strided import StridedAttention
from vaswani.model.noise import Noise
from vaswani.model.parameters import init_params
from vaswani.model.positions import NoPositions
from vaswani.model.stack import Stack
from vaswani.model.transformer import Transformer
from vaswani.run.sharding import placed_shapes

PLAIN = [
    pytest.param({"mixer": "restricted", "neighbours": 3}, id="restricted"),
    pytest.param({"mixer": "strided", "neighbours": 3}, id="strided"),
    pytest.param({"mixer": "linear"}, id="linear"),
    pytest.param({"mixer": "convolution", "kernel_width": 3}, id="convolution"),
    pytest.param({"mixer": "recurrent"}, id="recurrent"),
]
MIXERS = [
    *PLAIN,
    *(
        pytest.param(changes, id=name, marks=pytest.mark.slow)
        for name, changes in {
            "restricted-rope": {"mixer": "restricted", "neighbours": 2, "positions": "rope", "norm": "pre"},
            "restricted-alibi": {"mixer": "restricted", "neighbours": 4, "positions": "alibi"},
            "strided-rope": {"mixer": "strided", "neighbours": 2, "positions": "rope", "norm": "pre"},
            "strided-alibi": {"mixer": "strided", "neighbours": 4, "positions": "alibi", "softmax_one": True},
            "convolution-pre": {"mixer": "convolution", "kernel_width": 4, "norm": "pre"},
        }.items()
    ),
]
mixers = pytest.mark.parametrize("changes", MIXERS)
plain_mixers = pytest.mark.parametrize("changes", PLAIN)
SEGMENTS = jnp.array([[1, 1, 1, 1, 1, 2, 2, 2, 3, 0, 0]], jnp.int32)
POSITIONS = jnp.array([[0, 1, 2, 3, 4, 0, 1, 2, 0, 0, 0]], jnp.int32)


def reach(config, causal):
    """The distances i - j at which position j influences position i through one mixer."""
    far = SEGMENTS.shape[1]
    before, after = {
        "restricted": (config.neighbours - 1, 0) if causal else (config.neighbours // 2,) * 2,
        "strided": (config.neighbours - 1, 0) if causal else (config.neighbours // 2,) * 2,
        "convolution": (config.kernel_width - 1, 0)
        if causal
        else (config.kernel_width // 2, (config.kernel_width - 1) // 2),
    }.get(config.mixer, (far, 0) if causal else (far, far))
    return -after, before


def directly(config, causal):
    """Which position j influences position i of eleven through one mixer, if they are of one sentence, [i,j]."""
    least, most = reach(config, causal)
    distance = np.arange(11)[:, None] - np.arange(11)[None, :]
    near = (distance >= least) & (distance <= most)
    if config.mixer == "strided":
        near = near | ((distance % config.neighbours == 0) & ((distance >= 0) | (not causal)))
    return near


@mixers
@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_position_is_influenced_by_its_own_sentence_as_far_as_the_mixer_reaches_and_in_a_decoder_by_none_after_it(
    changes, causal
):
    config = dataclasses.replace(TINY, **changes)
    stack, rng = Stack(config, cross=False, causal=causal), np.random.default_rng(0)
    rows = tokens(np.ones_like(SEGMENTS), SEGMENTS, POSITIONS)
    x_btd = jnp.asarray(rng.standard_normal((1, 11, config.d_model)), jnp.float32)
    params = jax.jit(stack.init)(jax.random.key(0), x_btd, rows)
    reached = invariants.influence(lambda x: stack.apply(params, x, rows)[0], x_btd)[0, :, 0, :]
    near = np.asarray(Mask(SEGMENTS, SEGMENTS).dense())[0] & directly(config, causal)
    expected = np.linalg.matrix_power(near.astype(int), config.N) > 0
    np.testing.assert_array_equal(reached, expected)


@pytest.mark.slow
@mixers
@pytest.mark.parametrize(
    "invariant",
    [
        invariants.test_padding_and_batch_mates_change_nothing,
        invariants.test_packed_rows_equal_unpacked_ones_in_logits_and_gradients,
        invariants.test_bfloat16_is_close_to_float32_and_parameters_stay_float32,
    ],
)
def test_what_holds_for_every_model_holds(changes, invariant):
    invariant(changes)


@pytest.mark.slow
@plain_mixers
@pytest.mark.parametrize("how", [{"scan_layers": True}, {"remat": "full"}], ids=str)
def test_a_scan_over_layers_and_remat_change_no_number_nor_dropout(changes, how):
    scan.assert_same(how, dataclasses.replace(TINY, **scan.DROPOUTS, **changes))


@mixers
def test_cached_steps_give_the_logits_of_whole_rows(changes):
    config = dataclasses.replace(TINY, **changes)
    params, rng = perturbed(config), np.random.default_rng(1)
    source, target = (padded_ids(rng, [n, n], n, config.vocab_size) for n in (4, 9))
    expected_btv = apply_jitted(config, params, source, target)
    model = Transformer(config)
    start = jax.jit(lambda params, ids: model.apply({"params": params}, ids, 1, 9, method="start"))
    step = jax.jit(lambda params, *args: model.apply({"params": params}, *args, method="step"))
    cache = start(params, jnp.asarray(source))[1]
    for t in range(9):
        logits_bmv, cache = step(params, jnp.asarray(target[:, t : t + 1]), jnp.int32(t), cache)
        tolerance.assert_close(logits_bmv[:, 0], expected_btv[:, t], tolerance.forward(config))


@pytest.mark.slow
@plain_mixers
def test_beam_search_is_the_plain_one_over_the_uncached_model(changes, monkeypatch):
    search.test_equals_the_definition_for_every_kind_of_model_while_the_cache_grows(monkeypatch, {"N": 2, **changes})


@mixers
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_parameters_are_named_by_the_mixer_and_sharded(changes, norm):
    sizes = {"neighbours": 5} | changes | {"norm": norm}
    config = ModelConfig(12, N=2, d_model=8, d_ff=16, h=2, d_k=4, d_v=6, **sizes)
    tree = jax.eval_shape(lambda: init_params(Transformer(config), jax.random.key(0)))
    assert all(config.mixer in tree[stack]["layer_1"] for stack in ("encoder", "decoder"))
    mesh = jax.sharding.AbstractMesh((2, 2, 2), ("data", "fsdp", "tensor"))
    for leaf in jax.tree.leaves(placed_shapes(tree, mesh)):  # which refuses a matrix that no rule names
        assert leaf.ndim < 2 or "fsdp" in leaf.sharding.spec


# Restricted attention.


def cost(module, t):
    """XLA's count of operations of the mixer, without the weights that nobody asked for."""
    x_btd, row_bt = jnp.zeros((1, t, module.config.d_model)), jnp.ones((1, t), jnp.int32)
    params = module.init(jax.random.key(0), x_btd, row_bt, Mask(row_bt, row_bt, True))
    apply = jax.jit(lambda params, x_btd: module.apply(params, x_btd, row_bt, Mask(row_bt, row_bt, True))[0])
    return apply.lower(params, x_btd).compile().cost_analysis()["flops"]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("r", [5, *(pytest.param(r, marks=pytest.mark.slow) for r in (1, 2, 3, 8, 40))])
@pytest.mark.parametrize(
    "kind", [RestrictedAttention, pytest.param(StridedAttention, marks=pytest.mark.slow)], ids=["restricted", "strided"]
)
def test_sparse_attention_is_attention_with_a_mask(kind, r, causal):
    name = "restricted" if kind is RestrictedAttention else "strided"
    config = dataclasses.replace(TINY, mixer=name, neighbours=r)
    rng = np.random.default_rng(r)
    x_btd = jnp.asarray(rng.standard_normal((1, 11, config.d_model)), jnp.float32)
    sparse, full = kind(config, NoPositions()), MultiHeadAttention(config, NoPositions())
    mask = Mask(SEGMENTS, SEGMENTS, causal)
    params = sparse.init(jax.random.key(0), x_btd, POSITIONS, mask)
    seen_bts = mask.dense() & directly(config, causal)[None]
    expected_btd, _, expected_bhts = full.apply(params, x_btd, POSITIONS, Mask(dense_bts=seen_bts))
    y_btd, _, weights_bhts = sparse.apply(params, x_btd, POSITIONS, mask)
    np.testing.assert_allclose(y_btd, expected_btd, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights_bhts, expected_bhts, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["rope", "sinusoidal", "alibi"])
def test_restricted_attention_to_as_many_neighbours_as_there_are_positions_is_full_attention(positions):
    full = dataclasses.replace(TINY, positions=positions)
    restricted = dataclasses.replace(full, mixer="restricted", neighbours=18)
    params, rng = perturbed(full), np.random.default_rng(2)
    source, target = (padded_ids(rng, [5, n], n, full.vocab_size) for n in (9, 8))

    def renamed(tree):
        names = {"self_attention": "restricted"}
        return {names.get(k, k): renamed(v) if isinstance(v, dict) else v for k, v in tree.items()}

    found = apply_jitted(restricted, renamed(params), source, target)
    tolerance.assert_close(found, apply_jitted(full, params, source, target), tolerance.forward(full))
    maps, expected = (
        apply_jitted(config, p, source, target, method="attention_maps")
        for config, p in ((restricted, renamed(params)), (full, params))
    )
    real = (target != 0)[None, :, None, :, None]
    np.testing.assert_allclose(maps["decoder"] * real, expected["decoder"] * real, atol=1e-5)


def test_weights_of_restricted_attention_are_dropped_and_are_the_same_in_the_mean():
    """Bounds are six standard errors of the mean over 400 draws."""
    config = dataclasses.replace(TINY, neighbours=3, P_drop_attention=0.5)
    module, mask = RestrictedAttention(config, NoPositions()), Mask(SEGMENTS, SEGMENTS, causal=True)
    x_btd = jnp.asarray(np.random.default_rng(0).standard_normal((1, 11, config.d_model)), jnp.float32)
    params = module.init(jax.random.key(0), x_btd, POSITIONS, mask)
    whole_btd, _, _ = module.apply(params, x_btd, POSITIONS, mask)

    def drawn(key):
        return module.apply(params, x_btd, POSITIONS, mask, noise=Noise(key, jnp.arange(1)))[0]

    drawn_kbtd = np.asarray(jax.jit(jax.vmap(drawn))(jax.random.split(jax.random.key(1), 400)))
    spread_btd = drawn_kbtd.std(axis=0)
    real_bt = SEGMENTS != 0
    assert np.all(spread_btd[real_bt] > 0)
    error_btd = np.abs(drawn_kbtd.mean(axis=0) - whole_btd)
    assert np.all((error_btd < 6 * spread_btd / 400**0.5)[real_bt])


@pytest.mark.slow
def test_restricted_attention_costs_r_and_not_n():
    module = RestrictedAttention(dataclasses.replace(TINY, mixer="restricted", neighbours=8), NoPositions())
    assert cost(module, 512) / cost(module, 128) == pytest.approx(4, rel=0.05)


@pytest.mark.slow
def test_strided_attention_to_every_sqrt_n_th_position_costs_n_sqrt_n():
    """Four times as many positions cost eight times as much; with projections, which are linear, less."""

    def of_rows(t):
        config = dataclasses.replace(TINY, mixer="strided", neighbours=int(t**0.5))
        return cost(StridedAttention(config, NoPositions()), t)

    assert 4 < of_rows(1_024) / of_rows(256) < 8.5


def test_the_cache_of_restricted_attention_has_room_for_r_tokens_a_beam():
    module = RestrictedAttention(dataclasses.replace(TINY, mixer="restricted", neighbours=3), NoPositions())
    cache = module.init_cache(rows=2, beams=4, slots=64).grow(128)
    assert cache.cache.visible_bmc.shape == (2, 4, 12)


# Linear attention.


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("block", slow_but([4], [1, 2, 3, 4, 64]))
def test_linear_attention_is_its_quadratic_definition_in_blocks_of_any_length(monkeypatch, block, causal):
    monkeypatch.setattr(linear, "BLOCK", block)
    rng = np.random.default_rng(block)
    # So small that their products are not much larger than what is added to the denominator.
    q, k = (1e-3 * np.abs(rng.standard_normal((2, 3, 11, 4))) for _ in range(2))
    v = rng.standard_normal((2, 3, 11, 5))
    segments = jnp.concatenate([SEGMENTS, jnp.ones_like(SEGMENTS)])
    weights = np.einsum("bhtk,bhsk->bhts", q, k) * np.asarray(Mask(segments, segments, causal).dense())[:, None]
    expected = np.einsum("bhts,bhse->bhte", weights / (weights.sum(-1, keepdims=True) + 1e-6), v)
    found = linear.linear_attention(*(jnp.asarray(x, jnp.float32) for x in (q, k, v)), segments, causal)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_features_are_elu_plus_one_and_above_0():
    x = jnp.array([-80.0, -30.0, -1.0, 0.0, 2.0])
    np.testing.assert_allclose(linear.features(x), jax.nn.elu(x) + 1, atol=1e-6)
    assert np.all(linear.features(x) > 0)
    assert np.all(np.isfinite(jax.vmap(jax.grad(linear.features))(x * 1e3)))


@pytest.mark.slow
def test_linear_attention_costs_n_and_not_its_square():
    module = linear.LinearAttention(dataclasses.replace(TINY, mixer="linear"), NoPositions())
    assert cost(module, 1024) / cost(module, 256) == pytest.approx(4, rel=0.05)


# Recurrence.


@pytest.mark.parametrize("causal", [True, False])
def test_the_recurrence_is_an_lstm_over_each_sentence_alone_in_the_encoder_from_both_ends(causal):
    module, rng = Recurrent(TINY, causal), np.random.default_rng(0)
    x_btd = rng.standard_normal((1, 11, 16)).astype(np.float32)
    mask = Mask(SEGMENTS, SEGMENTS, causal)
    fresh = module.init(jax.random.key(0), jnp.asarray(x_btd), POSITIONS, mask)["params"]
    e = 16 if causal else 8
    np.testing.assert_array_equal(fresh["bias"].reshape(-1, 4, e).sum((0, 2)), [0, 16, 0, 0])
    params = {name: rng.standard_normal(leaf.shape).astype(np.float32) for name, leaf in fresh.items()}
    found = module.apply({"params": jax.tree.map(jnp.asarray, params)}, jnp.asarray(x_btd), POSITIONS, mask)[0]
    for direction in range(16 // e):
        wx, wh = params["wx"][direction], params["wh"][direction]
        bias = params["bias"].reshape(-1, 4, e)[direction]
        for begin, end in ((0, 5), (5, 8), (8, 9)):
            h, c = np.zeros(e), np.zeros(e)
            for t in list(range(begin, end))[:: 1 - 2 * direction]:
                gates = np.einsum("d,dge->ge", x_btd[0, t], wx) + np.einsum("f,fge->ge", h, wh) + bias
                enter, keep, leave = 1 / (1 + np.exp(-gates[:3]))
                c = keep * c + enter * np.tanh(gates[3])
                h = leave * np.tanh(c)
                np.testing.assert_allclose(found[0, t, direction * e :][:e], h, rtol=1e-4, atol=1e-5)


# Convolution.


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("w", [1, 2, 3, 6])
def test_the_convolution_is_gated_and_over_each_sentence_alone(w, causal):
    config = dataclasses.replace(TINY, mixer="convolution", kernel_width=w)
    module, rng = GatedConvolution(config), np.random.default_rng(w)
    x_btd = rng.standard_normal((1, 11, 16)).astype(np.float32)
    mask = Mask(SEGMENTS, SEGMENTS, causal)
    params = module.init(jax.random.key(0), jnp.asarray(x_btd), POSITIONS, mask)["params"]
    params["bias"] = jnp.asarray(rng.standard_normal(32), jnp.float32)
    found = module.apply({"params": params}, jnp.asarray(x_btd), POSITIONS, mask)[0]
    before = w - 1 if causal else w // 2
    for begin, end in ((0, 5), (5, 8), (8, 9)):
        alone = np.pad(x_btd[0, begin:end], ((before, w - 1 - before), (0, 0)))
        for t in range(end - begin):
            value, gate = np.einsum("wd,wdge->ge", alone[t : t + w], params["kernel"]) + params["bias"].reshape(2, 16)
            expected = value / (1 + np.exp(-gate))
            np.testing.assert_allclose(found[0, begin + t], expected, rtol=1e-5, atol=1e-5)


# What cannot be.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixer": "recurent"}, "model.mixer is 'recurent'; it must be one of attention, restricted"),
        (
            {"mixer": "recurrent", "positions": "alibi"},
            "model.mixer=recurrent needs model.positions to be sinusoidal, learned or none; it is 'alibi'",
        ),
        (
            {"mixer": "recurrent", "d_model": 15, "positions": "none"},
            "model.mixer=recurrent needs model.d_model to be even; it is 15: each direction has half",
        ),
        ({"mixer": "convolution", "kernel_width": 0}, "model.kernel_width is 0; it must be at least 1"),
        (
            {"mixer": "linear", "positions": "rope"},
            "model.mixer=linear needs model.positions to be sinusoidal, learned or none; it is 'rope'",
        ),
        ({"mixer": "restricted", "neighbours": 0}, "model.neighbours is 0; it must be at least 1"),
        (
            {"mixer": "restricted", "attention_impl": "splash"},
            "model.attention_impl=splash needs model.mixer to be attention; it is 'restricted'",
        ),
    ],
)
def test_what_a_mixer_cannot_do_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


def test_attention_takes_a_mask_of_segments_as_every_other_mixer_does():
    module, mask = MultiHeadAttention(TINY, NoPositions()), Mask(SEGMENTS, SEGMENTS, causal=True)
    x_btd = jnp.asarray(np.random.default_rng(0).standard_normal((1, 11, TINY.d_model)), jnp.float32)
    params = module.init(jax.random.key(0), x_btd, POSITIONS, mask)
    found_btd, _, weights_bhtt = module.apply(params, x_btd, POSITIONS, mask)
    expected_btd, _, expected_bhtt = module.apply(params, x_btd, POSITIONS, mask.with_dense())
    np.testing.assert_array_equal(found_btd, expected_btd)
    np.testing.assert_array_equal(weights_bhtt, expected_bhtt)


def test_the_gradient_of_a_bias_is_added_up_in_float32_in_a_bfloat16_model():
    rng = np.random.default_rng(0)
    cotangent_btd = jnp.asarray(rng.normal(0.5, 1, (400, 64, 8)), jnp.bfloat16)

    def gradient(bias_d, cotangent_btd):
        _, pullback = jax.vjp(lambda bias_d: add_bias(jnp.zeros_like(cotangent_btd), bias_d), bias_d)
        return pullback(cotangent_btd)[0]

    found_d = jax.jit(gradient)(jnp.ones(8), cotangent_btd)
    expected_d = np.asarray(cotangent_btd, np.float64).sum(axis=(0, 1))
    np.testing.assert_allclose(found_d, expected_d, rtol=1e-5)


@pytest.mark.parametrize("kind", [LanguageModel, MaskedLM])
def test_a_model_without_weights_has_no_maps_of_them(kind):
    model = kind(dataclasses.replace(TINY, mixer="linear"))
    rows = tokens(np.ones((1, 3), np.int32))
    params = jax.jit(model.init)(jax.random.key(0), rows)
    assert model.apply(params, rows, method="attention_maps") == {}


def test_encoder_decoder_attention_divides_or_not_whatever_the_mixer_is():
    """So `scale_attention` and `softmax_one` are no keys that a translator with another mixer would ignore."""
    config = dataclasses.replace(TINY, mixer="linear")
    ids = padded_ids(np.random.default_rng(2), [6], 6, config.vocab_size)
    params = perturbed(config)
    cross = {}
    for name, changes in (("usual", {}), ("unscaled", {"scale_attention": False}), ("one", {"softmax_one": True})):
        changed = dataclasses.replace(config, **changes)
        cross[name] = apply_jitted(changed, params, tokens(ids), tokens(ids), method="attention_maps")["cross"]
    assert np.abs(cross["usual"] - cross["unscaled"]).max() > 1e-3
    assert np.all(cross["one"].sum(-1) < 1 - 1e-3)


def test_a_mixer_without_a_class_is_none_of_the_others():
    config = dataclasses.replace(TINY)
    object.__setattr__(config, "mixer", "new")
    with pytest.raises(ValueError, match=r"^model\.mixer is 'new', which model/block\.py:self_mixer does not know$"):
        block.self_mixer(config, causal=True)
