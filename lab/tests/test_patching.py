"""The pairs of sentences differ in one noun and so do their translations; a patch of all that differs moves it."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.patching import command
from lab.patching.pairs import minimal_pairs
from tests import tiny
from vaswani.data.grammar.lexicon import NOUNS
from vaswani.errors import UserError
from vaswani.infer.inside.trace import trace
from vaswani.infer.runs import Run, open_run
from vaswani.read_json import read_json

ROOT = Path(__file__).parent.parent.parent
MEASURED = {
    "data": "grammar:test",
    "seed": 0,
    "step": 2,
    "params_sha256": "0123456789",
    "cases": 4,
    "moved": {"encoder, the noun": 3},
}
CASE = (("The dog sleeps.", "Der Hund schläft."), ("The bird sleeps.", "Der Vogel schläft."))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tiny.write_grammar_run(tmp_path_factory.mktemp("patching") / "run", train="grammar:train")
    return open_run(folder, "latest", accept_changes=True)


def planted_case(run: Run) -> command.Case:
    first, second = (trace(run, *pair) for pair in CASE)
    places = [i for i, (a, b) in enumerate(zip(first.source, second.source, strict=False)) if a != b]
    predicting = next(i for i, (a, b) in enumerate(zip(first.predicted, second.predicted, strict=False)) if a != b)
    return command.Case(*CASE[0], first, second, places, predicting)


@pytest.mark.slow
def test_pairs_differ_in_a_noun_and_its_translation() -> None:
    forms = {(noun.en[plural], form) for noun in NOUNS for plural in (False, True) for form in noun.de[plural]}
    for pair in itertools.islice(minimal_pairs("test"), 60):
        changes = []
        for first, second in zip(pair.first, pair.second, strict=True):
            words = zip(first.split(), second.split(), strict=True)
            ((before, after),) = ((a.strip(".,?"), b.strip(".,?")) for a, b in words if a != b)
            changes.append((before.removesuffix("'s"), after.removesuffix("'s")))
        english, german = changes
        assert (english[0], german[0]) in forms and (english[1], german[1]) in forms


@pytest.mark.slow
def test_a_pair_is_found_for_many_sentences_and_is_always_the_same() -> None:
    once = list(itertools.islice(minimal_pairs("test"), 40))
    assert once == list(itertools.islice(minimal_pairs("test"), 40)) and len(set(once)) == 40


@pytest.mark.slow
def test_with_the_embedding_of_the_noun_the_model_expects_what_it_expects_of_the_other_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = planted_case(run)
    monkeypatch.setattr(command, "find_cases", lambda run, pairs: iter([case]))
    monkeypatch.setattr(command, "best", lambda trace, position: trace.activations["logits"][position].tobytes())
    result = command.measure(run, 1)
    printed = command.table(result)
    assert printed.rows[0] == ("encoder/embedding, the noun", "100.0", "20.7 to 100.0")
    moved = result["moved"]
    assert moved.pop("encoder/embedding, the noun") == 1 and not any(moved.values())


def test_patches_replace_what_their_names_say(run: Run) -> None:
    case = planted_case(run)
    others = len(case.first.source) - len(case.places)
    sizes = {
        name: {key: len(values) for key, values in patch.items()}
        for name, patch in command.patches(run.model_config.N, case).items()
    }
    assert sizes["encoder, the noun"] == {"encoder": len(case.places)}
    assert sizes["encoder, all but the noun"] == {"encoder": others}
    assert sizes["decoder/layer_1/cross_attention, where the noun is predicted"] == {
        "decoder/layer_1/cross_attention": 1
    }
    assert len(sizes["cross_attention of all layers, where the noun is predicted"]) == run.model_config.N


@pytest.mark.slow
def test_a_model_that_translates_nothing_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SEARCHED", 2)
    with pytest.raises(UserError, match=r"translates too few nouns for --cases=1$"):
        command.measure(run, 1)


def test_a_run_of_other_data_is_refused(tmp_path: Path) -> None:
    folder = tiny.write_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"a run of data\.train=grammar:\.\. with subwords$"):
        command.main(SimpleNamespace(workdir=folder, checkpoint="latest", cases=1, json=False))


def test_the_page_has_the_table_of_the_committed_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = read_json(command.RECORD, dict)
    written = command.PAGE.read_text(encoding="utf-8")
    assert command.page(result) == written, "run python -m lab.patching --workdir=runs/quickstart --record"
    shares = {name: hits / result["cases"] for name, hits in result["moved"].items()}
    assert shares["encoder, the noun"] >= 0.95 and shares["encoder, all but the noun"] <= 0.05


def test_a_record_is_written_with_the_page(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{command.BEGIN}\n{command.END}\nafter\n")
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "RECORD", tmp_path / "patching.json")
    monkeypatch.setattr(command, "measure", lambda run, cases: MEASURED)
    command.main(SimpleNamespace(workdir=run.workdir, checkpoint="latest", cases=4, json=True, record=True))
    assert json.loads(capsys.readouterr().out) == MEASURED
    assert read_json(tmp_path / "patching.json", dict)["config"]["data"]["train"] == "grammar:train"
    row = "| encoder, the noun | 75.0 | 30.1 to 95.4 |"
    note = "- 4 pairs of sentences of grammar:test that differ in a noun; seed 0, step 2, parameters 01234567\n"
    assert row in page.read_text() and note in page.read_text() and page.read_text().endswith(f"{command.END}\nafter\n")


def test_a_run_from_german_is_refused_before_anything_is_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny.write_grammar_run(tmp_path / "run", train="grammar:train:{de,en}")
    monkeypatch.setattr(command, "trace", lambda *arguments: pytest.fail("traced"))
    with pytest.raises(UserError, match=r"it translates German to English; patching needs the other direction$"):
        command.main(SimpleNamespace(workdir=folder, checkpoint="latest", cases=1, json=False))
