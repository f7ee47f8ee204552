"""A hand-written treebank is trained on, parsed and scored: the whole pipeline from brackets to F1."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tiny
from vaswani.data.from_config import prepare_all
from vaswani.data.lines import read_lines
from vaswani.data.trees.linearise import linearise
from vaswani.data.trees.treebank import read_trees
from vaswani.errors import UserError
from vaswani.infer import parse
from vaswani.infer.evaluate import trees as evaluation
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores.brackets import COLLINS, score_lines, summaries
from vaswani.infer.translate.translator import Hypothesis, Translation, Translator
from vaswani.search.options import Decoding
from vaswani.train import loop

TREEBANK = """
( (S (NP-SBJ (DT the) (NN dog)) (VP (VBZ sleeps)) (. .)))
( (S
    (NP-SBJ-1 (DT a) (JJ red) (NN cat))
    (VP (VBZ tries)
      (S (NP (-NONE- *-1)) (VP (TO to) (VP (VB sleep)))))
    (. .)))
( (S (NP-SBJ (PRP she)) (VP (VBZ sees) (NP (DT the) (NN cat))) (. .)))
( (SQ (VBZ does) (NP-SBJ (DT the) (NN dog)) (VP (VB see) (NP (PRP it))) (. ?)))
"""
SENTENCES = ["the dog sleeps .", "a red cat tries to sleep .", "she sees the cat .", "does the dog see it ?"]
KEYS = {*evaluation.SCORES, "repaired_share", "sentences", "signatures", "params", "params_sha256", "step",
        "checkpoints", "errors", "evalb", "figures", "beam", "alpha", "extra_length", "stopping", "data", "split",
        "device", "time"}  # fmt: skip


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parse")
    (folder / "train.mrg").write_text(TREEBANK * 30)
    (folder / "test.mrg").write_text(TREEBANK)
    cfg = tiny.training_config(folder)
    cfg.data.train, cfg.data.valid, cfg.data.test = (f"trees:{folder}/{name}.mrg" for name in ("train", "test", "test"))
    cfg.data.vocab_size = 310
    cfg.steps = 8
    cfg.decode.update({"beam": 2, "alpha": 0.3, "extra_length": 8, "checkpoint": "average:2"})
    assert loop.train(cfg, folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def run(workdir: Path) -> Run:
    return open_run(workdir, "latest")


@pytest.fixture
def gold() -> list[str]:
    return [linearise(tree) for tree in read_trees(TREEBANK.split("\n"), "x")]


def run_here(**given: object) -> None:
    """The command line in this process: flags that are not given are None."""
    names = (
        "workdir",
        "split",
        "trees",
        "parameters",
        "checkpoint",
        "beam",
        "alpha",
        "extra_length",
        "stopping",
        "json",
        "output",
        "coordinator",
        "processes",
        "process",
    )
    options = SimpleNamespace(**{**dict.fromkeys(names), **given})
    parse.check(options)
    parse.main(options)


def written_instead(monkeypatch: pytest.MonkeyPatch, lines: Sequence[str]) -> None:
    """Replaces the model's output by these lines."""
    found = [Translation((Hypothesis(line, 0.0, 0.0, ()),)) for line in lines]
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: found)


def evaluate(run: Run, **options: Any) -> dict[str, Any]:
    options = {"beam": 1, "alpha": 0.3, "extra_length": 4} | options
    record, trees = evaluation.evaluate(run, evaluation.open_parsed_split(run, "test"), COLLINS, Decoding(**options))
    assert [" ".join(tree.leaves()) for tree in trees] == SENTENCES
    return record


@pytest.mark.slow
def test_a_split_is_parsed_scored_and_kept(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_here(workdir=str(workdir), split="test", json=True, output=str(tmp_path / "out.mrg"))
    record = json.loads(capsys.readouterr().out)
    assert record.keys() >= KEYS
    assert (record["split"], record["step"], record["checkpoints"]) == ("test", 8, [4, 8])
    assert (record["beam"], record["alpha"], record["extra_length"], record["sentences"]) == (2, 0.3, 8, 4)
    (kept,) = (workdir / "evaluations").glob("*.json")
    assert kept.name == "parse-test-step8-average_2-beam2-alpha0.3-extra_length8.json"
    assert json.loads(kept.read_text()) == {**record, "checkpoint": "average:2"}
    lines = kept.with_suffix(".txt").read_text().splitlines()
    assert (tmp_path / "out.mrg").read_text().splitlines() == lines
    trees = list(read_trees(read_lines(kept.with_suffix(".txt")), "kept"))
    assert [" ".join(tree.leaves()) for tree in trees] == SENTENCES
    flat = [" ".join(tree.split("\n")) for tree in TREEBANK.replace("\n( ", "\x00( ").split("\x00")[1:]]
    assert summaries(score_lines(flat, lines, COLLINS), COLLINS) == record["evalb"]
    assert (record["figures"]["All"]["valid"], record["figures"]["All"]["f1"]) == (4, record["f1"])


@pytest.mark.slow
def test_right_lines_score_100_and_need_no_repair(run: Run, gold: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    written_instead(monkeypatch, gold)
    record = evaluate(run)
    assert {record[name] for name in evaluation.SCORES} == {100} and record["repaired_share"] == 0


@pytest.mark.slow
def test_wrong_lines_cost_and_broken_ones_are_counted(
    run: Run, gold: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first line has no VP, the second an unclosed phrase, the last nothing like a tree."""
    written_instead(monkeypatch, ["(S (NP DT NN NP) VBZ . S)", gold[1].replace("NP) ", "", 1), gold[2], "rubbish"])
    record = evaluate(run)
    assert record["repaired_share"] == 50
    assert 0 < record["recall"] < record["precision"] < 100 and record["complete_match"] < 50
    assert record["signatures"]["f1"].startswith(COLLINS.signature())


def test_punctuation_tagged_wrongly_is_an_error_of_evalbs_and_counts_all_the_same(
    run: Run, gold: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written_instead(monkeypatch, ["(X DT NN VBZ NN X)", *gold[1:]])
    record = evaluate(run)
    assert (record["errors"], record["evalb"]["All"]["valid"], record["evalb"]["All"]["f1"]) == (1, 3, 100)
    assert (record["figures"]["All"]["valid"], record["figures"]["All"]["complete_match"]) == (4, 75)
    assert record["recall"] == pytest.approx(100 * 14 / 17) and record["precision"] == pytest.approx(100 * 14 / 15)


def test_a_bracket_file_is_parsed_like_the_split(workdir: Path, run: Run) -> None:
    file = evaluation.open_trees(str(workdir.parent / "test.mrg"))
    split = evaluation.open_parsed_split(run, "test")
    assert (file.sources, file.references) == (split.sources, split.references) and file.name == "test.mrg"


def test_the_table_shows_evalbs_summary_and_the_repairs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written_instead(monkeypatch, [""] * 4)
    text = evaluation.table(evaluate(run))
    assert "Bracketing FMeasure       =   0.00" in text and "repaired: 100.00 %" in text and COLLINS.signature() in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give either --split=test or --trees=FILE"),
        ({"split": "test", "trees": "x"}, "give either --split=test or --trees=FILE"),
        ({"trees": "none.mrg"}, "none.mrg: no such file"),
        ({"split": "test", "parameters": "none.prm"}, "none.prm"),
        ({"split": "test", "output": "nowhere/x"}, "--output=nowhere/x: there is no such folder: nowhere"),
    ],
)
def test_wrong_calls_are_one_line(workdir: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        run_here(workdir=str(workdir), **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("task", ["prefix_lm", "recurrent_translation"])
def test_a_run_of_every_task_that_translates_may_parse(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(workdir: str, checkpoint: str, tasks: tuple[str, ...] = ("translation",)) -> Run:
        raise UserError("it is opened" if task in tasks else "it is refused")

    monkeypatch.setattr("vaswani.infer.parse.open_run", opened)
    flags = dict.fromkeys(("parameters", "trees", "checkpoint", "coordinator", "processes", "process"))
    options = SimpleNamespace(workdir="run", **flags)
    with pytest.raises(UserError, match=r"^it is opened$"):
        parse.main(options)


def test_only_a_treebank_can_be_parsed(workdir: Path, run: Run) -> None:
    cfg = run.config.copy_and_resolve_references()
    cfg.data.train = f"text:{workdir.parent}/train.{{en,de}}"
    with pytest.raises(UserError, match=r"data\.train is 'text:.*: not a treebank"):
        evaluation.open_parsed_split(run._replace(config=cfg), "train")


def test_labels_are_not_lower_cased(workdir: Path, run: Run) -> None:
    cfg = run.config.data.copy_and_resolve_references()
    cfg.train, cfg.lowercase = f"trees:{workdir.parent}/train.mrg", True
    for given in ("", str(workdir / "tokenizer.model")):
        cfg.tokenizer = given
        with pytest.raises(UserError, match=r"data\.lowercase is True, but the labels of trees:"):
            prepare_all(cfg)


def test_a_run_without_the_split_is_told_of_the_flag_that_there_is(run: Run) -> None:
    cfg = run.config.copy_and_resolve_references()
    cfg.data.test = ""
    with pytest.raises(UserError, match=r"has no data\.test; name a corpus with --trees=FILE$"):
        evaluation.open_parsed_split(run._replace(config=cfg), "test")
    cfg.data.test = "trees:none.mrg"
    with pytest.raises(UserError, match=r"^data\.test of this run: .*; --trees=FILE reads another$"):
        evaluation.open_parsed_split(run._replace(config=cfg), "test")


def test_other_parameters_replace_no_record(workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.prm").write_text("DELETE_LABEL TOP\n")
    kinds = []

    def reported(options: Any, run: Run, record: dict, lines: list[str], table: Any, kind: str = "") -> None:
        kinds.append(kind)

    monkeypatch.setattr("vaswani.infer.parse.report", reported)
    monkeypatch.setattr(evaluation, "evaluate", lambda *arguments: ({}, []))
    for parameters in (None, str(tmp_path / "other.prm")):
        run_here(workdir=str(workdir), split="test", parameters=parameters)
    assert kinds[0] == "parse" and kinds[1].startswith("parse-") and len(kinds) == 2


def test_an_empty_name_of_a_bracket_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^corpus 'trees:': write trees:FILE"):
        run_here(workdir=str(tmp_path), trees="")
