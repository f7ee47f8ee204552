"""Both bit generators: exact rate, independence (also of shifted masks), inverted scaling and plumbing.

Bounds are five or six standard deviations of the statistic, and keys are fixed: a failure means a changed generator.
"""

import dataclasses
import itertools
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiny import TINY, apply, apply_jitted, noise, perturbed
from vaswani.configs.rules import CHOICES
from vaswani.model import block, vision
from vaswani.model import embed as embeddings
from vaswani.model import noise as noise_module
from vaswani.model.embed import Embedding
from vaswani.model.language_model import LanguageModel
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.mixers import attention, restricted, strided
from vaswani.model.noise import Noise, dropout, index_words, keep_mask
from vaswani.model.prefix_lm import PrefixLM
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens

SHAPE = (128, 512)
ROWS = jnp.arange(128)


def mask(key, rate=0.1, bits="hash", shape=SHAPE):
    return np.asarray(dropout(jnp.ones(shape), rate, Noise(key, jnp.arange(shape[0]), bits)) != 0)


def standardised(keep):
    centred = keep.astype(np.float64) - keep.mean()
    return centred.ravel() / np.linalg.norm(centred)


def correlation_at_every_shift(first, second):
    """Circular correlation, at every shift of the flattened arrays: along rows, columns and everything between."""
    return np.fft.irfft(np.fft.rfft(first) * np.conj(np.fft.rfft(second)), n=first.size)


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_rate(bits, rate):
    count = 1 << 20
    dropped = count - mask(jax.random.key(3), rate, bits, (1024, 1024)).sum()
    assert abs(dropped - count * rate) < 5 * np.sqrt(count * rate * (1 - rate))


def test_a_small_rate_is_not_rounded_to_nothing():
    """Of 2^22 elements about four are dropped."""
    seed = jax.random.bits(jax.random.key(3), (2,))
    dropped = ~keep_mask(seed, (2048, 2048), 2.0**-20, jnp.arange(2048))
    assert 0 < dropped.sum() < 15


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_rate_of_every_row_and_column(bits):
    keep = mask(jax.random.key(4), 0.1, bits, (512, 512))
    for axis in (0, 1):
        z = (keep.sum(axis) - 0.9 * 512) / np.sqrt(512 * 0.09)
        assert np.abs(z).max() < 5
        assert 0.8 < z.std() < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_masks_of_seeds_steps_and_layers_are_independent_at_every_shift(bits):
    grid = itertools.product(range(3), range(3), range(3))
    keys = [jax.random.fold_in(jax.random.fold_in(jax.random.key(a), b), c) for a, b, c in grid]
    masks = [standardised(mask(key, bits=bits)) for key in keys]
    bound = 6.5 / np.sqrt(masks[0].size)
    for first, second in itertools.combinations(masks, 2):
        assert np.abs(correlation_at_every_shift(first, second)).max() < bound


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_positions_within_a_mask_are_independent(bits):
    for seed in range(4):
        keep = standardised(mask(jax.random.key(seed), bits=bits))
        assert np.abs(correlation_at_every_shift(keep, keep)[1:]).max() < 6.5 / np.sqrt(keep.size)


@pytest.mark.parametrize("bit", range(32))
def test_near_seeds_are_not_shifted_copies(bit):
    """The worst case: offsets a few elements apart, and second words that differ in a single bit."""
    first = standardised(np.asarray(keep_mask(jnp.array([7, 99], jnp.uint32), SHAPE, 0.1, ROWS)))
    for offset in (0, 5, 512):
        seed = jnp.array([7 + offset, 99 ^ (1 << bit)], jnp.uint32)
        second = standardised(np.asarray(keep_mask(seed, SHAPE, 0.1, ROWS)))
        assert np.abs(correlation_at_every_shift(first, second)).max() < 6.5 / np.sqrt(first.size)


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
@pytest.mark.parametrize("axis", [0, 1])
def test_bytes_of_eight_neighbours_are_uniform(bits, axis):
    keep = mask(jax.random.key(5), 0.5, bits, (1024, 1024))
    values = np.packbits(keep, axis=axis).ravel()
    counts, expected = np.bincount(values, minlength=256), values.size / 256
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255)


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_expected_value_is_preserved_and_survivors_are_scaled(bits):
    x = jnp.full((1024, 1024), 3.0)
    y = np.asarray(dropout(x, 0.25, Noise(jax.random.key(6), jnp.arange(1024), bits)))
    np.testing.assert_allclose(np.unique(y), [0.0, 4.0], rtol=1e-6)
    assert abs(y.mean() - 3.0) < 5 * 4.0 * np.sqrt(0.25 * 0.75 / y.size)


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_jit_typed_and_raw_keys_give_one_mask(bits):
    key = jax.random.key(7)
    expected = mask(key, bits=bits)
    np.testing.assert_array_equal(expected, mask(key, bits=bits))
    np.testing.assert_array_equal(expected, mask(jax.random.key_data(key), bits=bits))
    jitted = jax.jit(lambda x, key: dropout(x, 0.1, Noise(key, ROWS, bits)))(jnp.ones(SHAPE), key)
    np.testing.assert_array_equal(expected, np.asarray(jitted) != 0)
    assert (expected != mask(jax.random.key(8), bits=bits)).any()


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_rows_are_treated_by_their_numbers_whatever_is_beside_them(bits):
    whole, some = mask(jax.random.key(11), bits=bits, shape=(12, 5, 64)), jnp.array([7, 2, 11])
    part = dropout(jnp.ones((3, 5, 64)), 0.1, Noise(jax.random.key(11), some, bits))
    np.testing.assert_array_equal(part != 0, whole[some])


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_gradient_passes_the_same_mask(bits):
    key, x = jax.random.key(9), jax.random.normal(jax.random.key(10), SHAPE)
    y, pullback = jax.vjp(lambda x: dropout(x, 0.1, Noise(key, ROWS, bits)), x)
    (gradient,) = pullback(jnp.ones(SHAPE))
    np.testing.assert_allclose(gradient, np.where(np.asarray(y) != 0, 1 / 0.9, 0.0), rtol=1e-6)


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_rate_zero_and_no_noise_return_x_and_dtype_is_kept(bits):
    x, noise = jnp.ones((2, 3), jnp.bfloat16), Noise(jax.random.key(0), jnp.arange(2), bits)
    assert dropout(x, 0.0, noise) is x
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.5, noise).dtype == jnp.bfloat16


def test_index_words_are_the_row_major_index_and_split_where_one_word_is_not_enough(monkeypatch):
    low, high = index_words((3, 4, 5), jnp.arange(3))
    assert high is None
    np.testing.assert_array_equal(low.ravel(), np.arange(60))
    monkeypatch.setattr(noise_module, "WORD", 16)
    low, high = index_words((3, 2, 2, 5), jnp.arange(3))
    index = np.arange(60)
    np.testing.assert_array_equal(np.asarray(low).ravel(), index % 10)
    np.testing.assert_array_equal(np.asarray(high).ravel(), index // 10)


def test_elements_that_differ_in_the_high_word_alone_are_independent(monkeypatch):
    rows, columns = (jax.lax.broadcasted_iota(jnp.uint32, SHAPE, axis) for axis in (0, 1))
    monkeypatch.setattr(noise_module, "index_words", lambda shape, rows_b: (columns, rows))
    keep = mask(jax.random.key(3), rate=0.5)
    agreeing = (keep[:-1] == keep[1:]).mean()
    assert abs(agreeing - 0.5) < 6 * 0.5 / (127 * 512) ** 0.5


def test_arrays_beyond_one_word_get_two_and_axes_beyond_it_are_refused():
    shape = (2, 2**31 + 2)
    low, high = jax.eval_shape(lambda: index_words(shape, jnp.arange(2)))
    assert low.shape == high.shape == shape
    with pytest.raises(ValueError, match="axis longer"):
        index_words((2**32 + 1,), jnp.arange(1))


@pytest.mark.parametrize("rate, bits, message", [(1.0, "hash", "rate"), (-0.1, "hash", "rate"), (0.1, "rbg", "bits")])
def test_bad_arguments(rate, bits, message):
    with pytest.raises(ValueError, match=message):
        dropout(jnp.ones(3), rate, Noise(jax.random.key(0), jnp.arange(3), bits))


SITES = ("P_drop", "P_drop_embeddings", "P_drop_attention", "P_drop_relu")


@pytest.mark.parametrize("site", [SITES[0], *(pytest.param(site, marks=pytest.mark.slow) for site in SITES[1:])])
def test_every_rate_of_dropout_acts_by_itself_and_zero_switches_it_off(site):
    """With the others off, the output changes with the noise of this one, and by nothing at rate 0."""
    rates = dict.fromkeys(SITES, 0.0)
    params = perturbed(dataclasses.replace(TINY, **rates))
    ids = np.array([[5, 6, 7, 8]], np.int32)
    still = apply_jitted(dataclasses.replace(TINY, **rates), params, ids, ids, noise(1, 1))
    np.testing.assert_array_equal(still, apply_jitted(TINY, params, ids, ids))
    config = dataclasses.replace(TINY, **rates | {site: 0.5})
    dropped = jax.jit(lambda params: apply(config, params, ids, ids, noise(1, 1)))(params)
    assert np.abs(dropped - still).max() > 1e-3


@pytest.mark.parametrize("rates, rate", [((0.0, -1.0), 0.0), ((0.5, -1.0), 0.5), ((0.5, 0.2), 0.2), ((0.5, 0.0), 0.0)])
def test_embeddings_are_dropped_at_the_rate_of_sub_layers_unless_they_have_their_own(rates, rate):
    config = dataclasses.replace(TINY, P_drop=rates[0], P_drop_embeddings=rates[1])
    table, ids = jnp.ones((TINY.vocab_size, TINY.d_model)), jnp.ones((8, 5), jnp.int32)
    x = Embedding(config, table).encode(ids, jnp.zeros_like(ids), noise(1))
    assert (np.asarray(x) == 0).mean() == pytest.approx(rate, abs=0.05)


def test_only_the_rate_of_embeddings_may_be_minus_1():
    with pytest.raises(ValueError, match=r"below 1, or -1, which is model\.P_drop"):
        dataclasses.replace(TINY, P_drop_embeddings=-0.5)
    with pytest.raises(ValueError, match=r"P_drop is -1.0; it must be at least 0 and below 1$"):
        dataclasses.replace(TINY, P_drop=-1.0)


RATES = {"P_drop": 0.1, "P_drop_attention": 0.2, "P_drop_relu": 0.3, "P_drop_embeddings": 0.4}
ROW = Tokens.of(jnp.asarray([[5, 6, 7, 8]], jnp.int32))
IMAGE = vision.ImageConfig(height=4, width=4, patch_height=2, patch_width=2, classes=3)
TWO_STACKS = {0.1: 10, 0.2: 6, 0.3: 4, 0.4: 2}  # of two layers each: sub-layers, weights, hidden layers, embeddings
ONE_STACK = {0.1: 4, 0.2: 2, 0.3: 2, 0.4: 1}
PLACES = {
    "paper": (Transformer, {}, (ROW, ROW), TWO_STACKS),
    "restricted": (Transformer, {"mixer": "restricted", "neighbours": 3}, (ROW, ROW), TWO_STACKS),
    "strided": (Transformer, {"mixer": "strided", "neighbours": 3}, (ROW, ROW), TWO_STACKS),
    "linear": (Transformer, {"mixer": "linear"}, (ROW, ROW), {0.1: 10, 0.2: 2, 0.3: 4, 0.4: 2}),
    "language model": (LanguageModel, {}, (ROW,), ONE_STACK),
    "masked": (MaskedLM, {}, (ROW,), ONE_STACK),
    "prefix": (PrefixLM, {"prefix": "full"}, (ROW, ROW), ONE_STACK),
    "vision": (partial(vision.Vision, image=IMAGE), {}, (jnp.zeros((1, 4, 4)), jnp.ones(1, jnp.int32)), ONE_STACK),
}


@pytest.mark.parametrize("name", PLACES)
def test_every_place_of_dropout_has_its_rate_and_noise_of_its_own(monkeypatch, name):
    """A key is here the numbers that were folded into it, so a failure shows which places are alike."""
    kind, changes, inputs, expected = PLACES[name]
    model = kind(dataclasses.replace(TINY, **RATES | changes))
    params = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    found = []

    def spy(x, rate, noise):
        found.append((noise.key, rate))
        return x

    for module in (block, embeddings, attention, restricted, strided, vision):
        monkeypatch.setattr(module, "dropout", spy)
    monkeypatch.setattr(jax.random, "fold_in", lambda key, site: (*key, site))
    jax.eval_shape(lambda params: model.apply(params, *inputs, Noise((), jnp.arange(1))), params)
    assert len({key for key, _ in found}) == len(found), found
    assert Counter(rate for _, rate in found) == expected, found


@pytest.mark.parametrize("bits", CHOICES["model.dropout_bits"])
def test_survivors_in_bfloat16_are_scaled_as_in_float32_in_the_mean(bits):
    x = jax.random.uniform(jax.random.key(12), SHAPE, minval=1.0, maxval=2.0).astype(jnp.bfloat16)
    y = np.asarray(dropout(x, 0.1, Noise(jax.random.key(13), ROWS, bits)), np.float64)
    kept = y != 0
    assert y[kept].sum() / np.asarray(x, np.float64)[kept].sum() == pytest.approx(1 / 0.9, rel=3e-4)
