"""The rules of a search, ensembles and dynamic beam allocation against plain Python."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.search.test_search import EXTRA, SOURCE_BS, Oracle, assert_same, penalty, tiny, unpad
from vaswani.ids import BOS, EOS, PAD, UNK
from vaswani.infer.translate.spelling import allowed_at
from vaswani.search.ensemble import Ensemble
from vaswani.search.options import Decoding
from vaswani.search.rules import Rules, Spelling, count_phrase_tokens
from vaswani.search.searches import run_search

ROWS = SOURCE_BS[:3]
PREFIX_BP = np.array([[9, 4], [7, 0], [0, 0]], np.int32)
PHRASES_BCL = np.array([[[6, 3], [10, 0]], [[5, 5], [0, 0]], [[8, 0], [7, 4]]], np.int32)


@pytest.fixture(scope="module")
def model_and_oracle():
    model, params = tiny()
    return model, params, Oracle(model, params, SOURCE_BS.shape[1] + EXTRA)


def ngrams(ids, n):
    return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]


def may_follow(prefix, token, length, limit, rules, row):
    """Returns whether the rules allow `token`, the output's `length`-th, after `prefix`."""
    if token in (PAD, BOS) or (length == limit and token != EOS):
        return False
    if rules.phrases_bcl is not None and token == EOS and missing(prefix, rules.phrases_bcl[row]):
        return False
    if length == limit:
        return True
    start = unpad(rules.prefix_bp[row]) if rules.prefix_bp is not None else []
    if length <= len(start):
        return token == start[length - 1]
    if token == EOS and len(prefix) < rules.min_length:
        return False
    n = rules.no_repeat
    return not n or len(prefix) < n - 1 or tuple([*prefix, token][-n:]) not in ngrams(prefix, n)


def missing(ids, phrases):
    return [p for p in map(unpad, phrases) if p and tuple(p) not in ngrams(ids, len(p))]


def begun(ids, phrase):
    return max((n for n in range(len(phrase)) if n == 0 or ids[-n:] == phrase[:n]), default=0)


def banked(ids, phrases):
    lacking = missing(ids, phrases)
    held = sum(len(unpad(p)) for p in phrases) - sum(map(len, lacking))
    return held + max((begun(ids, phrase) for phrase in lacking), default=0)


def plain_search(oracle, source, row, rules, beam, alpha, nbest):
    """The definitions at the tops of search/beam.py and rules.py, with lists."""
    limit = len(source) + EXTRA
    alive, finished = [(0.0, [])], []
    for length in range(1, limit + 1):
        extended = []
        for log_prob, prefix in alive:
            following = oracle.next(source, prefix)
            allowed = [v for v in range(len(following)) if may_follow(prefix, v, length, limit, rules, row)]
            likely = sorted(allowed, key=lambda v: -following[v])[: 2 * beam]
            if rules.phrases_bcl is not None:
                lacking = missing(prefix, rules.phrases_bcl[row])
                likely += [t for t in {p[begun(prefix, p)] for p in lacking} if t in allowed and t not in likely]
            given = length <= rules.given
            extended += [(log_prob + (0.0 if given else following[token]), [*prefix, token]) for token in likely]
        extended.sort(key=lambda hypothesis: -hypothesis[0])
        if rules.phrases_bcl is not None:
            ranked, counts = [], {}
            for hypothesis in extended:
                bank = banked(hypothesis[1], rules.phrases_bcl[row])
                counts[bank] = counts.get(bank, 0) + 1
                ranked.append((counts[bank], -bank, hypothesis))
            extended = [hypothesis for *_, hypothesis in sorted(ranked, key=lambda one: one[:2])]
        kept = extended[: 2 * beam]
        finished += [(lp / penalty(len(ids), alpha), lp, ids) for lp, ids in kept if ids[-1] == EOS]
        finished = sorted(finished, key=lambda hypothesis: -hypothesis[0])[:beam]
        alive = [hypothesis for hypothesis in kept if hypothesis[1][-1] != EOS][:beam]
        best = max((log_prob for log_prob, _ in alive), default=-np.inf)
        if len(finished) >= nbest and finished[nbest - 1][0] >= best / penalty(limit, alpha):
            break
    return finished[:nbest]


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(min_length=6, no_repeat=2), marks=pytest.mark.slow),
        pytest.param(Rules(no_repeat=1, prefix_bp=PREFIX_BP), marks=pytest.mark.slow),
        pytest.param(Rules(phrases_bcl=PHRASES_BCL), marks=pytest.mark.slow),
        pytest.param(Rules(prefix_bp=np.maximum(PREFIX_BP, [[5, 0]]), given=1), id="given"),
        Rules(phrases_bcl=PHRASES_BCL[:, ::-1], prefix_bp=PREFIX_BP, min_length=5, no_repeat=3),
    ],
)
def test_a_search_with_rules_equals_the_definition(model_and_oracle, rules):
    model, params, oracle = model_and_oracle
    find = jax.jit(functools.partial(run_search, model, Decoding(4, 0.6, EXTRA, nbest=2)))
    found = find(params, ROWS, rules=rules)
    for row, source in enumerate(ROWS):
        assert_same(found, row, plain_search(oracle, unpad(source), row, rules, 4, 0.6, 2))
        outputs = [ids for ids in map(unpad, found.ids_bmt[row]) if ids]
        assert outputs
        for ids in outputs:
            assert ids[-1] == EOS and len(ids) - 1 >= min(rules.min_length, len(unpad(source)) + EXTRA - 1)
            assert not rules.no_repeat or len(set(ngrams(ids, rules.no_repeat))) == len(ids) - rules.no_repeat + 1
            assert rules.prefix_bp is None or ids[: len(unpad(rules.prefix_bp[row]))] == unpad(rules.prefix_bp[row])
            assert rules.phrases_bcl is None or not missing(ids, rules.phrases_bcl[row])


SPELLED = (b"", b"", b"", b"", b"a", b"ab", b"b", b"bb", b"c", b"abc", b"cab", b"ca")  # by the tokens of `tiny`


def spelling(rests, spelled):
    allowed_blv = np.zeros((len(rests), max(map(len, rests)), len(spelled)), bool)
    for row, rest in enumerate(rests):
        allowed_blv[row, : len(rest)] = allowed_at(spelled, rest)
    size_b = np.array([len(rest) for rest in rests], np.int32)
    return Spelling(size_b, allowed_blv, np.array([[len(piece) for piece in spelled]] * len(rests), np.int32))


@functools.cache
def speller():
    model, params = tiny(seed=1, vocab_size=7)
    return model, params, Oracle(model, params, 5)


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 2, None])
def test_what_a_hypothesis_spells_is_found_by_listing_all(beam):
    """Outputs of at most 4 words of which a row must spell "abb" after a prefix, another "ba", the last nothing.

    The beam that holds all finds the best of all; greedy and a narrow one find what the definition with lists finds.
    """
    spelled = SPELLED[:7]
    rests = [b"abb", b"ba", b""]
    prefix_bp = np.array([[5], [0], [0]], np.int32)
    rules = Rules(spelling=spelling(rests, spelled), prefix_bp=prefix_bp)
    model, params, oracle = speller()
    source = [4, 3, EOS]
    limit = 5

    def begins_right(ids, row):
        start = unpad(prefix_bp[row])
        words = b"".join(spelled[token] or b"?" for token in ids[len(start) :])
        return ids[: len(start)] == start and words.startswith(rests[row])

    def found_by(search_beam, nbest):
        decoding = Decoding(search_beam, 0.6, limit - len(source), nbest=nbest)
        find = jax.jit(functools.partial(run_search, model, decoding))
        return find(params, np.array([source] * 3, np.int32), rules=rules)

    everything = [
        [*words, EOS] for n in range(limit) for words in itertools.product(range(UNK, len(spelled)), repeat=n)
    ]
    for row in range(3):
        hypotheses = []
        for ids in everything:
            if begins_right(ids[:-1], row):
                log_prob = sum(oracle.next(source, ids[:i])[token] for i, token in enumerate(ids))
                hypotheses.append((log_prob / penalty(len(ids), 0.6), log_prob, ids))
        hypotheses.sort(key=lambda hypothesis: -hypothesis[0])
        if beam is None:
            assert_same(found_by(400, 5), row, hypotheses[:5])
        else:
            outputs = [ids for ids in map(unpad, found_by(beam, 1).ids_bmt[row]) if ids]
            assert outputs
            assert all(begins_right(ids[:-1], row) for ids in outputs)
            assert_same(found_by(beam, 1), row, narrow(oracle, source, begins_right, row, spelled, rests, beam, limit))


def narrow(oracle, source, begins_right, row, spelled, rests, beam, limit):
    """Beam search in lists among the beginnings of outputs that `begins_right`."""

    def can_go_on(ids):
        if not ids or ids[-1] != EOS:
            return any(
                begins_right([*ids, *more], row)
                for n in range(4)
                for more in itertools.product(range(UNK + 1, len(spelled)), repeat=n)
            )
        return begins_right(ids[:-1], row)

    alive, finished = [(0.0, [])], []
    for length in range(1, limit + 1):
        extended = []
        for log_prob, prefix in alive:
            following = oracle.next(source, prefix)
            tokens = [EOS] if length == limit else [EOS, *range(UNK, len(spelled))]
            allowed = [v for v in tokens if can_go_on([*prefix, v])]
            count = 1 if beam == 1 else 2 * beam
            extended += [
                (log_prob + following[v], [*prefix, v]) for v in sorted(allowed, key=lambda v: -following[v])[:count]
            ]
        extended.sort(key=lambda hypothesis: -hypothesis[0])
        kept = extended[: 1 if beam == 1 else 2 * beam]
        finished += [(lp / penalty(len(ids), 0.6), lp, ids) for lp, ids in kept if ids[-1] == EOS]
        finished = sorted(finished, key=lambda hypothesis: -hypothesis[0])[:beam]
        alive = [hypothesis for hypothesis in kept if hypothesis[1][-1] != EOS][:beam]
        best = max((log_prob for log_prob, _ in alive), default=-np.inf)
        if finished and finished[0][0] >= best / penalty(limit, 0.6):
            break
    return finished[:1]


@pytest.mark.parametrize("rest", [b"abcab", b"cabb", b"bca", b"a", b"abd"])
def test_a_token_may_follow_if_the_rest_can_still_be_spelled(rest):
    def can_be_spelled(left):
        return not left or any(
            piece.startswith(left) or (left.startswith(piece) and can_be_spelled(left[len(piece) :]))
            for piece in filter(None, SPELLED)
        )

    for place in range(len(rest)):
        left = rest[place:]
        may_follow = [
            bool(piece) and (piece.startswith(left) or (left.startswith(piece) and can_be_spelled(left[len(piece) :])))
            for piece in SPELLED
        ]
        assert allowed_at(SPELLED, rest)[place].tolist() == may_follow


@pytest.mark.slow
def test_an_ensemble_of_one_is_the_model_and_of_two_the_mean_of_log_probabilities(model_and_oracle):
    model, params, oracle = model_and_oracle
    other_model, other_params = tiny(seed=3, N=2)
    decoding = Decoding(4, 0.6, EXTRA, nbest=2)
    search = jax.jit(run_search, static_argnums=(0, 1))
    alone, one = search(model, decoding, params, ROWS), search(Ensemble((model,)), decoding, (params,), ROWS)
    np.testing.assert_array_equal(one.ids_bmt, alone.ids_bmt)
    np.testing.assert_allclose(one.scores_bm, alone.scores_bm, rtol=1e-6)
    other = Oracle(other_model, other_params, SOURCE_BS.shape[1] + EXTRA)

    class Mean:
        def next(self, source, prefix):
            mean = (oracle.next(source, prefix) + other.next(source, prefix)) / 2
            return mean - np.log(np.sum(np.exp(mean)))

    found = search(Ensemble((model, other_model)), decoding, (params, other_params), jnp.asarray(ROWS))
    for row, source in enumerate(ROWS):
        assert_same(found, row, plain_search(Mean(), unpad(source), row, Rules(), 4, 0.6, 2))


def plain_diverse_search(oracle, source, beam, alpha, groups, diversity, kind, stopping):
    """The definition at the top of search/diverse.py, with lists."""
    limit, size = len(source) + EXTRA, beam // groups
    alive, finished = [[(0.0, [])] for _ in range(groups)], [[] for _ in range(groups)]
    for length in range(1, limit + 1):
        counts = {}
        for g in range(groups):
            extended = []
            for log_prob, prefix in alive[g]:
                following = oracle.next(source, prefix)
                for token in range(len(following)):
                    if token not in (PAD, BOS) and (length < limit or token == EOS):
                        new = log_prob + following[token]
                        extended.append((new - diversity * counts.get(token, 0), new, [*prefix, token]))
            kept = sorted(extended, key=lambda hypothesis: -hypothesis[0])[: 2 * size]
            may_finish = kept if stopping == "exact" else kept[:size]
            finished[g] += [(lp / penalty(length, alpha, kind), lp, ids) for _, lp, ids in may_finish if ids[-1] == EOS]
            finished[g] = sorted(finished[g], key=lambda hypothesis: -hypothesis[0])[:size]
            alive[g] = [(lp, ids) for _, lp, ids in kept if ids[-1] != EOS][:size]
            best = max((lp for lp, _ in alive[g]), default=-np.inf)
            least = finished[g][-1][0] if len(finished[g]) == size else -np.inf
            if least > -np.inf and (stopping == "full" or least >= best / penalty(limit, alpha, kind)):
                alive[g] = []
            for _, ids in alive[g]:
                counts[ids[-1]] = counts.get(ids[-1], 0) + 1
    once = {tuple(ids): (score, lp, ids) for of_group in reversed(finished) for score, lp, ids in of_group}
    return sorted(once.values(), key=lambda hypothesis: -hypothesis[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("diversity", "kind", "stopping"),
    [(0.0, "gnmt", "exact"), (1.5, "gnmt", "exact"), (1.5, "power", "exact"), (1.5, "gnmt", "full")],
)
def test_diverse_search_equals_the_definition_and_its_outputs_differ(model_and_oracle, diversity, kind, stopping):
    model, params, oracle = model_and_oracle
    options = {"groups": 3, "length_penalty": kind, "stopping": stopping, "diversity": diversity}
    found = jax.jit(functools.partial(run_search, model, Decoding(6, 0.6, EXTRA, **options)))(params, ROWS)
    counts = []
    for row, source in enumerate(ROWS):
        expected = plain_diverse_search(oracle, unpad(source), 6, 0.6, 3, diversity, kind, stopping)
        assert_same(found, row, expected)
        counts.append(len(expected))
    assert (max(counts) == 2) == (diversity == 0), "without a penalty all groups find the same"


def test_an_output_may_end_as_soon_as_it_has_its_least_length() -> None:
    logits_bmv = jnp.zeros((1, 1, 5))
    ids_bmt = jnp.full((1, 1, 4), 4)
    may_end = []
    for step in range(4):
        edited_bmv = Rules(min_length=2).edit(logits_bmv, ids_bmt, jnp.int32(step), jnp.array([9]))
        may_end.append(bool(edited_bmv[0, 0, EOS] == 0))
    assert may_end == [False, False, True, True]


def test_of_phrases_that_begin_alike_one_is_open_in_a_bank() -> None:
    phrases_bcl = jnp.array([[[6, 3], [6, 5]]], jnp.int32)
    ids_bmt = jnp.array([[[6, 0, 0]]], jnp.int32)
    assert count_phrase_tokens(phrases_bcl, ids_bmt, jnp.array(1)).tolist() == [[1]]
