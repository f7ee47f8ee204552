"""Beam search against its definition in plain Python, and against exhaustive search."""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.slow import slow_but
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.translate import stages
from vaswani.model.config import ModelConfig
from vaswani.model.decoding import translation_limits
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.search import state
from vaswani.search.beam import beam_search, length_penalty
from vaswani.search.ensemble import model_or_ensemble
from vaswani.search.options import Decoding, Sampling
from vaswani.search.sampling import truncate
from vaswani.search.scoring import forced_log_probs
from vaswani.search.searches import run_search
from vaswani.search.state import Hypotheses, keep_best
from vaswani.tokens import Tokens

SOURCE_BS = np.array(
    [[5, 7, 4, 9, 2, 0], [8, 2, 0, 0, 0, 0], [4, 4, 10, 11, 6, 2], [3, 6, 2, 0, 0, 0], [11, 5, 9, 2, 0, 0]], np.int32
)
EXTRA = 4


@functools.cache
def tiny(seed=0, vocab_size=12, sharpness=2.5, **fields):
    """A random model whose next-token distributions are peaked, and all different."""
    sizes = {"N": 1, "d_model": 16, "d_ff": 24, "h": 2, "d_k": 8, "d_v": 8} | fields
    model = Transformer(ModelConfig(vocab_size, **sizes))
    params = init_params(model, jax.random.key(seed))
    *_, table = model.config.tables
    return model, params | {table: params[table] * sharpness}


def searcher(model, **options):
    return jax.jit(functools.partial(run_search, model, Decoding(**options)))


class Oracle:
    """Log-probabilities of the next token after any prefix, by the whole model without a cache."""

    def __init__(self, model, params, width):
        self.params, self.width, self.seen = params, width, {}
        self.apply = jax.jit(
            lambda p, *ids: jax.nn.log_softmax(model.apply({"params": p}, *(Tokens.of(jnp.asarray(i)) for i in ids)))
        )

    def next(self, source, prefix):
        key = (*source, -1, *prefix)
        if key not in self.seen:
            target = np.zeros((1, self.width), np.int32)
            target[0, : len(prefix) + 1] = [BOS, *prefix]
            log_probs = self.apply(self.params, np.array([source], np.int32), target)
            self.seen[key] = np.asarray(log_probs[0, len(prefix)], np.float64)
        return self.seen[key]


def penalty(length, alpha, kind="gnmt"):
    return length**alpha if kind == "power" else ((5 + length) / 6) ** alpha


def plain_beam_search(oracle, source, beam, alpha, nbest, early_stop=True, stopping="exact"):
    """Implements the definition at the top of search/beam.py, with lists."""
    limit = len(source) + EXTRA
    alive, finished = [(0.0, [])], []
    for length in range(1, limit + 1):
        extended = []
        for log_prob, prefix in alive:
            next_log_probs = oracle.next(source, prefix)
            for token in range(len(next_log_probs)):
                if token not in (PAD, BOS) and (length < limit or token == EOS):
                    extended.append((log_prob + next_log_probs[token], [*prefix, token]))
        extended.sort(key=lambda hypothesis: -hypothesis[0])
        kept = extended[: 1 if beam == 1 else 2 * beam]
        may_finish = kept if stopping == "exact" else kept[:beam]
        finished += [(lp / penalty(length, alpha), lp, ids) for lp, ids in may_finish if ids[-1] == EOS]
        finished = sorted(finished, key=lambda hypothesis: -hypothesis[0])[:beam]
        alive = [hypothesis for hypothesis in kept if hypothesis[1][-1] != EOS][:beam]
        if not alive or (stopping == "full" and len(finished) == beam):
            break
        if stopping == "full":
            continue
        if early_stop and len(finished) >= nbest and finished[nbest - 1][0] >= alive[0][0] / penalty(limit, alpha):
            break
    return finished[:nbest]


def unpad(row):
    return [int(i) for i in row if i != PAD]


def assert_same(found, row, expected):
    """Equal ids, lengths, log-probabilities and scores in row `row`; empty beyond the expected hypotheses."""
    for m in range(found.lengths_bm.shape[1]):
        if m >= len(expected):
            assert int(found.lengths_bm[row, m]) == 0
            assert not np.any(found.ids_bmt[row, m])
            continue
        score, log_prob, ids = expected[m]
        assert unpad(found.ids_bmt[row, m]) == ids
        assert int(found.lengths_bm[row, m]) == len(ids)
        np.testing.assert_allclose(found.log_probs_bm[row, m], log_prob, rtol=2e-5)
        np.testing.assert_allclose(found.scores_bm[row, m], score, rtol=2e-5)


@pytest.fixture(scope="module")
def model_and_oracle():
    model, params = tiny()
    return model, params, Oracle(model, params, SOURCE_BS.shape[1] + EXTRA)


@pytest.mark.parametrize(
    ("beam", "alpha", "nbest"),
    [
        pytest.param(1, 0.6, 1, marks=pytest.mark.slow),
        pytest.param(2, 0.0, 1, marks=pytest.mark.slow),
        (2, 1.0, 2),
        pytest.param(3, 0.6, 1, marks=pytest.mark.slow),
        pytest.param(4, 0.0, 4, marks=pytest.mark.slow),
        (4, 0.6, 1),
        pytest.param(4, 1.5, 2, marks=pytest.mark.slow),
        pytest.param(5, 0.3, 5, marks=pytest.mark.slow),
        pytest.param(6, 1.0, 1, marks=pytest.mark.slow),
        pytest.param(7, 0.6, 3, marks=pytest.mark.slow),
        pytest.param(8, 0.0, 1, marks=pytest.mark.slow),
        pytest.param(8, 0.6, 8, marks=pytest.mark.slow),
    ],
)
def test_equals_the_definition(model_and_oracle, beam, alpha, nbest):
    model, params, oracle = model_and_oracle
    found = searcher(model, beam=beam, alpha=alpha, extra_length=EXTRA, nbest=nbest)(params, SOURCE_BS)
    for row, source in enumerate(SOURCE_BS):
        with_stop = plain_beam_search(oracle, unpad(source), beam, alpha, nbest, early_stop=True)
        without_stop = plain_beam_search(oracle, unpad(source), beam, alpha, nbest, early_stop=False)
        assert with_stop == without_stop
        assert_same(found, row, with_stop)


@pytest.mark.parametrize(
    ("beam", "alpha", "nbest"),
    slow_but([(3, 1.0, 3)], [(1, 0.6, 1), (2, 0.0, 1), (3, 1.0, 3), (4, 0.6, 2), (6, 1.0, 1)]),
)
def test_full_stopping_equals_its_definition(model_and_oracle, beam, alpha, nbest):
    model, params, oracle = model_and_oracle
    options = {"beam": beam, "alpha": alpha, "extra_length": EXTRA, "nbest": nbest}
    found = searcher(model, stopping="full", **options)(params, SOURCE_BS)
    for row, source in enumerate(SOURCE_BS):
        assert_same(found, row, plain_beam_search(oracle, unpad(source), beam, alpha, nbest, stopping="full"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        {"positions": "rope"},
        {"positions": "alibi", "norm": "pre"},
        {"positions": "learned", "max_positions": 10, "N": 2},
        {"tie_embeddings": False, "N": 2},
        {
            "positions": "t5",
            "norm": "pre",
            "N": 2,
            "norm_kind": "rms",
            "feed_forward_biases": False,
            "scale_attention": False,
            "scale_logits": True,
        },
    ],
)
def test_equals_the_definition_for_every_kind_of_model_while_the_cache_grows(monkeypatch, variant):
    monkeypatch.setattr(state, "FIRST_STEPS", 2)
    model, params = tiny(seed=3, **variant)
    oracle = Oracle(model, params, SOURCE_BS.shape[1] + EXTRA)
    found = searcher(model, beam=3, alpha=0.6, extra_length=EXTRA, nbest=3)(params, SOURCE_BS)
    assert int(np.max(found.lengths_bm)) > 4
    for row, source in enumerate(SOURCE_BS):
        assert_same(found, row, plain_beam_search(oracle, unpad(source), 3, 0.6, 3, early_stop=True))


@pytest.mark.parametrize(
    ("vocab_size", "limit", "alpha", "kind"),
    slow_but(
        [(5, 5, 0.6, "gnmt")], [(5, 5, 0.6, "gnmt"), (6, 4, 0.0, "gnmt"), (6, 4, 1.3, "gnmt"), (5, 5, 1.0, "power")]
    ),
)
def test_equals_exhaustive_search_where_the_beam_holds_every_hypothesis(vocab_size, limit, alpha, kind):
    model, params = tiny(seed=1, vocab_size=vocab_size)
    source = [4, 3, 2]
    oracle = Oracle(model, params, limit)
    everything = []
    for length in range(limit):
        for words in itertools.product(range(3, vocab_size), repeat=length):
            ids = [*words, EOS]
            log_prob = sum(oracle.next(source, ids[:i])[token] for i, token in enumerate(ids))
            everything.append((log_prob / penalty(len(ids), alpha, kind), log_prob, ids))
    everything.sort(key=lambda hypothesis: -hypothesis[0])
    beam = len(everything)
    options = {"beam": beam, "alpha": alpha, "length_penalty": kind, "nbest": beam}
    find = searcher(model, extra_length=limit - len(source), **options)
    assert_same(find(params, np.array([source], np.int32)), 0, everything)


def test_beam_1_is_argmax_decoding(model_and_oracle):
    model, params, oracle = model_and_oracle
    found = searcher(model, beam=1, alpha=0.0, extra_length=EXTRA)(params, SOURCE_BS)
    for row, source in enumerate(SOURCE_BS):
        source, ids = unpad(source), []
        while not ids or ids[-1] != EOS:
            log_probs = oracle.next(source, ids).copy()
            log_probs[[PAD, BOS]] = -np.inf
            ids.append(EOS if len(ids) == len(source) + EXTRA - 1 else int(np.argmax(log_probs)))
        assert unpad(found.ids_bmt[row, 0]) == ids


def test_log_prob_is_the_forced_one(model_and_oracle):
    model, params, _ = model_and_oracle
    found = searcher(model, beam=4, alpha=0.6, extra_length=EXTRA, nbest=4)(params, SOURCE_BS)
    force = jax.jit(functools.partial(forced_log_probs, model))
    for m in range(4):
        forced_bt = force(params, SOURCE_BS, found.ids_bmt[:, m])
        np.testing.assert_allclose(jnp.sum(forced_bt, axis=1), found.log_probs_bm[:, m], rtol=2e-5)
        assert np.all((np.asarray(forced_bt) == 0) == (np.asarray(found.ids_bmt[:, m]) == PAD))


def test_batch_mates_order_and_padding_change_nothing(model_and_oracle):
    model, params, _ = model_and_oracle
    find = searcher(model, beam=4, alpha=0.6, extra_length=EXTRA, nbest=4)
    together = find(params, SOURCE_BS)
    order = np.array([3, 0, 4, 2, 1])
    shuffled = find(params, SOURCE_BS[order])
    for new, old in enumerate(order):
        np.testing.assert_array_equal(shuffled.ids_bmt[new], together.ids_bmt[old])
    for row, source in enumerate(SOURCE_BS):
        wider = np.zeros((1, 9), np.int32)
        wider[0, :6] = source
        alone = find(params, wider)
        np.testing.assert_array_equal(alone.ids_bmt[0, :, : 6 + EXTRA], together.ids_bmt[row])
        np.testing.assert_allclose(alone.scores_bm[0], together.scores_bm[row], rtol=1e-5)


@pytest.mark.slow
def test_the_host_runs_the_same_search_and_only_the_stages_that_it_needs(monkeypatch):
    monkeypatch.setattr(state, "FIRST_STEPS", 4)
    model, params = tiny(seed=3)
    options = {"beam": 3, "alpha": 0.6, "extra_length": EXTRA, "nbest": 3}
    whole_found = searcher(model, **options)(params, SOURCE_BS)
    before = stages._stage._cache_size()
    found = stages.find(model, Decoding(**options), params, inputs_bs=SOURCE_BS)
    for field, expected in zip(found, whole_found, strict=True):
        # Other programs may round a sum of log-probabilities otherwise: a unit in the last place for each token.
        np.testing.assert_allclose(field, expected, rtol=1e-6 if field.dtype == np.float32 else 0)
    assert stages._stage._cache_size() - before == 2, "of 8 and 10 steps"
    brief = params | {"embed": params["embed"].at[EOS].mul(20.0)}
    before = stages._stage._cache_size()
    found = stages.find(model, Decoding(**options | {"beam": 1, "nbest": 1}), brief, inputs_bs=SOURCE_BS)
    assert int(np.max(found.lengths_bm)) <= 4 and stages._stage._cache_size() - before == 1


@pytest.mark.parametrize("search", slow_but(["beam"], ["beam", "groups", "samples"]))
def test_rows_that_have_ended_leave_the_batch_and_keep_their_results(monkeypatch, search):
    """Of 40 rows four may have more than two tokens, so ten are searched when two steps are done."""
    monkeypatch.setattr(state, "FIRST_STEPS", 4)
    model, params = tiny()
    params = params | {"embed": params["embed"].at[EOS].set(0.0).at[4].mul(8.0)}  # long outputs
    inputs_bs = np.zeros((40, 6), np.int32)
    inputs_bs[:, :2] = [5, EOS]
    inputs_bs[[3, 17, 18, 39]] = [4, 4, 10, 11, 6, EOS]
    arrays = {"inputs_bs": jnp.asarray(inputs_bs)}
    decoding = Decoding(beam=4, alpha=0.6, extra_length=0, groups=2 if search == "groups" else 1)
    if search == "samples":
        decoding = Decoding(nbest=3, sampling=Sampling(), extra_length=0)
        arrays["keys_b"] = jax.random.split(jax.random.key(0), 40)
    whole = jax.jit(functools.partial(run_search, model, decoding))(params, **arrays)
    for_next_stage = stages._for_next_stage
    shrunk = []

    def spy(arrays, before, alive_b, rows, end):
        shrunk.append((len(alive_b), int(before.step), rows, end))
        return for_next_stage(arrays, before, alive_b, rows, end)

    monkeypatch.setattr(stages, "_for_next_stage", spy)
    found = stages.find(model, decoding, params, **arrays)
    assert shrunk == [(40, 2, 10, 6)], "before the first four steps are done, with room for all there can be"
    assert np.max(found.lengths_bm[3]) > 2
    for field, expected in zip(found, whole, strict=True):
        np.testing.assert_allclose(field, expected, rtol=1e-5)


@pytest.mark.parametrize(("rows", "chosen"), [(4, [0, 1, 2, 3]), (2, [1, 3])])
def test_rows_change_their_place_only_where_others_leave(rows, chosen):
    model, params = tiny()
    inputs_bs = jnp.asarray(SOURCE_BS[:4])
    before = beam_search(model, Decoding(beam=2, alpha=0.6, extra_length=0), params, inputs_bs).start()
    alive_b = jnp.array([False, True, False, True])
    arrays, after, chosen_r = stages._for_next_stage({"inputs_bs": inputs_bs}, before, alive_b, rows, 30)
    np.testing.assert_array_equal(chosen_r, chosen)
    np.testing.assert_array_equal(arrays["inputs_bs"], inputs_bs[np.array(chosen)])
    assert after.token_bm.shape == (rows, 2)
    assert after.cache.blocks[0].visible_bmc.shape == (rows, 2, 60)


@pytest.mark.parametrize(
    ("alive", "rows", "left"), [(33, 128, 128), (32, 128, 32), (8, 128, 8), (1, 128, 8), (1, 16, 16)]
)
def test_a_batch_shrinks_to_a_quarter(alive, rows, left):
    while alive <= stages.fewer_rows(rows):
        rows = stages.fewer_rows(rows)
    assert rows == left


def test_empty_rows_are_skipped_and_never_searched():
    model, params = tiny()
    found = searcher(model, beam=2, alpha=0.6, extra_length=EXTRA)(params, np.zeros((2, 6), np.int32))
    assert not np.any(found.ids_bmt) and not np.any(found.lengths_bm)
    assert np.all(np.isneginf(found.scores_bm))


def test_limit_is_the_source_with_its_eos_plus_extra_and_ends_in_eos():
    model, params = tiny()
    talkative = params | {"embed": params["embed"].at[EOS].set(0.0).at[4].mul(8.0)}
    found = searcher(model, beam=1, alpha=0.0, extra_length=EXTRA)(talkative, SOURCE_BS)
    assert int(np.max(found.lengths_bm)) == 6 + EXTRA
    for row, source in enumerate(SOURCE_BS):
        ids = unpad(found.ids_bmt[row, 0])
        assert len(ids) <= len(unpad(source)) + EXTRA and ids[-1] == EOS and ids.count(EOS) == 1


def test_no_output_is_longer_than_the_learned_positions_of_any_member():
    source_bs = jnp.ones((1, 6), jnp.int32)
    limit_b, steps = translation_limits(source_bs, 4, 8)
    assert (limit_b.tolist(), steps) == ([8], 8)
    members = (ModelConfig(12), ModelConfig(12, positions="learned", max_positions=8))
    limit_b, steps = model_or_ensemble(members).output_limits(source_bs, 4)
    assert (limit_b.tolist(), steps) == ([8], 8)


def test_hypotheses_are_distinct_and_sorted(model_and_oracle):
    model, params, _ = model_and_oracle
    found = searcher(model, beam=8, alpha=0.6, extra_length=EXTRA, nbest=8)(params, SOURCE_BS)
    for row in range(len(SOURCE_BS)):
        assert len({tuple(unpad(ids)) for ids in found.ids_bmt[row]}) == 8
        assert np.all(np.diff(found.scores_bm[row]) <= 0)


def test_of_equal_scores_the_hypothesis_that_ended_first_is_kept_and_stands_first():
    scores_bm = jnp.array([[-1.0, -2.0]])
    older, newer = (
        Hypotheses(jnp.full((1, 2, 3), token), jnp.ones((1, 2), jnp.int32), scores_bm, scores_bm) for token in (7, 8)
    )
    kept = keep_best(older, newer)
    assert kept.scores_bm.tolist() == [[-1, -1]] and kept.ids_bmt[0, :, 0].tolist() == [7, 8]


def test_length_penalty_is_the_gnmt_formula():
    np.testing.assert_allclose(length_penalty(jnp.array([1, 7]), 0.6), [1.0, 2.0**0.6], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -0.5}, "alpha is -0.5; it must be from 0 to 10"),
        ({"alpha": math.nan}, "alpha is nan; it must be from 0 to 10"),
        ({"beam": 2, "nbest": 3}, "nbest is 3, more than the beam of 2"),
        ({"beam": 0}, "beam is 0; it must be from 1 to 1000"),
        ({"nbest": 2000, "sampling": Sampling()}, "nbest is 2000; it must be from 1 to 1000"),
        ({"extra_length": -6}, "extra_length is -6; it must be from 0 to 10000"),
        ({"stopping": "early"}, "stopping is 'early'; it must be one of exact, full"),
        ({"beam": 6, "groups": 4}, "groups is 4: beam must be 8 or more"),
        ({"beam": 9, "groups": 4}, "groups is 4; it must divide the beam of 9"),
        ({"diversity": -1.0}, "diversity is -1.0; it must be from 0 to 100"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(UserError, match=f"^{message}"):
        Decoding(**options)


# Sampling.


def sampler(model, samples, **options):
    decoding = Decoding(nbest=samples, sampling=Sampling(**options), extra_length=EXTRA)
    find = jax.jit(functools.partial(run_search, model, decoding))
    return lambda params, inputs_bs, keys_b: find(params, inputs_bs, keys_b=keys_b)


@pytest.mark.slow
def test_samples_do_not_depend_on_the_batch(model_and_oracle):
    model, params, _ = model_and_oracle
    keys_b = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(5), i))(np.arange(5))
    draw = sampler(model, samples=3)
    together = draw(params, SOURCE_BS, keys_b)
    order = np.array([4, 1, 0, 3, 2])
    shuffled = draw(params, SOURCE_BS[order], keys_b[order])
    np.testing.assert_array_equal(shuffled.ids_bmt, together.ids_bmt[order])
    np.testing.assert_array_equal(draw(params, SOURCE_BS[:2], keys_b[:2]).ids_bmt, together.ids_bmt[:2])
    assert len({tuple(map(int, ids)) for ids in together.ids_bmt.reshape(15, -1)}) > 10


@pytest.mark.slow
def test_samples_carry_the_models_own_log_probs(model_and_oracle):
    model, params, _ = model_and_oracle
    keys_b = jax.random.split(jax.random.key(0), 5)
    drawn = sampler(model, samples=2, temperature=0.7, top_k=4, top_p=0.9)(params, SOURCE_BS, keys_b)
    assert np.all(drawn.lengths_bm > 0)
    for m in range(2):
        forced_bt = forced_log_probs(model, params, jnp.array(SOURCE_BS), drawn.ids_bmt[:, m])
        np.testing.assert_allclose(jnp.sum(forced_bt, axis=1), drawn.log_probs_bm[:, m], rtol=2e-5)


@pytest.mark.parametrize("cut", slow_but([{"top_k": 1}], [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}]))
def test_the_sharpest_samples_are_greedy(model_and_oracle, cut):
    model, params, _ = model_and_oracle
    drawn = sampler(model, samples=1, **cut)(params, SOURCE_BS, jax.random.split(jax.random.key(0), 5))
    greedy = searcher(model, beam=1, alpha=0.0, extra_length=EXTRA)(params, SOURCE_BS)
    np.testing.assert_array_equal(drawn.ids_bmt, greedy.ids_bmt)


def test_first_tokens_are_drawn_with_the_models_probabilities(model_and_oracle):
    model, params, oracle = model_and_oracle
    rows, samples = 64, 32
    draws = rows * samples
    keys_b = jax.random.split(jax.random.key(1), rows)
    drawn = sampler(model, samples=samples)(params, np.repeat(SOURCE_BS[1:2], rows, axis=0), keys_b)
    probabilities = np.exp(oracle.next(unpad(SOURCE_BS[1]), []))
    probabilities[[PAD, BOS]] = 0
    probabilities /= probabilities.sum()
    counted = np.bincount(np.asarray(drawn.ids_bmt[:, :, 0]).ravel(), minlength=12) / draws
    np.testing.assert_allclose(counted, probabilities, atol=5 * math.sqrt(0.25 / draws))


def test_two_tokens_are_drawn_with_the_probabilities_of_each_after_temperature_and_truncation(model_and_oracle):
    """The temperature comes first: it decides how many tokens reach `top_p`."""
    model, params, oracle = model_and_oracle
    rows, samples, temperature, top_p = 64, 32, 3.0, 0.6
    source = unpad(SOURCE_BS[0])

    def after(prefix):
        p = np.exp(oracle.next(source, prefix) / temperature)
        p[[PAD, BOS]] = 0
        p /= p.sum()
        order = np.argsort(-p)
        p[order[np.cumsum(p[order]) - p[order] >= top_p]] = 0
        return p / p.sum()

    expected = np.zeros((12, 12))
    for first, p in enumerate(after([])):
        if p > 0:
            expected[first] = p * (np.eye(12)[PAD] if first == EOS else after([first]))
    keys_b = jax.random.split(jax.random.key(1), rows)
    draw = sampler(model, samples=samples, temperature=temperature, top_p=top_p)
    pairs = np.asarray(draw(params, np.repeat(SOURCE_BS[:1], rows, axis=0), keys_b).ids_bmt[:, :, :2]).reshape(-1, 2)
    counted = np.zeros((12, 12))
    np.add.at(counted, tuple(pairs.T), 1 / len(pairs))
    bound = 5 * np.sqrt(expected * (1 - expected) / len(pairs))
    assert np.all(np.abs(counted - expected) <= bound)


def test_top_k_and_top_p_keep_what_they_say():
    logits = jnp.log(jnp.array([[[0.1, 0.4, 0.2, 0.3]]]))
    assert np.isfinite(truncate(logits, 2, 1.0))[0, 0].tolist() == [False, True, False, True]
    assert np.isfinite(truncate(logits, 0, 0.65))[0, 0].tolist() == [False, True, False, True]
    assert np.isfinite(truncate(logits, 0, 0.75))[0, 0].tolist() == [False, True, True, True]
    assert np.all(np.isfinite(truncate(logits, 0, 1.0)))
    # Of the two that top_k leaves, the first has 0.57.
    assert np.isfinite(truncate(logits, 2, 0.5))[0, 0].tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; it must be from 1e-06 to 1000000.0"),
        ({"top_p": math.nan}, "top_p is nan; it must be from 1e-06 to 1"),
        ({"top_k": -1}, "top_k is -1; it must be from 0 to 2147483647"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be from 1e-06 to 1"),
        ({"top_p": 1.5}, "top_p is 1.5; it must be from 1e-06 to 1"),
    ],
)
def test_sampling_options_out_of_range_are_refused(wrong, message):
    with pytest.raises(UserError) as refused:
        Sampling(**wrong)
    assert str(refused.value) == message


def test_samples_of_another_seed_are_drawn_by_the_same_compiled_search():
    assert hash(Decoding(sampling=Sampling(1))) == hash(Decoding(sampling=Sampling(2)))
    assert Sampling(1) == Sampling(2) != Sampling(1, temperature=2.0)


class Countdown:
    """A model whose next token follows a table [step, vocabulary] of probabilities, whatever came before."""

    def __init__(self, table):
        self.logits_tv = jnp.log(jnp.asarray(table, jnp.float32))

    def output_limits(self, inputs_bs, extra_length):
        return jnp.full(len(inputs_bs), len(self.logits_tv)), len(self.logits_tv)

    def apply(self, params, *args, method):
        return getattr(self, method)(*args)

    def start(self, inputs_bs, beams, slots):
        return jnp.full(len(inputs_bs), BOS), NoCache()

    def step(self, token_bm, step, cache):
        return jnp.broadcast_to(self.logits_tv[step], (*token_bm.shape, self.logits_tv.shape[1])), cache


class NoCache(NamedTuple):
    def select(self, parents_bm):
        return self

    def grow(self, slots):
        return self


@pytest.mark.parametrize("alpha, length", [(2.0, 9), (0.0, 1)])
def test_a_short_hypothesis_does_not_end_the_search_while_a_long_one_can_still_beat_it(alpha, length):
    """EOS at once has probability 0.6; going on has 0.3 and then costs nothing: the penalty at the limit decides.

    At the current length's penalty the search would end after the first step whatever alpha is.
    """
    tiny = 1e-6
    first, later, last = [tiny, tiny, 0.6, 0.3, 0.1], [tiny, tiny, tiny, 1.0, tiny], [tiny, tiny, 1.0, tiny, tiny]
    model = Countdown([first, *[later] * 7, last])
    found = run_search(model, Decoding(beam=2, alpha=alpha, extra_length=0), {}, jnp.ones((1, 3), jnp.int32))
    assert int(found.lengths_bm[0, 0]) == length


def test_full_stopping_misses_a_longer_hypothesis_that_would_win():
    """EOS has probability 0.4 at each of the first two steps; then going on costs nothing, and alpha prefers length."""
    tiny = 1e-6
    early, later, last = [tiny, tiny, 0.4, 0.5, 0.1], [tiny, tiny, tiny, 1.0, tiny], [tiny, tiny, 1.0, tiny, tiny]
    model = Countdown([early, early, *[later] * 6, last])
    lengths = {}
    for stopping in ("exact", "full"):
        decoding = Decoding(beam=2, alpha=2.0, extra_length=0, nbest=2, stopping=stopping)
        found = run_search(model, decoding, {}, jnp.ones((1, 3), jnp.int32))
        lengths[stopping] = found.lengths_bm[0].tolist()
    assert lengths == {"exact": [9, 9], "full": [1, 2]}


def test_with_full_stopping_an_end_that_is_not_among_the_most_probable_does_not_count():
    """Of a beam of 2, the end is the third choice at both steps before the last."""
    tiny = 1e-6
    model = Countdown([[tiny, tiny, 0.2, 0.5, 0.3], [tiny, tiny, 0.3, 0.35, 0.35], [tiny, tiny, 1.0, tiny, tiny]])
    lengths = {}
    for stopping in ("exact", "full"):
        decoding = Decoding(beam=2, alpha=0.0, extra_length=0, stopping=stopping)
        found = run_search(model, decoding, {}, jnp.ones((1, 3), jnp.int32))
        lengths[stopping] = int(found.lengths_bm[0, 0])
    assert lengths == {"exact": 1, "full": 3}


def test_without_top_p_even_a_token_without_probability_in_float32_is_kept():
    logits = jnp.array([[[30.0, 1.0, 0.0]]])
    assert np.all(np.isfinite(truncate(logits, 0, 1.0)))
    assert np.isfinite(truncate(logits, 2, 1.0))[0, 0].tolist() == [True, True, False]
