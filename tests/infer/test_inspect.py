"""`python -m infer.inspect`: the facts about a run, as JSON and as text."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny
from vaswani.infer.inspect import as_text, summary
from vaswani.infer.runs import open_run
from vaswani.model.parameter_count import parameter_count
from vaswani.run.parameters import params_sha256


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_run(tmp_path_factory.mktemp("inspect") / "run")


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infer.inspect", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=Path(__file__).parents[2])


def test_facts_are_of_the_newest_checkpoint(workdir: Path):
    facts, run = summary(workdir), open_run(workdir, "latest")
    assert facts["step"] == 4
    assert facts["params"] == parameter_count(run.model_config)
    assert facts["params_sha256"] == params_sha256(run.params)
    assert [checkpoint["step"] for checkpoint in facts["checkpoints"]] == [1, 2, 3, 4]
    assert facts["checkpoints"][1]["metrics"] == tiny.METRICS[2]
    assert facts["config"]["model"]["d_model"] == 8


@pytest.mark.slow
def test_json_on_the_command_line_equals_the_function(workdir: Path):
    done = run_cli(f"--workdir={workdir}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(summary(workdir)))


def test_the_report_shows_steps_metrics_hash_and_config(workdir: Path):
    text = as_text(summary(workdir))
    assert "bleu 9" in text and "model.d_model = 8" in text and summary(workdir)["params_sha256"] in text


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path):
    done = run_cli(f"--workdir={tmp_path}")
    assert done.returncode != 0 and done.stderr.count("\n") == 1 and "no config.json" in done.stderr
