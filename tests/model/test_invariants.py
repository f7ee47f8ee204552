"""What must hold for any parameters: causality and padding, positions, parameter counts and precision."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from tests import tolerance
from tests.tiny import TINY, apply, apply_jitted, noise, padded_ids, perturbed, tokens
from tests.tolerance import relative_error
from vaswani.model.attention import attention, dot_products
from vaswani.model.block import layer_norm
from vaswani.model.config import ModelConfig
from vaswani.model.embed import logits_of
from vaswani.model.parameter_count import parameter_count
from vaswani.model.parameters import init_params
from vaswani.model.positions import alibi_bias, alibi_slopes, rotate, sinusoids, t5_buckets
from vaswani.model.transformer import Transformer

VARIANTS = [
    pytest.param({}, id="paper"),
    pytest.param({"positions": "rope", "norm": "pre", "tie_embeddings": False}, id="rope-pre-untied"),
    pytest.param({"positions": "alibi", "h": 3}, id="alibi"),
    pytest.param({"positions": "learned"}, id="learned"),
    pytest.param({"positions": "none", "N": 3}, id="none"),
]
# Of tests that take seconds each, all but the paper's model are slow.
paper_first = pytest.mark.parametrize(
    "changes", [VARIANTS[0], *(pytest.param(*one.values, id=one.id, marks=pytest.mark.slow) for one in VARIANTS[1:])]
)


def influence(f, x_btd):
    """Which inputs [b, t'] move which outputs [b, t] of f, by the Jacobian: bool [b, t, b, t']."""
    jacobian = jax.jit(jax.jacrev(lambda x: f(x).sum(-1) + (f(x) ** 2).sum(-1)))(x_btd)
    return np.abs(np.asarray(jacobian)).max(-1) > 0


@paper_first
def test_causality_by_gradient_through_all_layers(changes):
    """Logits at t depend on every token up to t and on none after it; on the whole source; on no other row."""
    config = dataclasses.replace(TINY, **changes)
    params, rng = perturbed(config), np.random.default_rng(0)
    source, target = (jnp.asarray(padded_ids(rng, [n, n], n, config.vocab_size)) for n in (4, 5))
    _, target_table, softmax_table = config.tables
    embed = params[target_table]
    b, t, d = 2, 5, config.d_model

    def from_noise(noise_btd):
        """Gives every target token its own embedding, which can be changed separately."""
        rows = (embed[target] + noise_btd).reshape(b * t, d)
        own_ids = config.vocab_size + jnp.arange(b * t).reshape(b, t)
        moved = dict(params)
        moved[target_table] = jnp.concatenate([embed, rows])
        if softmax_table != target_table:
            moved[softmax_table] = jnp.concatenate([params[softmax_table], jnp.zeros_like(rows)])
        # Without one matrix for all, only the target's grow.
        own = config.source_vocab_size if config.tie_embeddings else config.vocab_size
        larger = dataclasses.replace(config, vocab_size=config.vocab_size + b * t, source_vocab_size=own)
        return apply(larger, moved, source, own_ids)[:, :, : config.vocab_size]

    reached = influence(from_noise, jnp.zeros((b, t, d)))
    expected = np.tril(np.ones((t, t), bool))[None, :, None, :] & np.eye(b, dtype=bool)[:, None, :, None]
    np.testing.assert_array_equal(reached, expected)

    def from_memory(memory_bsd):
        source = jnp.ones((2, 4), jnp.int32)
        return logits_of(*apply(config, params, target, memory_bsd, source, method="decode"))

    memory = apply_jitted(config, params, source, method="encode")
    everything = np.broadcast_to(np.eye(b, dtype=bool)[:, None, :, None], (b, t, b, 4))
    np.testing.assert_array_equal(influence(from_memory, memory), everything)


@paper_first
def test_padding_and_batch_mates_change_nothing(changes):
    config = dataclasses.replace(TINY, **changes)
    params, rng = perturbed(config), np.random.default_rng(1)
    source, target = padded_ids(rng, [5], 5, config.vocab_size), padded_ids(rng, [4], 4, config.vocab_size)
    alone = apply_jitted(config, params, source, target)
    mates_source = np.concatenate([padded_ids(rng, [2, 9], 9, config.vocab_size), np.pad(source, ((0, 0), (0, 4)))])
    mates_target = np.concatenate([padded_ids(rng, [8, 1], 8, config.vocab_size), np.pad(target, ((0, 0), (0, 4)))])
    together = apply_jitted(config, params, mates_source, mates_target)
    assert np.isfinite(together).all()
    tolerance.assert_close(together[2:, :4], alone, tolerance.forward(config))


@paper_first
def test_packed_rows_equal_unpacked_ones_in_logits_and_gradients(changes):
    config = dataclasses.replace(TINY, **changes)
    params, rng = perturbed(config), np.random.default_rng(2)
    lengths = {"source": [3, 4], "target": [4, 2]}
    ids = {side: padded_ids(rng, n, 4, config.vocab_size) for side, n in lengths.items()}
    packed, segments, positions = {}, {}, {}
    for side, (first, second) in lengths.items():
        packed[side] = np.concatenate([ids[side][0, :first], ids[side][1, :second], [0]])[None]
        segments[side] = np.array([[1] * first + [2] * second + [0]], np.int32)
        positions[side] = np.array([[*range(first), *range(second), 0]], np.int32)
    cotangent = rng.standard_normal((6, config.vocab_size)).astype(np.float32)

    def separately(params):
        logits = apply(config, params, ids["source"], ids["target"])
        logits = jnp.concatenate([logits[0, :4], logits[1, :2]])
        return (logits * cotangent).sum(), logits

    def together(params):
        rows = [tokens(packed[side], segments[side], positions[side]) for side in ("source", "target")]
        logits = apply(config, params, *rows)[0, :6]
        return (logits * cotangent).sum(), logits

    (expected_gradients, expected), (gradients, logits) = (
        jax.jit(jax.grad(f, has_aux=True))(params) for f in (separately, together)
    )
    tolerance.assert_close(logits, expected, tolerance.forward(config))
    assert tolerance.gradient_error(gradients, expected_gradients) <= tolerance.backward(config)


def test_encoder_without_positions_is_permutation_equivariant():
    rng, order = np.random.default_rng(3), np.array([4, 0, 3, 1, 5, 2])
    source = padded_ids(rng, [6, 6], 6, TINY.vocab_size)
    for kind, equivariant in (("none", True), ("sinusoidal", False)):
        config = dataclasses.replace(TINY, positions=kind)
        params = perturbed(config)
        memory = np.asarray(apply_jitted(config, params, source, method="encode"))
        permuted = np.asarray(apply_jitted(config, params, source[:, order], method="encode"))
        assert (relative_error(permuted, memory[:, order]) <= tolerance.forward(config)) == equivariant


def test_rope_turns_by_the_formula_and_sees_differences_of_positions_only():
    rng = np.random.default_rng(4)
    q, k = (jnp.asarray(rng.standard_normal((1, 2, 5, 6)), jnp.float32) for _ in range(2))
    positions = jnp.arange(5, dtype=jnp.int32)[None]

    def logits(shift):
        return jnp.einsum("bhtk,bhsk->bhts", rotate(q, positions + shift), rotate(k, positions + shift))

    np.testing.assert_allclose(logits(17), logits(0), atol=1e-4)
    far = jnp.einsum("bhtk,bhsk->bhts", rotate(q, positions + 17), rotate(k, positions))
    assert np.abs(far - logits(0)).max() > 0.1
    x = jnp.asarray(rng.standard_normal((1, 1, 5, 6)), jnp.float32)
    angles = np.arange(5)[:, None] / 10_000 ** (2 * np.arange(3) / 6)
    numbers = np.asarray(x[0, 0, :, 0::2]) + 1j * np.asarray(x[0, 0, :, 1::2])
    turned = numbers * np.exp(1j * angles)
    np.testing.assert_allclose(rotate(x, positions)[0, 0, :, 0::2], turned.real, atol=1e-6)
    np.testing.assert_allclose(rotate(x, positions)[0, 0, :, 1::2], turned.imag, atol=1e-6)


@pytest.mark.parametrize("kind", ["rope", "alibi", "t5", "shaw"])
def test_shifting_every_position_changes_nothing_where_positions_are_relative(kind):
    config = dataclasses.replace(TINY, positions=kind)
    params, rng = perturbed(config), np.random.default_rng(5)
    source = jnp.asarray(padded_ids(rng, [6], 6, config.vocab_size))
    positions = jnp.arange(6, dtype=jnp.int32)[None]
    memory = apply_jitted(config, params, tokens(source, None, positions), method="encode")
    shifted = apply_jitted(config, params, tokens(source, None, positions + 9), method="encode")
    tolerance.assert_close(shifted, memory, tolerance.forward(config))
    stretched = apply_jitted(config, params, tokens(source, None, positions * 2), method="encode")
    assert np.abs(stretched - memory).max() > 1e-3


def test_alibi_slopes_and_bias():
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-i for i in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(16), [2.0 ** (-i / 2) for i in range(1, 17)])
    np.testing.assert_allclose(alibi_slopes(1), [2.0**-8])
    np.testing.assert_allclose(alibi_slopes(3), [2.0**-4, 2.0**-8, 2.0**-2])
    np.testing.assert_allclose(alibi_slopes(6), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    eight, sixteen = alibi_slopes(8), alibi_slopes(16)
    np.testing.assert_allclose(alibi_slopes(12), [*eight, *sixteen[0::2][:4]])
    positions = jnp.arange(4, dtype=jnp.int32)[None]
    bias = np.asarray(alibi_bias(positions, positions, 2))
    distance = np.abs(np.arange(4)[:, None] - np.arange(4))
    np.testing.assert_allclose(bias, -np.array([2.0**-4, 2.0**-8])[None, :, None, None] * distance)
    np.testing.assert_array_equal(bias, bias.swapaxes(2, 3))


def test_alibi_encoder_is_symmetric_under_reversal():
    config = dataclasses.replace(TINY, positions="alibi")
    params = perturbed(config)
    source = padded_ids(np.random.default_rng(6), [6], 6, config.vocab_size)
    memory, mirrored = (apply_jitted(config, params, ids, method="encode") for ids in (source, source[:, ::-1]))
    tolerance.assert_close(mirrored, memory[:, ::-1], tolerance.forward(config))


def test_sinusoids_are_as_printed_and_a_shift_is_a_linear_map():
    """PE(pos + k) = PE(pos) M_k with one matrix M_k for all pos: the paper's reason for choosing them (section 3.5)."""
    table = np.asarray(sinusoids(jnp.arange(60, dtype=jnp.int32)[None], 8))[0]
    pos, i = 7, 2
    np.testing.assert_allclose(table[pos, 2 * i], np.sin(pos / 10_000 ** (2 * i / 8)), rtol=1e-6)
    np.testing.assert_allclose(table[pos, 2 * i + 1], np.cos(pos / 10_000 ** (2 * i / 8)), rtol=1e-6)
    np.testing.assert_allclose(table[0], [0, 1] * 4)
    shift, *_ = np.linalg.lstsq(table[:50], table[10:], rcond=None)
    np.testing.assert_allclose(table[:50] @ shift, table[10:], atol=1e-5)


@pytest.mark.parametrize(
    "vocab_size, expected, changes",
    [
        (37_000, 63_045_632, {}),
        (32_768, 60_878_848, {}),
        (37_000, 214_171_648, {"d_model": 1024, "d_ff": 4096, "h": 16}),
        (32_768, 209_838_080, {"d_model": 1024, "d_ff": 4096, "h": 16}),
    ],
)
def test_parameter_counts_of_base_and_big(vocab_size, expected, changes):
    """The equations' own count. The paper prints 65e6 and 213e6, which no single vocabulary gives."""
    assert parameter_count(ModelConfig(vocab_size=vocab_size, **changes)) == expected


def test_a_published_count_of_a_model_with_vocabularies_of_their_own():
    """bentrevett/pytorch-seq2seq, notebook 6: German to English, words with two occurrences or more (Multi30k)."""
    sizes = {"N": 3, "d_model": 256, "d_ff": 512, "h": 8, "d_k": 32, "d_v": 32, "max_positions": 100}
    theirs = {"positions": "learned", "biases": True, "output_bias": True, "tie_embeddings": False}
    assert parameter_count(ModelConfig(5_893, source_vocab_size=7_853, **sizes, **theirs)) == 9_038_341


def test_parameters_are_float32():
    tree = jax.eval_shape(
        lambda: init_params(Transformer(dataclasses.replace(TINY, dtype="bfloat16")), jax.random.key(0))
    )
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(tree))


def test_each_size_of_the_model_counts_where_the_equations_have_it():
    """By hand: E; per layer 4 d h k of attention, twice in the decoder, the feed-forward network, and the norms."""
    config = ModelConfig(11, N=3, d_model=10, d_ff=14, h=3, d_k=4, d_v=6, positions="learned", max_positions=7)
    attention = 2 * 10 * 3 * (4 + 6)
    feed_forward = 2 * 10 * 14 + 14 + 10
    encoder_layer = attention + feed_forward + 2 * 20
    decoder_layer = 2 * attention + feed_forward + 3 * 20
    expected = 11 * 10 + 2 * 7 * 10 + 3 * (encoder_layer + decoder_layer)
    assert parameter_count(config) == expected
    only_decoder = 11 * 10 + 7 * 10 + 3 * encoder_layer
    assert parameter_count(config, decoder_only=True) == only_decoder
    untied = dataclasses.replace(config, tie_embeddings=False, norm="pre", positions="t5")
    assert parameter_count(untied) == expected + 2 * 11 * 10 - 2 * 7 * 10 + 2 * 20 + 2 * 32 * 3


@paper_first
def test_attention_maps_are_distributions_over_what_may_be_seen(changes):
    config = dataclasses.replace(TINY, **changes)
    params, rng = perturbed(config), np.random.default_rng(7)
    source = padded_ids(rng, [6, 2], 6, config.vocab_size)
    target = padded_ids(rng, [3, 5], 5, config.vocab_size)
    maps = apply_jitted(config, params, source, target, method="attention_maps")
    source_mask = (source != 0)[:, None, :] & np.ones((2, 6, 6), bool)
    target_mask = (target != 0)[:, None, :] & np.tril(np.ones((5, 5), bool))
    cross_mask = (source != 0)[:, None, :] & np.ones((2, 5, 6), bool)
    for name, mask, real in (
        ("encoder", source_mask, source != 0),
        ("decoder", target_mask, target != 0),
        ("cross", cross_mask, target != 0),
    ):
        weights = np.asarray(maps[name])
        assert weights.shape == (config.N, 2, config.h, *mask.shape[1:])
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
        masked = np.broadcast_to((real[:, :, None] & ~mask)[None, :, None], weights.shape)
        assert (weights[masked] == 0).all()
        seen = np.broadcast_to((real[:, :, None] & mask)[None, :, None], weights.shape)
        assert (weights[seen] > 0).all()


def test_a_query_that_sees_no_key_gets_uniform_weights():
    x = jnp.ones((1, 1, 2, 4))
    k_bhsk = jnp.tile(x, (1, 1, 2, 1))
    heads, weights = attention(x, k_bhsk, k_bhsk, jnp.zeros((1, 2, 4), bool))
    np.testing.assert_allclose(weights, 0.25)
    np.testing.assert_allclose(heads, 1.0)


def test_attention_is_equation_1():
    """One query and head at a time, in float64, as section 3.2.1 has it; a later key is illegal."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 3, 5, size)) for size in (6, 6, 4))
    mask = np.tri(5, dtype=bool)
    given = [jnp.asarray(x, jnp.float32) for x in (q, k, v)]
    heads, weights = attention(*given, jnp.broadcast_to(mask[None], (2, 5, 5)))
    for b, h, t in np.ndindex(2, 3, 5):
        exp_s = np.exp(k[b, h, mask[t]] @ q[b, h, t] / np.sqrt(6))
        expected_s = exp_s / exp_s.sum()
        np.testing.assert_allclose(weights[b, h, t], np.pad(expected_s, (0, 4 - t)), rtol=1e-5)
        np.testing.assert_allclose(heads[b, h, t], expected_s @ v[b, h, mask[t]], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "positions": "rope"}], ids=["paper", "rope-pre"])
def test_remat_changes_nothing_not_even_dropout(changes):
    config = dataclasses.replace(TINY, P_drop=0.2, P_drop_attention=0.1, P_drop_relu=0.1, **changes)
    params, rng = perturbed(config), np.random.default_rng(8)
    source, target = (jnp.asarray(padded_ids(rng, [5, 3], 5, config.vocab_size)) for _ in range(2))

    def gradients(remat):
        model = Transformer(dataclasses.replace(config, remat=remat))

        def f(params):
            out = model.apply({"params": params}, tokens(source), tokens(target), noise(1, 2))
            return (out**2).mean()

        traced = jax.jit(jax.value_and_grad(f)).trace(params)
        return traced.lower().compile()(params), str(traced.jaxpr)

    ((value, gradient), jaxpr), ((expected, expected_gradient), plain) = gradients("full"), gradients("none")
    assert "remat" in jaxpr or "checkpoint" in jaxpr
    assert "remat" not in plain and "checkpoint" not in plain
    np.testing.assert_allclose(value, expected, rtol=2 * tolerance.forward(config))  # a mean of squares
    assert tolerance.gradient_error(gradient, expected_gradient) <= tolerance.backward(config)


def test_dropout_acts_in_training_only_and_depends_on_the_key():
    config = dataclasses.replace(TINY, P_drop=0.3, dropout_bits="hash")
    params = perturbed(config)
    ids = jnp.ones((1, 4), jnp.int32)

    forward = jax.jit(lambda seed: apply(config, params, ids, ids, noise(seed, 1, config.dropout_bits)))
    assert np.abs(forward(1) - forward(2)).max() > 1e-3
    without = apply_jitted(dataclasses.replace(config, P_drop=0.0), params, ids, ids)
    np.testing.assert_array_equal(apply_jitted(config, params, ids, ids), without)


@paper_first
def test_bfloat16_is_close_to_float32_and_parameters_stay_float32(changes):
    config = dataclasses.replace(TINY, **changes)
    params, rng = perturbed(config), np.random.default_rng(9)
    source, target = (jnp.asarray(padded_ids(rng, [6, 4], 6, config.vocab_size)) for _ in range(2))
    half = dataclasses.replace(config, dtype="bfloat16")
    logits = apply_jitted(half, params, source, target)
    expected = apply_jitted(config, params, source, target)
    assert logits.dtype == jnp.float32
    assert 1e-5 < relative_error(logits, expected) < 3e-2
    memory = jax.eval_shape(lambda p: apply(half, p, source, method="encode"), params)
    maps = jax.eval_shape(lambda p: apply(half, p, source, target, method="attention_maps"), params)
    assert (memory.dtype, maps["cross"].dtype) == (jnp.bfloat16, jnp.float32)
    gradient = jax.eval_shape(jax.grad(lambda p: apply(half, p, source, target).sum()), params)
    fresh = jax.eval_shape(lambda: init_params(Transformer(half), jax.random.key(0)))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((gradient, fresh)))


def test_untied_embeddings_are_three_matrices_and_equal_the_tied_model_where_they_are_equal():
    params = perturbed(TINY)
    rng = np.random.default_rng(10)
    source, target = (padded_ids(rng, [5], 5, TINY.vocab_size) for _ in range(2))
    untied = dataclasses.replace(TINY, tie_embeddings=False)
    copies = dict.fromkeys(("source_embed", "target_embed", "softmax"), params["embed"])
    copies |= {name: value for name, value in params.items() if name != "embed"}
    expected = apply_jitted(TINY, params, source, target)
    tolerance.assert_close(apply_jitted(untied, copies, source, target), expected, tolerance.forward(TINY))
    for name in ("source_embed", "target_embed", "softmax"):
        moved = copies | {name: copies[name] * 1.1}
        change = apply_jitted(untied, moved, source, target) - apply_jitted(untied, copies, source, target)
        assert np.abs(change).max() > 1e-3


def test_learned_positions_have_an_end():
    config = dataclasses.replace(TINY, positions="learned", max_positions=4)
    with pytest.raises(ValueError, match="max_positions is 4"):
        apply_jitted(config, perturbed(config), jnp.ones((1, 5), jnp.int32), jnp.ones((1, 2), jnp.int32))


def test_initial_matrices_are_glorot_uniform_over_all_heads_and_embeddings_are_normal():
    """As in tensor2tensor; the tolerances are about six standard errors."""
    config = ModelConfig(
        500, N=1, d_model=48, d_ff=160, h=3, d_k=20, d_v=36, positions="learned", max_positions=400, biases=True
    )
    fans = {"wq": 48 + 60, "wk": 48 + 60, "wv": 48 + 108, "wo": 108 + 48, "w1": 48 + 160, "w2": 160 + 48}
    for path, leaf in flatten_dict(init_params(Transformer(config), jax.random.key(0)), sep="/").items():
        name = path.rpartition("/")[2]
        if name in fans:
            bound = (6 / fans[name]) ** 0.5
            assert 0.99 * bound < np.abs(leaf).max() <= bound * (1 + 1e-6), path
            assert float(np.std(leaf)) == pytest.approx(bound / 3**0.5, rel=0.05), path
        elif name in ("embed", "source_positions", "target_positions"):
            assert float(np.std(leaf)) == pytest.approx(48**-0.5, rel=0.03), path
            assert np.abs(leaf).max() > 3 * 48**-0.5, path
        else:
            np.testing.assert_array_equal(leaf, float(name == "scale"), err_msg=path)


def test_t5s_buckets_are_one_for_each_near_distance_and_then_ranges_that_grow():
    """Of 32, 16 for a side; test_parity.py compares them with their authors', where transformers is installed."""
    first = [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]  # distance of each bucket
    before = np.searchsorted(first, np.arange(129), "right") - 1
    found = t5_buckets(32, causal=False)
    np.testing.assert_array_equal(found[128::-1], before)
    np.testing.assert_array_equal(found[129:], 16 + before[1:])
    assert not t5_buckets(32, causal=True)[129:].any()


def test_products_of_bfloat16_are_added_up_in_float32():
    q_bhtk, k_bhsk = jax.random.normal(jax.random.key(0), (2, 1, 1, 9, 64)).astype(jnp.bfloat16)
    exact = np.einsum("bhtk,bhsk->bhts", np.asarray(q_bhtk, np.float64), np.asarray(k_bhsk, np.float64))
    found = dot_products(q_bhtk, k_bhsk)
    assert found.dtype == jnp.float32 and np.abs(found - exact).max() < 1e-4


def test_a_layer_norm_far_from_zero_is_exact():
    """E(x^2) - E(x)^2 would lose most digits."""
    x_btd = 1_000 + jax.random.normal(jax.random.key(0), (2, 3, 64))
    found, _ = layer_norm(TINY).init_with_output(jax.random.key(1), x_btd)
    exact = np.asarray(x_btd, np.float64)
    exact = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
    assert np.abs(found - exact).max() < 1e-3
