"""Head roles and alignment error: planted weights whose answer is known, and the command on a tiny run."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from base.errors import UserError
from data.grammar import sentences as grammar
from data.grammar.sentences import Example, Links
from data.tokenizer import Tokenizer
from data.trees.tree import Tree
from infer.attention.heads import (
    Spans,
    direction,
    judge,
    kept,
    largest,
    owners,
    sentence_maps,
    spans_of,
    table,
    token_weights,
)
from infer.attention.maps import attention_maps
from infer.attention.page import KINDS
from infer.attention.roles import (
    RELATIONS,
    AlignmentTally,
    AnnotatedPair,
    RoleTally,
    alignment_report,
    annotate,
    role_report,
)
from infer.runs import Run, open_run
from tests import grammar_run, tiny_run

ENGLISH = ("He", "calls", "us", "because", "we", "know", "the", "man", "who", "sleeps", ".")
GERMAN = ("Er", "ruft", "uns", "an", ",", "weil", "wir", "den", "Mann", "kennen", ",", "der", "schläft", ".")
EXAMPLE = Example(
    "He calls us because we know the man who sleeps.",
    "Er ruft uns an, weil wir den Mann kennen, der schläft.",
    Tree("S", tuple(Tree("X", word) for word in ENGLISH)),
    ((0, 0), (1, 1), (1, 3), (2, 2), (3, 5), (4, 6), (5, 9), (6, 7), (7, 8), (8, 11), (9, 12), (10, 13)),
    Links(((8, 7),), ((11, 8),), (), ((1, 3),), ((4, 2),), ((6, 2),)),
    GERMAN,
)
SENTENCES = [grammar.pair("test", i) for i in range(30)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(grammar_run.make(tmp_path_factory.mktemp("heads") / "run"), "latest")


def follower(pair: AnnotatedPair, kind: str, relation: str) -> np.ndarray:
    """Returns the keys [t] of a head that follows one relation and otherwise attends to no token."""
    queries = len(pair.source_tokens if kind == "encoder" else pair.target_tokens)
    cases = pair.cases[kind, relation]
    return np.array([min(cases[q]) if q in cases else -1 for q in range(queries)])


@pytest.mark.parametrize("reverse", [False, True])
def test_subwords_of_a_token_spell_it(run: Run, reverse: bool):
    for example in (EXAMPLE, *SENTENCES[:10]):
        pair = annotate(example, reverse)
        found = owners(run.tokenizer, pair.source_tokens, pair.source)
        ids = run.tokenizer.encode(pair.source)
        assert found == sorted(found)
        for number, token in enumerate(pair.source_tokens):
            own = [piece for piece, owner in zip(ids, found, strict=True) if owner == number]
            assert run.tokenizer.decode(own).strip() == token


def test_bytes_and_spaces_that_are_subwords_find_their_token(run: Run):
    pieces = run.tokenizer.pieces(run.tokenizer.encode("dog é\u4e00 ñandu"))
    assert sum(piece.startswith("<0x") for piece in pieces) >= 5 and "▁" in pieces
    found = owners(run.tokenizer, ("dog", "é\u4e00", "ñandu"), "dog é\u4e00 ñandu")
    assert [piece for piece, owner in zip(pieces, found, strict=True) if owner == 1] == [
        "▁",
        *(f"<0x{byte:02X}>" for byte in "é\u4e00".encode()),
    ]


def test_a_space_before_a_sentence_belongs_to_its_first_token(run: Run):
    assert run.tokenizer.pieces(run.tokenizer.encode("\u4e00"))[0] == "▁"
    assert owners(run.tokenizer, ("\u4e00",), "\u4e00") == [0] * 4


def test_lower_cased_subwords_find_their_token(tmp_path: Path):
    lines = [text for pair in tiny_run.PAIRS for text in pair]
    tokenizer = Tokenizer.train(lines, 310, tmp_path / "t.model", lowercase=True)
    found = owners(tokenizer, EXAMPLE.german_tokens, EXAMPLE.german)
    assert sorted(set(found)) == list(range(len(GERMAN)))


def test_tokens_of_another_sentence_are_refused(run: Run):
    with pytest.raises(ValueError, match=r"'cat' is not token 1 of 'The dog sleeps\."):
        owners(run.tokenizer, ("The", "cat", "sleeps", "."), "The dog sleeps.")
    with pytest.raises(ValueError, match="'sleeps' is not token 1"):
        owners(run.tokenizer, ("The", "sleeps", "."), "The dog sleeps.")


def test_weights_to_parts_are_added_and_from_parts_averaged():
    weights_ts = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.1, 0.4], [0.0, 0.5, 0.25, 0.25], [1, 0, 0, 0]])
    found = token_weights(weights_ts[None, None], Spans([0, 0, 1, -1], [-1, 0, 0, 1]))
    np.testing.assert_allclose(found[0, 0], [[0.4, 0.4, 0.2], [0.75, 0.25, 0.0]])
    assert largest(np.array([[[0.3, 0.1, 0.6], [0.1, 0.5, 0.4]]])).tolist() == [[-1, 1]]


def test_relations_lead_where_the_sentence_says():
    cases = annotate(EXAMPLE).cases
    assert cases["encoder", "antecedent"] == {4: {2}} and cases["encoder", "relative"] == {8: {7}}
    assert cases["encoder", "verb"] == {} == cases["encoder", "particle"]
    assert cases["decoder", "verb"] == {3: {1}} and cases["decoder", "particle"] == {}
    assert cases["decoder", "antecedent"] == {6: {2}} and cases["decoder", "next"] == {} == cases["decoder", "same"]
    assert cases["cross", "verb"] == {3: {1}} and cases["cross", "relative"] == {11: {7}}
    assert cases["cross", "same"][3] == {1} and 4 not in cases["cross", "same"]
    assert cases["cross", "previous"][4] == {1} and cases["cross", "next"][2] == {1}
    assert cases["encoder", "it"] == {} == cases["decoder", "it"]
    tired = EXAMPLE._replace(tree=Tree("S", tuple(Tree("X", "it" if word == "we" else word) for word in ENGLISH)))
    assert annotate(tired).cases["encoder", "it"] == {4: {2}} and annotate(tired).cases["decoder", "it"] == {6: {2}}
    turned = annotate(EXAMPLE, reverse=True)
    assert turned.source_tokens == GERMAN and turned.cases["encoder", "particle"] == {1: {3}}
    assert turned.cases["cross", "same"][1] == {1, 3} and (1, 3) in turned.alignment
    assert annotate(EXAMPLE).alignment == {(t, s) for s, t in EXAMPLE.alignment}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_head_that_follows_a_relation_is_found_and_one_that_does_not_is_not(reverse: bool):
    pairs = [annotate(example, reverse) for example in (EXAMPLE, *SENTENCES)]
    for kind in KINDS:
        for relation in RELATIONS:
            tally = RoleTally(2, 2)
            for pair in pairs:
                chosen = np.full((2, 2, len(follower(pair, kind, relation))), -1)
                chosen[1, 0] = follower(pair, kind, relation)
                tally.add(pair, kind, chosen)
            if not any(pair.cases[kind, relation] for pair in pairs):
                assert (kind, relation) not in tally.cases
                continue
            role = role_report(tally, tally)[kind][relation]
            assert role["best"] == {"layer": 2, "head": 1, "accuracy": 1.0}
            assert role["accuracy"] == [[0, 0], [1, 0]]
            assert role["cases"] == sum(len(pair.cases[kind, relation]) for pair in pairs)


def test_the_head_is_chosen_on_the_valid_sentences_and_scored_on_the_test_ones():
    pair = annotate(EXAMPLE)
    right, wrong = follower(pair, "encoder", "antecedent"), np.full(len(ENGLISH), 5)
    valid, test = RoleTally(1, 2), RoleTally(1, 2)
    valid.add(pair, "encoder", np.stack([wrong, right])[None])
    test.add(pair, "encoder", np.stack([right, wrong])[None])
    role = role_report(valid, test)["encoder"]["antecedent"]
    assert role["best"] == {"layer": 1, "head": 2, "accuracy": 0.0} and role["accuracy"] == [[1.0, 0.0]]


def test_baselines_are_the_best_distance_and_any_visible_token():
    tally = RoleTally(1, 1)
    pair = annotate(EXAMPLE)
    for kind in KINDS:
        tally.add(pair, kind, np.zeros((1, 1, len(ENGLISH if kind == "encoder" else GERMAN)), int))
    report = role_report(tally, tally)
    assert report["encoder"]["previous"]["fixed"] == {"distance": -1, "accuracy": 1.0}
    assert report["encoder"]["previous"]["chance"] == pytest.approx(1 / 12)  # eleven tokens and </s>
    assert report["decoder"]["verb"]["chance"] == pytest.approx(1 / 4)  # <s> and three tokens
    translated = report["cross"]["same"]
    assert translated["fixed"]["accuracy"] == pytest.approx(3 / 12)  # 0, -2 and -3 alike
    assert translated["cases"] == 12 and translated["chance"] == pytest.approx(1 / 12)


def test_alignment_error_by_hand():
    pair = AnnotatedPair("a b c", "x y z", ("a", "b", "c"), ("x", "y", "z"), {}, frozenset({(0, 0), (1, 1), (1, 2)}))
    tally = AlignmentTally(1, 2)
    tally.add(pair, np.array([[[0, 2, -1], [1, 0, 2]]]))
    np.testing.assert_allclose(tally.error_nh(), [[1 - 4 / (2 + 3), 1.0]])
    assert tally.diagonal_error() == pytest.approx(1 - 4 / (3 + 3))


def test_the_best_layer_and_head_for_alignment_are_chosen_on_the_valid_sentences():
    pair = AnnotatedPair("a b", "x y", ("a", "b"), ("x", "y"), {}, frozenset({(0, 0), (1, 1)}))

    def tallies(first: list[int], second: list[int]) -> list[AlignmentTally]:
        made = [AlignmentTally(2, 1), AlignmentTally(2, 1)]
        for tally in made:
            tally.add(pair, np.array([[first], [second]]))
        return made

    report = alignment_report(tallies([1, 0], [0, 1]), tallies([0, 1], [0, 0]))
    assert report["layers"] == [0.0, 0.5] and report["heads"] == [[0.0], [0.5]] and report["links"] == 2
    assert report["best_layer"] == {"layer": 2, "error": 0.5}
    assert report["best_head"] == {"layer": 2, "head": 1, "error": 0.5}


def test_batches_and_padding_change_no_weights(run: Run):
    pairs = [annotate(EXAMPLE), *(annotate(example) for example in SENTENCES[:2])]
    seen = []
    for pair, maps in sentence_maps(run, pairs):
        alone = attention_maps(run.model_config, run.params, run.tokenizer, pair.source, pair.target)
        for kind, spans in spans_of(run.tokenizer, pair).items():
            weights_nhts = alone[kind].weights_nhts
            assert weights_nhts.shape[2:] == (len(spans.queries), len(spans.keys))
            np.testing.assert_allclose(maps[kind], token_weights(weights_nhts, spans), atol=1e-5)
            np.testing.assert_allclose(maps[kind].sum(-1), 1, atol=1e-5)
        seen.append(pair)
    assert len(seen) == 3 and all(pair in seen for pair in pairs)


def test_the_direction_is_that_of_the_training_corpus(run: Run):
    def trained_on(spec: str) -> Run:
        config = run.config.copy_and_resolve_references()
        config.data.train = spec
        return run._replace(config=config)

    assert [direction(trained_on(f"grammar:train:9{end}")) for end in ("", ":{en,de}", ":{de,en}")] == [0, 0, 1]
    for spec in ("text:a.{en,fr}", "trees:grammar:train"):
        with pytest.raises(UserError, match=f"trained on {spec}".replace("{", r"\{")):
            direction(trained_on(spec))


def test_a_result_is_kept_and_used_while_the_parameters_are_the_same(run: Run):
    path = run.workdir / "evaluations" / "heads.json"
    first = kept(run, 3)
    path.write_text(json.dumps({**first, "step": "kept"}))
    assert kept(run, 3)["step"] == "kept"
    path.write_text(json.dumps({key: value for key, value in first.items() if key != "counted_from"}))
    assert kept(run, 3)["counted_from"] == 1  # earlier results, which counted from 0, are computed again
    assert kept(run, 2)["scored_on"] == "grammar:test:2"
    other = open_run(run.workdir, "2")
    assert kept(other, 2)["params_sha256"] != first["params_sha256"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda found: [found], r"heads\.json: damaged: it is \[.*; it must be an object"),
        (lambda found: found | {"roles": {}}, r"heads\.json: damaged: roles has no 'encoder'"),
        (lambda found: found | {"alignment": found["alignment"] | {"diagonal": "x"}}, r"alignment\.diagonal is \"x\""),
        (
            lambda found: found | {"roles": found["roles"] | {"cross": {"same": {}}}},
            r"roles\.cross\.same has no 'cases'",
        ),
    ],
)
def test_a_damaged_result_is_named_in_one_line(run: Run, damage: Callable[[dict], object], message: str):
    path = run.workdir / "evaluations" / "heads.json"
    found = kept(run, 2)
    try:
        path.write_text(json.dumps(damage(found)))
        with pytest.raises(UserError, match=message) as error:
            kept(run, 2)
        assert "\n" not in str(error.value)
    finally:
        path.write_text(json.dumps(found))


def test_judge_scores_what_the_sentences_hold(run: Run):
    found = judge(run, 3)
    tokens = sum(len(grammar.pair("test", i).tree.leaves()) for i in range(3))
    assert found["roles"]["encoder"]["same"]["cases"] == tokens
    assert found["alignment"]["links"] == sum(len(grammar.pair("test", i).alignment) for i in range(3))
    assert np.shape(found["alignment"]["heads"]) == (2, 2) and np.shape(found["alignment"]["layers"]) == (2,)
    best = found["roles"]["decoder"]["previous"]["best"]
    assert f"{best['layer']:>5}  {best['head']:>4}  {100 * best['accuracy']:>8.1f}" in table(found)


def test_command_prints_and_keeps(run: Run):
    command = [sys.executable, "-m", "infer.heads", f"--workdir={run.workdir}", "--sentences=2", "--json"]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": ".cache/jax-tests"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((run.workdir / "evaluations" / "heads.json").read_text())
