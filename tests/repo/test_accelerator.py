"""`python -m benchmarks.accelerator` in miniature on the CPU, with a row that fails; and what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from base.errors import UserError
from base.table import as_text
from benchmarks.accelerator.checks import LEAST, check_corpora, check_device
from benchmarks.accelerator.record import CORPORA, MINUTES, OutOfTime, finished, measure, read_record, save_failure
from benchmarks.accelerator.report import page, tables
from tests.conftest import ROOT

EXTRAS = ("ctranslate2", "torch")  # engines that need not be installed


@pytest.mark.long  # .ci/run runs it
def test_every_row_runs_in_miniature_and_one_that_fails_leaves_the_others_standing(tmp_path: Path) -> None:
    output, runs = tmp_path / "output", tmp_path / "runs"
    runs.mkdir()
    (runs / "table3-A1-0").write_text("a file where the run's folder should be")
    command = [sys.executable, "-m", "benchmarks.accelerator", "--tiny", f"--output={output}", f"--runs={runs}"]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}  # as most users have it
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]

    assert {path.name for path in output.iterdir()} == {*(f"{row}.json" for row in MINUTES), "table.md"}
    failures = {}
    for row in MINUTES:
        record = json.loads((output / f"{row}.json").read_text())
        assert record["finished"] and record["parts"]
        assert all(len(found) > 1 for found in record["parts"].values())  # more than the time that it took
        failures |= {f"{row}: {name}": one["failed"] for name, one in record["parts"].items() if "failed" in one}
    assert "table3-A1-0" in failures.pop("table3: A1 seed 0")
    assert all(any(f"No module named '{name}" in reason for name in EXTRAS) for reason in failures.values()), failures
    assert json.loads((output / "numerics.json").read_text())["parts"]["killed and resumed"]["equal"]
    assert "table3-A1-0" in done.stdout

    again = subprocess.run([*command, "--only=decoding,table3"], cwd=ROOT, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (0, "")  # nothing is missing: nothing is run
    assert again.stdout == done.stdout


def test_a_call_goes_on_where_the_one_before_stopped(tmp_path: Path) -> None:
    path, calls = tmp_path / "step.json", []

    def part(name: str, late: bool = False) -> Any:
        def run() -> dict[str, Any]:
            calls.append(name)
            if late and calls.count(name) == 1:
                raise OutOfTime
            return {"milliseconds": 1.5} if name != "b" else {}["no such key"]

        return run

    parts = {"a": part("a"), "b": part("b"), "c": part("c", late=True), "d": part("d")}
    measure(parts, path, seconds=60)
    assert calls == ["a", "b", "c"] and not finished(path)
    assert read_record(path)["parts"]["b"]["failed"] == "KeyError: 'no such key'"
    save_failure(path, "killed after 3 s", "x" * 9_999)
    assert "killed after 3 s" in as_text(tables(tmp_path)[0]) and len(path.read_text()) < 9_999
    measure(parts, path, seconds=-1)
    assert calls == ["a", "b", "c"]
    measure(parts, path, seconds=60)
    assert calls == ["a", "b", "c", "c", "d"] and finished(path)
    assert "killed" not in path.read_text()


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (0, ["cpu", 0], "backend is cpu; this needs a GPU"),
        (0, ["tpu", 2 * LEAST], "backend is tpu; this needs a GPU"),
        (0, ["gpu", LEAST // 2], "the GPU gives JAX 15 GiB; the big model needs 30"),
        (1, [], r"JAX finds no device \(RuntimeError: no cuda\)"),
    ],
)
def test_another_device_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch, status: int, answer: list, message: str):
    done = subprocess.CompletedProcess([], status, json.dumps(answer), "Traceback\nRuntimeError: no cuda\n")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: done)
    with pytest.raises(UserError, match=message) as error:
        check_device(dict(os.environ))
    assert "\n" not in str(error.value)


def test_corpora_that_lack_a_file_are_refused(tmp_path: Path) -> None:
    check_corpora(None, list(MINUTES))
    check_corpora(tmp_path, ["step", "table3"])
    for name in CORPORA["multi30k"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    check_corpora(tmp_path, ["multi30k"])
    with pytest.raises(UserError, match=r"wmt/en-de/news_mini_train.en-de.en.gz is missing, which row corpus needs"):
        check_corpora(tmp_path, list(MINUTES))


def test_a_wrong_row_is_one_line_and_status_2(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.accelerator",
        f"--output={tmp_path / 'output'}",
        "--only=stp",
        "--tiny",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: --only=stp: there is no such row; the rows are {', '.join(MINUTES)}\n"
    assert not (tmp_path / "output").exists()


def test_the_document_is_that_of_the_committed_records(tmp_path: Path) -> None:
    assert (ROOT / "docs" / "accelerator.md").read_text() == page(ROOT / "results" / "accelerator")
    assert page(tmp_path).count("not run") == len(MINUTES)
