"""Pairs with one wrong word, scored by a run: what is taken, what is added to an evaluation, and what is refused."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lab.contrast import command
from lab.contrast.pairs import BANDS, band_of, minimal_pairs
from lab.contrast.sentences import RELATIONS
from tests import tiny
from tests.planted import scores
from vaswani.errors import UserError
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores.perplexity import line_log_probs
from vaswani.paper.records import read_run
from vaswani.run.parameters import params_sha256


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tiny.write_grammar_run(tmp_path_factory.mktemp("contrast") / "run", test="grammar:test:20")
    return open_run(folder, "latest")


def evaluated(run: Run, **changes: Any) -> Path:
    """Writes an evaluation of the test split into the run, and returns its file."""
    config = json.loads((run.workdir / "config.json").read_text())
    content = scores(config, "test", 50.0, params_sha256=params_sha256(run.params), **changes)
    path = run.workdir / "evaluations" / "test.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def options(run: Run) -> SimpleNamespace:
    return SimpleNamespace(workdir=[str(run.workdir)], checkpoint="latest", sentences=30, cases=2)


def test_bands_hold_every_distance_once() -> None:
    assert [band_of(distance) for distance in (1, 2, 3, 4, 5, 7, 8, 40)] == [band for band in BANDS for _ in range(2)]


def test_the_first_pairs_of_each_kind_are_taken() -> None:
    some = minimal_pairs("rich:test", 60, 5)
    assert {relation for relation, _ in some} == RELATIONS.keys()
    assert max(map(len, some.values())) == 5
    fewer = minimal_pairs("rich:test", 60, 2)
    assert all(fewer[name] == cell[:2] for name, cell in some.items())
    assert all(right != wrong for cell in some.values() for _, right, wrong in cell)


def test_a_pair_is_right_if_its_right_sentence_is_the_more_probable(run: Run) -> None:
    pairs = minimal_pairs("test", 30, 2)
    found = command.measure(run, pairs)
    assert [(cell["relation"], tuple(cell["words"])) for cell in found] == list(pairs)
    for cell, members in zip(found, pairs.values(), strict=True):
        right = 0
        for english, german, wrong in members:
            one, other = line_log_probs(run.model_config, run.params, run.tokenizer, [english] * 2, [german, wrong])
            right += bool(one > other)
        assert (cell["cases"], cell["right"]) == (len(members), right)
    swapped = {name: [(english, wrong, right) for english, right, wrong in cell] for name, cell in pairs.items()}
    for cell, other in zip(found, command.measure(run, swapped), strict=True):
        assert cell["right"] + other["right"] == cell["cases"]


def test_the_newest_evaluation_keeps_its_scores_and_gets_the_pairs(run: Run, capsys: pytest.CaptureFixture) -> None:
    path = evaluated(run)
    before = json.loads(path.read_text())
    command.main(options(run))
    after = json.loads(path.read_text())
    assert {key: after[key] for key in before} == before and after.keys() - before.keys() == {"contrasts"}
    assert "the number of a finite verb" in capsys.readouterr().out
    (evaluation,) = read_run(run.workdir).evaluations
    assert evaluation.scores["contrasts"] == command.measure(run, minimal_pairs("test", 30, 2))
    assert np.sum([cell["cases"] for cell in after["contrasts"]]) > 2
    path.write_text(json.dumps(after | {"contrasts": [{"relation": "it", "words": [1, 2], "cases": "many"}]}))
    with pytest.raises(UserError, match=r"test\.json: damaged: contrasts"):
        read_run(run.workdir)


def test_an_evaluation_of_other_parameters_is_refused(run: Run) -> None:
    path = evaluated(run)
    path.write_text(path.read_text().replace(params_sha256(run.params), "0" * 64))
    with pytest.raises(UserError, match=r"test\.json: it is of other parameters than step"):
        command.main(options(run))


def test_a_run_without_an_evaluation_is_refused(run: Run) -> None:
    for path in (run.workdir / "evaluations").glob("*"):
        path.unlink()
    with pytest.raises(UserError, match="no evaluation of the test split; run python -m infer"):
        command.main(options(run))


@pytest.mark.parametrize("spec", ["text:some.{en,de}", "grammar:test:20:{de,en}", "grammar:test:{en,number}"])
def test_another_corpus_is_refused(run: Run, spec: str) -> None:
    other = run._replace(config=run.config.copy_and_resolve_references())
    other.config.data.test = spec
    with pytest.raises(UserError, match=r"its data\.test is .*; pairs are made of the built-in grammar"):
        command._split(other)


def test_a_split_that_the_grammar_lacks_is_refused(run: Run) -> None:
    other = run._replace(config=run.config.copy_and_resolve_references())
    other.config.data.test = "grammar:unknown"
    with pytest.raises(UserError, match=r"^corpus 'grammar:unknown': write grammar:SPLIT"):
        command._split(other)
