"""The model that comes with the code: it opens wherever a run does, scores as its record says, and is only read."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from vaswani.errors import UserError
from vaswani.files import folders, output_folder
from vaswani.infer import load_run
from vaswani.infer.evaluate.record import report
from vaswani.infer.evaluate.sentences import open_split
from vaswani.infer.evaluate.translations import evaluate
from vaswani.infer.inspect import summary
from vaswani.infer.runs import Run, open_run
from vaswani.infer.translate.options import make_decoding
from vaswani.run.averaging import load_choice
from vaswani.run.builtin import FOLDER, names, run_folder
from vaswani.run.parameters import params_sha256

QUICKSTART = "builtin:quickstart"
TATOEBA = "builtin:tatoeba"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run() -> Run:
    return open_run(QUICKSTART)


@pytest.fixture(scope="module")
def record() -> dict:
    return json.loads((FOLDER / "quickstart" / "record.json").read_text(encoding="utf-8"))


def test_it_is_the_run_of_its_record(run: Run, record: dict) -> None:
    assert params_sha256(run.params) == record["float16"]["params_sha256"]
    assert run.step == record["float32"]["step"] == 370 and run.checkpoints == (370,)
    facts = summary(run_folder("workdir", QUICKSTART))
    assert facts["params"] == record["float32"]["params"] and [one["step"] for one in facts["checkpoints"]] == [370]


def test_float16_costs_a_tenth_of_a_bleu_at_most(record: dict) -> None:
    float16, float32 = record["float16"], record["float32"]
    assert float16["signatures"] == float32["signatures"] and float16["data"] == float32["data"]
    assert abs(float16["sacrebleu"] - float32["sacrebleu"]) < 0.1


@pytest.mark.slow
def test_its_score_is_that_of_its_record(run: Run, record: dict) -> None:
    again, _ = evaluate(run, open_split(run, "test"), make_decoding(run.config.decode))
    # Another processor rounds otherwise: a sentence or two of the thousand.
    assert abs(again["sacrebleu"] - record["float16"]["sacrebleu"]) < 0.2
    assert abs(again["perplexity"] - record["float16"]["perplexity"]) < 1e-3


def test_it_translates_at_once() -> None:
    assert load_run(QUICKSTART).translate("The dog sleeps.") == "Der Hund schläft."


def test_the_translator_of_english_is_the_run_of_its_record_and_card() -> None:
    run = open_run(TATOEBA)
    folder = FOLDER / "tatoeba"
    records = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert params_sha256(run.params) == records["float16"]["params_sha256"]
    assert f"| sacrebleu | {records['float32']['sacrebleu']:.2f} | {records['float16']['sacrebleu']:.2f} |" in card
    assert "CC-BY 2.0 FR" in card
    assert load_run(TATOEBA).translate("Where is the train station?") == "Wo ist der Bahnhof?"


def test_what_it_computes_with_is_float32(run: Run) -> None:
    embed_vd = run.params["embed"]
    assert embed_vd.dtype == np.float32 and np.array_equal(embed_vd, embed_vd.astype(np.float16))


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--config=configs/quickstart.py", f"--workdir={QUICKSTART}"],
        ["infer.convert", "--from=safetensors:DIR", f"--workdir={QUICKSTART}"],
    ],
)
def test_what_would_write_into_it_is_refused_in_one_line(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr
    with pytest.raises(UserError, match="read-only; name a folder"):
        output_folder("workdir", QUICKSTART)


def test_no_record_is_kept_in_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    options = SimpleNamespace(checkpoint=None, output=None, json=True)
    report(options, run, {"split": "test"}, [], str)
    assert capsys.readouterr().err.count("read-only") == 1
    assert not (run.workdir / "evaluations").exists()


def test_a_wrong_name_or_checkpoint_is_one_line() -> None:
    known = f"{QUICKSTART}, {TATOEBA}"
    with pytest.raises(UserError, match=rf"--workdir=builtin:base: no such model .* there is {known}$"):
        open_run("builtin:base")
    with pytest.raises(UserError, match="has only checkpoint 370, not average:5"):
        open_run(QUICKSTART, "average:5")
    with pytest.raises(UserError, match="no such model"):
        run_folder("workdir", "builtin:../../run")


def test_it_can_be_one_of_several_and_start_another() -> None:
    assert folders("workdir", f"{QUICKSTART},runs/mine") == [QUICKSTART, "runs/mine"]
    assert names() == [QUICKSTART, TATOEBA]
    steps, _ = load_choice(run_folder("init", QUICKSTART), "370")
    assert steps == [370]
