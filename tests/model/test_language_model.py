"""The language model: causal, its cache is the whole model, prompts are read at once as they are step by step."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.search.test_search import EXTRA, assert_same, plain_beam_search
from tests.tiny import TINY
from tests.tolerance import relative_error
from vaswani.ids import BOS
from vaswani.model.language_model import LanguageModel
from vaswani.model.parameters import init_params
from vaswani.search import state
from vaswani.search.options import Decoding, Sampling
from vaswani.search.searches import run_search
from vaswani.tokens import Tokens

SIZES = dataclasses.replace(TINY, vocab_size=12, d_k=8, d_v=6, max_positions=24)
PROMPTS_BS = np.array([[BOS, 5, 7, 4], [BOS, 0, 0, 0], [BOS, 9, 0, 0], [0, 0, 0, 0], [BOS, 3, 11, 0]], np.int32)
VARIANTS = {
    "sinusoidal": {},
    "learned": {"positions": "learned", "norm": "pre", "activation": "gelu"},
    "rope": {"positions": "rope", "biases": True, "scale_embeddings": False},
    "alibi": {"positions": "alibi", "tie_embeddings": False, "activation": "silu"},
    "t5": {"positions": "t5", "norm_kind": "rms", "feed_forward_biases": False, "scale_attention": False},
    "restricted": {"mixer": "restricted", "neighbours": 4, "positions": "rope"},
    "linear": {"mixer": "linear", "norm": "pre"},
    "convolution": {"mixer": "convolution", "kernel_width": 4},
    "recurrent": {"mixer": "recurrent"},
    "none": {"positions": "none", "norm": "pre", "activation": "gelu_tanh", "norm_epsilon": 1e-3},
}
# Of tests that take seconds each, all but two are slow.
SINUSOIDAL_FIRST = [pytest.param(name, marks=[] if name == "sinusoidal" else [pytest.mark.slow]) for name in VARIANTS]


@functools.cache
def tiny(variant="sinusoidal", sharpness=2.5, **fields):
    """A random model whose next-token distributions are peaked, and none of whose biases is 0."""
    config = dataclasses.replace(SIZES, **VARIANTS[variant], **fields)
    rng = np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: leaf + 0.1 * rng.standard_normal(leaf.shape).astype(np.float32),
        init_params(LanguageModel(config), jax.random.key(0)),
    )
    return LanguageModel(config), params | {"embed": params["embed"] * sharpness}


@functools.partial(jax.jit, static_argnums=0)
def apply(model, params, ids_bt):
    return model.apply({"params": params}, Tokens.of(ids_bt))


def whole(model, params, ids_bt):
    return apply(model, params, jnp.asarray(ids_bt, jnp.int32))


class PromptOracle:
    """Log-probabilities after a prompt and any prefix, by the whole model without a cache; see `Oracle`."""

    def __init__(self, model, params, prompt):
        self.prompt, self.seen = [int(token) for token in prompt if token], {}
        self.apply = jax.jit(lambda ids: jax.nn.log_softmax(model.apply({"params": params}, Tokens.of(ids))))

    def next(self, _, prefix):
        if tuple(prefix) not in self.seen:
            ids = np.zeros((1, len(PROMPTS_BS[0]) + EXTRA), np.int32)
            row = [*self.prompt, *prefix]
            ids[0, : len(row)] = row
            self.seen[tuple(prefix)] = np.asarray(self.apply(ids)[0, len(row) - 1], np.float64)
        return self.seen[tuple(prefix)]


@pytest.mark.parametrize("variant", SINUSOIDAL_FIRST)
def test_no_logit_depends_on_a_later_token(variant):
    model, params = tiny(variant)
    ids = jnp.asarray([[BOS, 4, 5, 6, 7, 8]])
    rows = Tokens.of(ids)
    x_btd = model.apply({"params": params}, method=lambda m: m.embedding.encode(rows.ids_bt, rows.positions_bt, None))

    def logits_of(x_btd):
        return model.apply({"params": params}, x_btd, method=lambda m, x: m.decoder(x, Tokens.of(ids))[0])

    gradient_tdtd = jax.jit(jax.jacobian(logits_of))(x_btd)[0, :, :, 0]
    influence_tt = np.abs(np.asarray(gradient_tdtd)).sum(axis=(1, 3))
    assert np.all(influence_tt[np.triu_indices(6, 1)] == 0)
    assert np.all(influence_tt[np.tril_indices(6)] > 0)


@pytest.mark.parametrize("variant", SINUSOIDAL_FIRST)
def test_packed_sentences_are_as_if_alone(variant):
    model, params = tiny(variant)
    alone = whole(model, params, [[BOS, 4, 5, 0], [BOS, 9, 0, 0]])
    packed = Tokens(
        jnp.asarray([[BOS, 4, 5, BOS, 9, 0]]), jnp.asarray([[1, 1, 1, 2, 2, 0]]), jnp.asarray([[0, 1, 2, 0, 1, 0]])
    )
    logits = jax.jit(lambda p: model.apply({"params": p}, packed))(params)
    assert relative_error(logits[0, :3], alone[0, :3]) < 1e-5
    assert relative_error(logits[0, 3:5], alone[1, :2]) < 1e-5


def cached_logits(model, params, prompts_bs, rest_bt, beams=2):
    """Logits after each token from the prompts' last on, by `start` and `step`, all beams alike."""

    @jax.jit
    def step(params, token_bm, number, cache):
        logits, cache = model.apply({"params": params}, token_bm, number, cache, method="step")
        return logits, cache.select(jnp.broadcast_to(jnp.arange(beams)[::-1], token_bm.shape))

    prompts_bs, rest_bt = jnp.asarray(prompts_bs, jnp.int32), jnp.asarray(rest_bt, jnp.int32)
    token_b, cache = model.apply({"params": params}, prompts_bs, beams, beams, method="start")
    all_bt = jnp.concatenate([token_b[:, None], rest_bt], axis=1)
    cache, found = cache.grow(beams * all_bt.shape[1]), []
    for number in range(all_bt.shape[1]):
        token_bm = jnp.broadcast_to(all_bt[:, number, None], (len(prompts_bs), beams))
        logits, cache = step(params, token_bm, jnp.int32(number), cache)
        found.append(logits)
    return np.asarray(jnp.stack(found, axis=2))


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_prompts_of_unequal_lengths_and_the_cache_give_what_the_whole_model_gives(variant):
    model, params = tiny(variant)
    rest_bt = np.array([[3, 8, 10], [4, 4, 6], [11, 2, 5], [6, 6, 6], [9, 8, 7]])
    found_bmtv = cached_logits(model, params, PROMPTS_BS, rest_bt)
    for row, prompt in enumerate(PROMPTS_BS):
        real = [int(token) for token in prompt if token]
        if real:
            all_bt = np.pad([[*real, *rest_bt[row]]], ((0, 0), (0, 4 - len(real))))
            expected_tv = whole(model, params, all_bt)[0, len(real) - 1 : len(real) + 3]
            for beam in range(2):
                assert relative_error(found_bmtv[row, beam], expected_tv) < 1e-5


@pytest.mark.parametrize("variant", SINUSOIDAL_FIRST)
def test_a_prompt_at_once_is_the_prompt_step_by_step(variant):
    model, params = tiny(variant)
    at_once = cached_logits(model, params, [[BOS, 5, 7, 4]], [[3, 8]])
    by_step = cached_logits(model, params, [[BOS]], [[5, 7, 4, 3, 8]])
    assert relative_error(at_once, by_step[:, :, 3:]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"mixer": "restricted", "neighbours": 2},
        {"mixer": "strided", "neighbours": 2},
        {"mixer": "restricted", "neighbours": 2, "positions": "t5"},
        {"mixer": "convolution", "kernel_width": 2},
    ],
    ids=str,
)
def test_prompts_longer_than_the_mixer_reaches_are_read_at_once_too(fields):
    model, params = tiny(**fields)
    found_bmtv = cached_logits(model, params, PROMPTS_BS[[0, 4]], [[3, 8, 10], [4, 4, 6]])
    for row, ids in enumerate(([BOS, 5, 7, 4, 3, 8, 10], [BOS, 3, 11, 4, 4, 6])):
        expected_tv = whole(model, params, [ids])[0, -4:]
        assert relative_error(found_bmtv[row, 0], expected_tv) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("beam", "alpha", "nbest"), [(1, 0.0, 1), (2, 0.6, 2), (4, 1.0, 3)])
@pytest.mark.parametrize("first_steps", [16, 2])
def test_search_after_prompts_follows_its_definition(monkeypatch, beam, alpha, nbest, first_steps):
    monkeypatch.setattr(state, "FIRST_STEPS", first_steps)
    model, params = tiny()
    find = jax.jit(functools.partial(run_search, model, Decoding(beam, alpha, EXTRA, nbest)))
    found = find(params, PROMPTS_BS)
    for row, prompt in enumerate(PROMPTS_BS):
        oracle = PromptOracle(model, params, prompt)
        expected = plain_beam_search(oracle, [], beam, alpha, nbest, early_stop=True) if prompt.any() else []
        assert_same(found, row, expected)


@pytest.mark.slow
def test_samples_after_a_prompt_have_the_whole_models_log_probabilities():
    model, params = tiny()
    keys_b = jax.random.split(jax.random.key(0), len(PROMPTS_BS))
    decoding = Decoding(nbest=3, sampling=Sampling(), extra_length=EXTRA)
    found = jax.jit(functools.partial(run_search, model, decoding))(params, PROMPTS_BS, keys_b=keys_b)
    for row, prompt in enumerate(PROMPTS_BS):
        oracle = PromptOracle(model, params, prompt)
        for ids_t, log_prob in zip(found.ids_bmt[row], found.log_probs_bm[row], strict=True):
            ids = [int(token) for token in ids_t if token]
            if prompt.any():
                forced = sum(oracle.next((), ids[:place])[token] for place, token in enumerate(ids))
                np.testing.assert_allclose(log_prob, forced, rtol=2e-5)
            else:
                assert ids == []


def test_learned_positions_bound_the_prompt_and_what_follows():
    model, _ = tiny("learned")
    prompts = jnp.ones((2, 5), jnp.int32)
    assert model.output_limits(prompts, 20)[1] == 20
    with pytest.raises(ValueError, match=r"a prompt of 5 tokens and 21 more: .* only 24 are learned"):
        model.output_limits(prompts, 21)
    with pytest.raises(ValueError, match="and 0 more: at least 1"):
        model.output_limits(prompts, 0)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "activation",
            "tanh",
            "model.activation is 'tanh'; it must be one of relu, gelu, gelu_tanh, silu, geglu, geglu_tanh, swiglu",
        ),
        ("norm_epsilon", 0.0, "model.norm_epsilon is 0.0; it must be above 0"),
        ("norm_kind", "batch", "model.norm_kind is 'batch'; it must be one of layer, rms"),
    ],
)
def test_a_wrong_field_is_named(field, value, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        dataclasses.replace(SIZES, **{field: value})


def test_beams_are_not_counted_as_a_rows_tokens():
    config = dataclasses.replace(SIZES, **VARIANTS["learned"], max_positions=4)
    model = LanguageModel(config)
    params = init_params(LanguageModel(config), jax.random.key(0))

    def first_logits(params):
        token_b, cache = model.apply({"params": params}, jnp.asarray([[BOS, 5]]), 6, 6, method="start")
        token_bm = jnp.broadcast_to(token_b[:, None], (1, 6))
        return model.apply({"params": params}, token_bm, jnp.int32(0), cache, method="step")[0]

    assert jax.eval_shape(first_logits, params).shape == (1, 6, 12)
