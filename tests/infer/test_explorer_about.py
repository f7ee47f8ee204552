"""What the explorer says of a model: from its records and its corpus, and from nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from vaswani.errors import UserError
from vaswani.infer.explorer.about import ABOUT, about, describe, score
from vaswani.infer.runs import Run, open_run
from vaswani.run.parameters import params_sha256


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return open_run(tiny.write_run(tmp_path / "run"))


def evaluation(run: Run, **changes: Any) -> None:
    """Writes an evaluation into the run."""
    record = {
        "params_sha256": params_sha256(run.params), "sacrebleu": 12.5, "exact_match": 3.0, "sentences": 10,
        "split": "test", "time": "2026-01-01", "signatures": {"sacrebleu": "signature"},
    }  # fmt: skip
    folder = run.workdir / "evaluations"
    folder.mkdir(exist_ok=True)
    count = len(list(folder.iterdir()))
    (folder / f"{count}.json").write_text(json.dumps(record | changes))


def test_the_score_is_of_these_parameters_and_of_the_test_split(run: Run) -> None:
    assert score(run) is None
    evaluation(run, params_sha256="another", sacrebleu=99.0)
    assert score(run) is None
    evaluation(run, split="valid", sacrebleu=30.0, time="2026-03-01")
    assert score(run)["bleu"] == 30.0
    evaluation(run)
    evaluation(run, sacrebleu=13.0, time="2026-02-01")
    assert score(run) == {"bleu": 13.0, "signature": "signature", "exact": 3.0, "sentences": 10, "split": "test"}


def test_the_shipped_models_score_is_in_its_record() -> None:
    shipped = open_run("builtin:quickstart")
    record = json.loads((shipped.workdir / "record.json").read_text(encoding="utf-8"))["float16"]
    told = about(shipped)
    texts = [text for _, text in told["told"]]
    assert f"{record['exact_match']:g} % of {record['sentences']:,} new sentences right to the letter" in texts
    assert "40,000 sentence pairs" in texts and told["languages"] == ["en", "de"]
    assert len(told["examples"]) == 5


def test_a_translators_bleu_has_its_sentences(run: Run) -> None:
    evaluation(run, sacrebleu=41.26, sentences=2000)
    told = "".join(text for _, text in describe(run, 163_000, "letters"))
    assert told.endswith(
        "trained on 163,000 sentence pairs of letters; its translations of 2,000 test sentences have 41.3 BLEU."
    )


def test_examples_are_the_runs_own_or_of_a_file(run: Run, tmp_path: Path) -> None:
    run.config.data.test = "grammar:test:9"
    told = about(run)["examples"]
    assert len(told) == 5 and all(len(one["title"]) <= 30 for one in told)
    assert told[0]["source"].startswith(told[0]["title"].rstrip(" …"))
    own = {"examples": [{"title": "One", "source": "The dog sleeps."}], "corpus": "letters", "pairs": 7}
    (run.workdir / ABOUT).write_text(json.dumps(own))
    run.config.data.train = "text:gone.{en,fr}"
    found = about(run)
    assert found["examples"] == own["examples"]
    assert {("b", "7 sentence pairs"), ("span", " of letters")} <= set(found["told"])
    assert found["languages"] == ["", "fr"]
    other = tmp_path / "other.json"
    other.write_text('{"examples": []}')
    assert about(run, other)["examples"] == []


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ('{"examples": [{"title": "no source"}]}', "examples"),
        ('{"examples": [], "pairs": "many"}', "pairs must be a whole number"),
        ('{"examples": [], "corpus": 3}', "corpus must be text"),
        ("[]", "damaged"),
    ],
)
def test_a_damaged_file_is_one_line(run: Run, content: str, wrong: str) -> None:
    (run.workdir / ABOUT).write_text(content)
    with pytest.raises(UserError, match=wrong) as raised:
        about(run)
    assert "\n" not in str(raised.value)
