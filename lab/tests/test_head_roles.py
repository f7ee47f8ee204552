"""Head roles and alignment error: planted weights whose answer is known, and the command on a tiny run."""

import dataclasses
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from lab.heads import figures
from lab.heads.__main__ import main
from lab.heads.ablation import TOKENS, WIDTH, Forced, ablate, ablation_text, without
from lab.heads.measure import (
    Spans,
    largest,
    load_or_measure,
    measure_heads,
    save,
    sentence_maps,
    spans_of,
    tally,
    token_weights,
    untrained,
)
from lab.heads.roles import (
    RELATIONS,
    AlignmentTally,
    AnnotatedPair,
    RoleTally,
    alignment_report,
    annotate,
    null_accuracy,
    role_report,
)
from lab.heads.sample import RARE, Sample, sample
from lab.heads.seeds import seeds_text
from lab.heads.text import heads_text, stands_out
from tests import tiny
from tests.conftest import ROOT
from vaswani.data.grammar import sentences as grammar
from vaswani.data.grammar.sentences import Example, Links
from vaswani.data.symbols import Symbols
from vaswani.data.trees.tree import Tree
from vaswani.errors import UserError
from vaswani.infer.attention.alignment import align
from vaswani.infer.attention.kinds import KINDS
from vaswani.infer.attention.maps import attention_maps
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores.forced import forced_batches
from vaswani.model.transformer import Transformer
from vaswani.paper.grammar_runs import owners
from vaswani.run.builtin import run_folder
from vaswani.tasks.translation import objective
from vaswani.tokens import Tokens
from vaswani.train.intervals import wilson

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
    return open_run(tiny.write_grammar_run(tmp_path_factory.mktemp("heads") / "run"), "latest")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collects the figures that are drawn instead of writing files."""
    made: list[Figure] = []

    @contextmanager
    def keep(path: Path, width: float, height: float) -> Iterator[Figure]:
        made.append(Figure(figsize=(width, height)))
        yield made[-1]

    monkeypatch.setattr(figures, "figure_file", keep)
    return made


def follower(pair: AnnotatedPair, kind: str, relation: str) -> np.ndarray:
    """Returns the keys [t] of a head that follows one relation and otherwise attends to no token."""
    queries = len(pair.source_tokens if kind == "encoder" else pair.target_tokens)
    cases = pair.cases[kind, relation]
    return np.array([min(cases[q]) if q in cases else -1 for q in range(queries)])


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
            low, high = wilson(role["cases"], role["cases"])
            assert role["best"] == {"layer": 2, "head": 1, "accuracy": 1.0, "low": low, "high": high}
            assert role["accuracy"] == [[0, 0], [1, 0]]
            assert role["luck"] == null_accuracy(role["chance"], role["cases"], 4)
            assert role["cases"] == sum(len(pair.cases[kind, relation]) for pair in pairs)


def test_the_head_is_chosen_on_the_valid_sentences_and_scored_on_the_test_ones():
    pair = annotate(EXAMPLE)
    right, wrong = follower(pair, "encoder", "antecedent"), np.full(len(ENGLISH), 5)
    valid, test = RoleTally(1, 2), RoleTally(1, 2)
    valid.add(pair, "encoder", np.stack([wrong, right])[None])
    test.add(pair, "encoder", np.stack([right, wrong])[None])
    role = role_report(valid, test)["encoder"]["antecedent"]
    assert (role["best"]["layer"], role["best"]["head"], role["best"]["accuracy"]) == (1, 2, 0.0)
    assert role["accuracy"] == [[1.0, 0.0]]


def test_baselines_are_the_best_distance_and_any_visible_token():
    tally = RoleTally(1, 1)
    pair = annotate(EXAMPLE)
    for kind in KINDS:
        tally.add(pair, kind, np.zeros((1, 1, len(ENGLISH if kind == "encoder" else GERMAN)), int))
    report = role_report(tally, tally)
    low, high = wilson(10, 10)
    assert report["encoder"]["previous"]["fixed"] == {"distance": -1, "accuracy": 1.0, "low": low, "high": high}
    assert report["encoder"]["previous"]["chance"] == pytest.approx(1 / 12)  # eleven tokens and </s>
    assert report["decoder"]["verb"]["chance"] == pytest.approx(1 / 4)  # <s> and three tokens
    translated = report["cross"]["same"]
    assert translated["fixed"]["accuracy"] == pytest.approx(3 / 12)  # 0, -2 and -3 alike
    assert translated["cases"] == 12 and translated["chance"] == pytest.approx(1 / 12)


def test_each_of_several_right_keys_is_right():
    pair = annotate(EXAMPLE, reverse=True)
    assert pair.cases["cross", "same"][1] == {1, 3}  # "calls" is "ruft" and "an"
    for key, hits in ((1, 1), (2, 0), (3, 1)):
        chosen_nht = np.full((1, 1, len(ENGLISH)), -1)
        chosen_nht[0, 0, 1] = key
        tally = RoleTally(1, 1)
        tally.add(pair, "cross", chosen_nht)
        assert tally.hits_nh["cross", "same"].tolist() == [[hits]]
    assert tally.cases["cross", "same"] == len(ENGLISH)
    assert tally.chance["cross", "same"] == pytest.approx((len(ENGLISH) + 1) / (len(GERMAN) + 1))
    assert tally.distances["cross", "same"].total() == len(ENGLISH) + 1


def test_alignment_error_by_hand():
    pair = AnnotatedPair("a b c", "x y z", ("a", "b", "c"), ("x", "y", "z"), {}, frozenset({(0, 0), (1, 1), (1, 2)}))
    tally = AlignmentTally()
    tally.add(pair, np.array([[[0, 2, -1], [1, 0, 2]]]))
    np.testing.assert_allclose(tally.error_nh(), [[1 - 4 / (2 + 3), 1.0]])
    assert tally.diagonal_error() == pytest.approx(1 - 4 / (3 + 3))


def test_the_best_layer_and_head_for_alignment_are_chosen_on_the_valid_sentences():
    pair = AnnotatedPair("a b", "x y", ("a", "b"), ("x", "y"), {}, frozenset({(0, 0), (1, 1)}))

    def tallies(first: list[int], second: list[int]) -> list[AlignmentTally]:
        made = [AlignmentTally(), AlignmentTally()]
        for one in made:
            one.add(pair, np.array([[first], [second]]))
        return made

    report = alignment_report(tallies([1, 0], [0, 1]), tallies([0, 1], [0, 0]))
    assert report["layers"] == [0.0, 0.5] and report["heads"] == [[0.0], [0.5]] and report["links"] == 2
    only = {"low": 0.5, "high": 0.5}  # one sentence, however often it is drawn
    assert report["best_layer"] == {"layer": 2, "error": 0.5} | only
    assert report["best_head"] == {"layer": 2, "head": 1, "error": 0.5} | only


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_sentence_as_long_as_the_learned_positions_is_read(run: Run):
    pair = annotate(EXAMPLE)
    longest = 1 + max(len(run.tokenizer.encode(text)) for text in (pair.source, pair.target))
    assert longest % 8  # no row length of its own
    without_any = run._replace(model_config=dataclasses.replace(run.model_config, positions="none"))
    config = dataclasses.replace(run.model_config, positions="learned", max_positions=longest)
    zeros_ld = np.zeros((longest, config.d_model), np.float32)
    tables = dict.fromkeys(("source_positions", "target_positions"), zeros_ld)
    learned = run._replace(model_config=config, params=run.params | tables)
    (_, one), (_, other) = (next(sentence_maps(of, [pair])) for of in (without_any, learned))
    for kind in KINDS:
        np.testing.assert_allclose(one[kind], other[kind], atol=1e-6)
    assert align(learned, [(pair.source, pair.target)], 0) == align(without_any, [(pair.source, pair.target)], 0)
    one, other = (Forced(of, [pair]).right(of.params) for of in (without_any, learned))
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_result_is_kept_and_used_while_the_parameters_are_the_same(run: Run):
    path = run.workdir / "evaluations" / "heads.json"
    first = load_or_measure(run, 2, cases=0)
    path.write_text(json.dumps({**first, "step": "kept"}))
    assert load_or_measure(run, 2, cases=0)["step"] == load_or_measure(run, 1, cases=0)["step"] == "kept"
    assert load_or_measure(run, 3, cases=0)["scored_on"] == "grammar:test:3"
    path.write_text(json.dumps({key: value for key, value in first.items() if key != "cases"} | {"step": "older"}))
    assert (
        load_or_measure(run, 2, cases=0)["step"] == first["step"]
    )  # older results counted from 0: they are computed again
    other = open_run(run.workdir, "2")
    assert load_or_measure(other, 3, cases=0)["params_sha256"] != first["params_sha256"]


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
    found = load_or_measure(run, 2, cases=0)
    try:
        path.write_text(json.dumps(damage(found)))
        with pytest.raises(UserError, match=message) as error:
            load_or_measure(run, 2, cases=0)
        assert "\n" not in str(error.value)
    finally:
        path.write_text(json.dumps(found))


def test_measure_heads_scores_what_the_sentences_hold(run: Run):
    found = measure_heads(run, 3, cases=0)
    tokens = sum(len(grammar.pair("test", i).tree.leaves()) for i in range(3))
    assert found["roles"]["encoder"]["same"]["cases"] == tokens
    assert found["alignment"]["links"] == sum(len(grammar.pair("test", i).alignment) for i in range(3))
    assert np.shape(found["alignment"]["heads"]) == (2, 2) and np.shape(found["alignment"]["layers"]) == (2,)
    best = found["roles"]["decoder"]["previous"]["best"]
    row = f"previous token +{best['layer']} +{best['head']} +{100 * best['accuracy']:.1f} +"
    assert re.search(row, heads_text(found).partition("decoder self-attention")[2])
    assert "untrained" in heads_text(found) and "2 runs" in seeds_text([found, found])


@pytest.mark.slow
def test_more_sentences_are_read_for_rare_relations_and_count_for_them_alone():
    few = sample("test", 40, 12, False)
    count = {name: len(cases) for name, cases in few.first[0].cases.items()}
    count = {name: sum(len(pair.cases.get(name, {})) for pair in (*few.first, *few.more)) for name in count}
    rare = {name for name in count if name[1] in RARE and any(pair.cases[name] for pair in few.first)}
    assert rare and all(count[name] >= 12 for name in rare)
    assert all(pair.cases and {relation for _, relation in pair.cases} <= set(RARE) for pair in few.more)
    assert few.named("test") == f"grammar:test:40, {len(few.more)} more with rare relations"
    assert sample("test", 40, 0, False).more == []


def test_alignments_are_counted_on_the_first_sentences_alone(run: Run):
    pairs = [annotate(example) for example in SENTENCES[:3]]
    some, more = tally(run, Sample(pairs[:2], [])), tally(run, Sample(pairs[:2], pairs[2:]))
    assert more[1].true == some[1].true and more[0].cases["encoder", "same"] > some[0].cases["encoder", "same"]


def test_a_layer_aligns_by_the_mean_of_its_heads(run: Run, monkeypatch: pytest.MonkeyPatch):
    pair = AnnotatedPair("a b c", "x", ("a", "b", "c"), ("x",), {}, frozenset({(0, 1)}))
    weights_nhts = np.array([[[[0.5, 0.4, 0.1, 0.0]], [[0.1, 0.4, 0.5, 0.0]]]])  # the last column is no token
    maps = [(pair, dict.fromkeys(KINDS, weights_nhts))]
    monkeypatch.setattr("lab.heads.measure.sentence_maps", lambda run, pairs: maps if pairs else [])
    _, heads, layers = tally(run, Sample([pair], []))
    assert heads.error_nh().tolist() == [[1.0, 1.0]] and layers.error_nh().tolist() == [[0.0]]


def test_the_untrained_run_is_what_the_seed_begins_with(run: Run):
    fresh, again = untrained(run), untrained(run)
    assert fresh.step == 0 and not fresh.checkpoints
    init_key, _ = jax.random.split(jax.random.key(run.config.seed))  # train/loop.py
    begun = objective(run.model_config, eps_ls=0.1).init(init_key)
    for one, other, third in zip(*map(jax.tree.leaves, (fresh.params, again.params, begun)), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


def test_the_null_is_the_best_of_many_random_heads():
    """The 95 % quantile of the largest of 24 binomials, 0.95 ** (1 / 24) of each being below it."""
    cases, chance = 7, 0.1
    below = np.cumsum([math.comb(cases, k) * chance**k * (1 - chance) ** (cases - k) for k in range(cases + 1)])
    assert null_accuracy(chance, cases, 24) == pytest.approx(np.argmax(below**24 >= 0.95) / cases)
    assert null_accuracy(chance, 100_000, 24) == pytest.approx(chance, abs=0.01)


def test_a_head_stands_out_above_all_of_its_baselines():
    role = {"best": {"low": 0.5}, "luck": 0.4, "untrained": {"high": 0.4}, "fixed": {"high": 0.4}}
    assert stands_out(role)
    for worse in ({"luck": 0.5}, {"untrained": {"high": 0.6}}, {"fixed": {"high": 0.5}}):
        assert not stands_out(role | worse)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_head_its_weights_do_not_matter_and_others_do(run: Run, kind: str):
    """W^V of the head that is left out may be anything; of another head it may not."""
    stack, attention = {"encoder": ("encoder", "self_attention"), "decoder": ("decoder", "self_attention")}.get(
        kind, ("decoder", "cross_attention")
    )
    model, token = Transformer(run.model_config), Tokens.of(jnp.array([[5, 6, 7, 8]], jnp.int32))
    logits = jax.jit(lambda params: model.apply({"params": params}, token, token))
    params = jax.tree.map(np.array, without(run.params, kind, 1, 0))
    assert not params[stack]["layer_1"][attention]["wo"][0].any()
    assert run.params[stack]["layer_1"][attention]["wo"].all()
    ablated = logits(params)
    params[stack]["layer_1"][attention]["wv"][:, 0] += 1
    np.testing.assert_array_equal(logits(params), ablated)
    params[stack]["layer_1"][attention]["wv"][:, 1] += 1
    assert np.abs(logits(params) - ablated).max() > 1e-3


@pytest.mark.slow
def test_what_is_predicted_is_right(run: Run):
    """With the model's own choices as the true subwords every position is right, and without them none need be."""
    forced = Forced(run, [annotate(example) for example in SENTENCES[:8]])
    assert not forced.right(run.params).all()
    model = Transformer(run.model_config)
    logits = jax.jit(lambda params, *sides: model.apply({"params": params}, *map(Tokens.of, sides)))
    sides = (forced.sources, forced.target_inputs)
    batches = forced_batches(partial(logits, run.params), *sides, width=WIDTH, tokens=TOKENS, limit=None)
    for members, logits_btv in batches:
        for row, member in enumerate(members):
            chosen_t = np.asarray(logits_btv[row]).argmax(-1)
            forced.targets[member] = chosen_t[: len(forced.targets[member])].tolist()
    assert forced.right(run.params).all()


def test_a_case_is_right_if_all_its_subwords_are(run: Run):
    forced = Forced(run, [annotate(EXAMPLE)])
    spelled = owners(run.tokenizer, GERMAN, EXAMPLE.german)
    everything = np.ones(forced.starts[-1], bool)
    for kind, tokens in (("encoder", {6}), ("decoder", {6})):  # we -> wir, whose antecedent is us
        cases = forced.cases(kind, "antecedent")
        assert cases is not None and cases.right(everything).tolist() == [True]
        assert {spelled[place] for place in cases.places} == tokens
        for place in cases.places:
            wrong = everything.copy()
            wrong[place] = False
            assert cases.right(wrong).tolist() == [False]
    every = forced.cases("cross", "same")
    assert every is not None and np.diff(every.starts).max() > 1
    wrong = everything.copy()
    wrong[every.places[every.starts]] = False  # the first subword of each alone
    assert not every.right(wrong).any()
    assert forced.cases("encoder", "verb") is None


def test_layers_that_share_their_parameters_are_refused_before_heads_are_measured(monkeypatch: pytest.MonkeyPatch):
    run = tiny.random_run(share_layers=True)
    monkeypatch.setattr("lab.heads.__main__.open_run", lambda workdir, checkpoint: run)
    monkeypatch.setattr("lab.heads.__main__.measure_heads", lambda *arguments: pytest.fail("measured"))
    options = SimpleNamespace(
        workdir=["run"], checkpoint=None, ablate=True, json=True, sentences=1, cases=0, output=None
    )
    with pytest.raises(UserError, match="its layers share parameters"):
        main(options)


def test_ablation_by_hand(run: Run, monkeypatch: pytest.MonkeyPatch):
    """Without one head nothing is right, without the others all is as it was."""
    roles = {kind: {"same": {"best": {"layer": 2, "head": 2}}} for kind in KINDS}
    everything: list[np.ndarray] = []

    def right(self: Forced, params: Any) -> np.ndarray:
        wo = params["encoder"]["layer_1"]["self_attention"]["wo"]
        everything.append(np.full(self.starts[-1], bool(wo[1].any())))
        return everything[-1]

    monkeypatch.setattr(Forced, "right", right)
    found = ablate(run, roles, Sample([annotate(example) for example in SENTENCES[:3]], []))
    assert len(everything) == 1 + 3 * 4
    of = found["encoder"]["same"]
    assert (of["intact"], of["ablated"], of["change"], of["low"], of["high"], of["others"]) == (1, 0, -1, -1, -1, 0)
    assert found["cross"]["same"]["change"] == 0
    assert "-100.0" in ablation_text(found)


@pytest.mark.slow
def test_command_prints_keeps_and_draws(run: Run, tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "lab.heads",
        f"--workdir={run.workdir}",
        "--sentences=2",
        "--cases=0",
        "--ablate",
        "--json",
        f"--output={tmp_path}",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((run.workdir / "evaluations" / "heads.json").read_text())
    for name in ("heads", "alignment"):
        assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")


def test_a_flag_that_may_be_repeated_says_so_once() -> None:
    done = subprocess.run([sys.executable, "-m", "lab.heads", "--help"], capture_output=True, text=True, cwd=ROOT)
    text = " ".join(done.stdout.split())
    assert "--workdir: folder of the run, or a bundled model" in text
    assert text.count("repeat this option to specify a list of values") == 1


def test_no_result_is_saved_in_a_bundled_model(capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder("workdir", "builtin:quickstart")
    save(folder / "evaluations" / "heads.json", {})
    assert "a bundled model is read-only" in capsys.readouterr().err
    assert not (folder / "evaluations").exists()


def test_roles_are_drawn_as_measured_and_the_chosen_head_is_framed(drawn: list[Figure]):
    role = {"cases": 1234, "accuracy": [[0.1, 0.2], [0.7, 0.4]], "best": {"layer": 2, "head": 2, "accuracy": 0.4}}
    figures.draw_roles({"encoder": {"next": role}, "decoder": {}, "cross": {"verb": role}}, Path("x"))
    axes, cross = drawn[0].axes
    assert [text.get_text() for text in axes.texts] == ["10", "20", "70", "40"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1.1", "1.2", "2.1", "2.2"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["next token (1,234)"]
    (frame,) = axes.lines
    assert np.mean(frame.get_xdata()[:4]) == 3 and "translation" in cross.get_title()


def test_no_frame_stands_round_a_head_that_never_finds_it(drawn: list[Figure]):
    role = {"cases": 7, "accuracy": [[0.0, 0.0]], "best": {"layer": 1, "head": 1, "accuracy": 0.1}}
    figures.draw_roles({"encoder": {"next": role}, "decoder": {}, "cross": {}}, Path("x"))
    (axes,) = drawn[0].axes
    assert not axes.lines and drawn[0].get_suptitle().startswith("How often each head looks most at the right")


def test_the_most_crossed_pair_is_the_one_with_most_crossings():
    def pair(*links: tuple[int, int]) -> AnnotatedPair:
        return AnnotatedPair("", "", ("a",) * 3, ("b",) * 3, {}, frozenset(links))

    straight, crossed = pair((0, 0), (1, 1), (2, 2)), pair((0, 2), (1, 1), (2, 0))
    long = crossed._replace(source_tokens=("a",) * 17)
    assert figures.most_crossed([straight, pair((0, 1), (1, 0)), crossed, long]) is crossed


def test_the_true_alignment_is_framed(run: Run, drawn: list[Figure]):
    pair = annotate(grammar.pair("test", 24))
    found = figures.aligned(run, pair, 1)
    np.testing.assert_allclose(found.weights_ts.sum(-1), 1, atol=1e-5)
    figures.draw_alignment(found, 1, Path("x"))
    (axes,) = drawn[0].axes
    frames = [(round(np.mean(f.get_ydata()[:4])), round(np.mean(f.get_xdata()[:4]))) for f in axes.lines]
    assert sorted(frames) == sorted(pair.alignment)


def test_a_run_of_words_is_refused_before_anything_is_measured(run: Run):
    words = run._replace(text=Symbols.of(tiny.PAIRS, 0, "words"))
    with pytest.raises(UserError, match=r"this run's units are words; heads are measured by subwords$"):
        measure_heads(words, sentences=1, cases=0)
