"""`python -m lab.benchmarks.accelerator` in miniature on the CPU, with a row that fails; and what it refuses."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from lab.benchmarks.accelerator import checks, device, libraries, numerics, report, trainer
from lab.benchmarks.accelerator.checks import LEAST, check_corpora, check_device, check_packages
from lab.benchmarks.accelerator.process import Ended, in_fresh_process, run_whole
from lab.benchmarks.accelerator.record import (
    ARCHIVE,
    CORPORA,
    MINUTES,
    Options,
    OutOfTime,
    finished,
    measure,
    read_record,
    save_failure,
)
from lab.benchmarks.accelerator.report import page, tables
from lab.benchmarks.accelerator.training import emptied
from lab.benchmarks.accelerator.whole_model import packed_and_alone
from lab.benchmarks.contenders import Peer, our_step, torch_step
from tests.conftest import ROOT
from tests.extras import needed
from vaswani.data.batching import random_batch
from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.model.config import ModelConfig
from vaswani.model.transformer import init_params
from vaswani.table import as_text
from vaswani.tasks.translation import objective


@pytest.mark.long  # .ci/run runs it
def test_every_row_runs_in_miniature_and_one_that_fails_leaves_the_others_standing(tmp_path: Path) -> None:
    needed("torch")
    needed("ctranslate2")
    output, runs = tmp_path / "output", tmp_path / "runs"
    runs.mkdir()
    (runs / "table3-A1-0").write_text("a file where the run's folder should be")
    command = [sys.executable, "-m", "lab.benchmarks.accelerator", "--tiny", f"--output={output}", f"--runs={runs}"]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}  # as most users have it
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]

    assert {path.name for path in output.iterdir()} == {*(f"{row}.json" for row in MINUTES), "table.md", ARCHIVE}
    with tarfile.open(output / ARCHIVE) as archive:
        packed = {name: archive.extractfile(name) for name in archive.getnames()}
        assert {name: file.read() for name, file in packed.items() if file} == {
            path.name: path.read_bytes() for path in output.iterdir() if path.name != ARCHIVE
        }
    failures = {}
    for row in MINUTES:
        record = json.loads((output / f"{row}.json").read_text())
        assert record["finished"] and record["parts"]
        assert record["machine"]["device"].startswith("cpu, ") and len(record["machine"]["device"]) > len("cpu, ")
        assert all(len(found) > 1 for found in record["parts"].values())  # more than the time that it took
        failures |= {f"{row}: {name}": one["failed"] for name, one in record["parts"].items() if "failed" in one}
    assert "table3-A1-0" in failures.pop("table3: A1 seed 0")
    assert not failures
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
    ("name", "earlier", "now"), [("device", "NVIDIA H200", "NVIDIA H100"), ("commit", "faaa25c", "bfab7c9 and changes")]
)
def test_parts_of_other_machines_and_other_code_are_not_added_to_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, earlier: str, now: str
) -> None:
    path = tmp_path / "step.json"
    known = {"device": "NVIDIA H200", "torch": device.MISSING, "commit": "faaa25c"}
    monkeypatch.setattr(device, "machine", lambda: known)
    measure({"a": dict}, path, seconds=60)
    monkeypatch.setattr(device, "machine", lambda: known | {"torch": "2.11.0", "flax": "0.12"})  # not used by a part
    measure({"a": dict, "b": dict}, path, seconds=60)
    before = path.read_bytes()
    monkeypatch.setattr(device, "machine", lambda: known | {name: now})
    with pytest.raises(
        UserError, match=f"step.json: measured with {name} {earlier}, and here it is {now}; give another"
    ):
        measure({"a": dict, "b": dict, "c": dict}, path, seconds=60)
    assert path.read_bytes() == before and read_record(path)["parts"].keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("machine", "code", "message"),
    [
        ({}, {"commit": "faaa25c", "dirty": False}, "unknown, and here it is faaa25c"),
        ({"commit": "faaa25c"}, None, "faaa25c, and here it is unknown"),
    ],
)
def test_a_record_without_a_commit_is_not_taken_for_one_of_this_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: dict[str, str], code: dict | None, message: str
) -> None:
    path = tmp_path / "step.json"
    write_json(path, {"machine": machine, "parts": {"a": {}}, "finished": False})
    monkeypatch.setattr(device, "git", lambda: code)
    with pytest.raises(UserError, match=f"step.json: measured with commit {message}; give another --output"):
        measure({"a": dict, "b": dict}, path, seconds=60)


HANGS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(str(child.pid))
print("training a model", file=sys.stderr, flush=True)
time.sleep(float(sys.argv[2]))
sys.exit("no memory")
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("seconds", "sleep", "ended"),
    [
        pytest.param(10.0, 600.0, Ended("killed after 10 s", "training a model\n"), marks=pytest.mark.slow),
        (60.0, 0.0, Ended("status 1: no memory", "training a model\nno memory\n")),
    ],
)
def test_a_row_that_hangs_or_fails_leaves_no_child_behind(tmp_path, seconds, sleep, ended) -> None:
    command = [sys.executable, "-c", HANGS, str(tmp_path / "pid"), str(sleep)]
    assert run_whole(command, dict(os.environ), seconds) == ended
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):  # whoever inherits it must collect it first
        if not is_running(child):
            break
        time.sleep(0.1)
    assert not is_running(child)


def test_a_process_of_its_own_answers() -> None:
    assert in_fresh_process(os.getpid) != os.getpid()


@pytest.mark.slow
def test_a_missing_package_is_found_before_anything_is_trained(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sacremoses.py").write_text("raise ModuleNotFoundError(\"No module named 'sacremoses'\")\n")
    (hidden / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open')\n")
    environment = {**os.environ, "PYTHONPATH": str(hidden)}
    command = [sys.executable, "-m", "lab.benchmarks.accelerator", "--tiny", f"--output={tmp_path / 'output'}"]
    done = subprocess.run([*command, "--only=multi30k"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    found = r"error: sacremoses cannot be imported \(ModuleNotFoundError: No module named 'sacremoses'\); "
    assert re.fullmatch(found + r"pip install -e \., or leave its row out with --only\n", done.stderr)
    assert not (tmp_path / "output").exists()
    with pytest.raises(UserError, match=r"^torch cannot be .*libcudart.*pip install -e '\.\[bench\]'"):
        check_packages(["step"], environment)


def test_every_package_that_rows_are_checked_for_comes_with_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert checks.PACKAGES.keys() <= MINUTES.keys()
    for packages in checks.PACKAGES.values():
        for package, extra in packages.items():
            assert not extra or any(requirement.startswith(package) for requirement in extras[extra])


def test_a_second_try_starts_from_empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(tiny=True, runs=tmp_path, corpora=None, seconds=60.0)
    left = tmp_path / "numerics-resume" / "killed" / "checkpoints" / "4"
    left.mkdir(parents=True)

    class Start:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            assert not left.exists() and (tmp_path / "numerics-resume" / "config.py").exists()
            raise OutOfTime

        def __class_getitem__(cls, item: Any) -> Any:
            return cls

    monkeypatch.setattr(subprocess, "Popen", Start)
    with pytest.raises(OutOfTime):
        numerics.killed(options)
    (tmp_path / "trainer" / "run").mkdir(parents=True)
    with pytest.raises(OutOfTime):
        trainer.trained(trainer.recipe(options, "base"), tmp_path / "trainer", 1.0)
    assert [path.name for path in (tmp_path / "trainer").iterdir()] == ["config.py"]
    assert list(emptied(tmp_path / "trainer").iterdir()) == []


def test_the_share_of_the_trainer_counts_what_comes_after_the_first_line() -> None:
    lines = [
        {"step": 50, "seconds": 30.0, "tokens_per_second": 1.0},
        {"step": 100, "seconds": 32.0, "tokens_per_second": 100.0},
        {"step": 150, "seconds": 34.0, "tokens_per_second": 300.0},
    ]
    assert trainer._summary(lines, {0: 0.0, 1: 40.0, 2: 42.0, 3: 46.0}) == {
        "updates": 150,
        "milliseconds": 40.0,
        "target_tokens_per_second": 200.0,
        "overall_milliseconds": 60.0,  # a checkpoint of two seconds
    }


def test_a_gpu_is_described_by_nvidia_smi_and_a_machine_without_it_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "is_gpu", lambda: True)
    answer = subprocess.CompletedProcess([], 0, "1980 MHz, 1980 MHz, 2619 MHz, 71.03 W, 700.00 W, 31\n")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: answer)
    assert device.state()["clocks.sm"] == "1980 MHz" and device.state()["power.limit"] == "700.00 W"

    answer = subprocess.CompletedProcess(
        [], 9, "NVIDIA-SMI has failed because it couldn't communicate with the driver\n"
    )
    assert device.state() == {}

    def missing(*arguments: Any, **options: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    assert device.state() == {} and device.machine()["driver"] == "unknown"


def test_cublas_13_stands_in_for_12_only_where_12_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    library = tmp_path / "lib"
    library.mkdir()
    monkeypatch.setattr(libraries, "SYSTEM", ())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    assert libraries.with_cublas_12(links) == {} and not links.exists()
    (library / libraries.NEW).touch()
    for _ in range(2):  # the second call finds the link
        assert libraries.with_cublas_12(links) == {"LD_LIBRARY_PATH": f"{links}:{library}:{library}"}
        assert (links / libraries.OLD).resolve() == library / libraries.NEW
    (library / libraries.OLD).touch()
    assert libraries.with_cublas_12(links) == {}


def test_packed_rows_have_the_sentences_of_the_others() -> None:
    packed, alone = packed_and_alone(2, 8, 100)
    assert packed.labels_bt.shape == (2, 8) and alone.labels_bt.shape == (8, 2)
    np.testing.assert_array_equal(packed.labels_bt.ravel(), alone.labels_bt.ravel())
    np.testing.assert_array_equal(packed.target.segments_bt[0], [1, 1, 2, 2, 3, 3, 4, 4])
    np.testing.assert_array_equal(packed.source.positions_bt[1], [0, 1] * 4)


def test_pytorch_starts_from_our_weights_in_every_form() -> None:
    """Without dropout the first loss is that of the same model; the forms differ by bfloat16 alone, 2^-8 an operation.

    Label smoothing is not the same: PyTorch gives every token eps / v, ours each wrong one eps / (v - 1).
    """
    needed("torch")
    config = ModelConfig(vocab_size=50, N=1, d_model=16, d_ff=32, h=2, d_k=8, d_v=8, P_drop=0.0)
    params = jax.tree.map(np.asarray, init_params(config, jax.random.key(0)))
    batch = random_batch(2, 6, config.vocab_size)
    log_probs = np.asarray(jax.nn.log_softmax(jax.jit(objective(config, 0.1).logits)(params, batch)), np.float64)
    right = np.take_along_axis(log_probs, batch.labels_bt[..., None], axis=2)[..., 0]
    expected = -np.mean(0.9 * right + 0.1 * log_probs.mean(axis=2))
    others = (log_probs.sum(axis=2) - right) / (config.vocab_size - 1)
    assert float(our_step(config, batch).run()) == pytest.approx(-np.mean(0.9 * right + 0.1 * others), rel=1e-5)
    forms = {
        Peer(): 1e-5,
        Peer(fused=True, chunk=5): 1e-5,
        Peer(fast=True): 1e-2,
        Peer(fast=True, half=True, chunk=5): 1e-2,
    }
    for peer, tolerance in forms.items():
        step = torch_step(config, batch, peer=peer, params=params, rate=lambda update: 1e-2)
        assert float(step.run()) == pytest.approx(expected, rel=tolerance)
        for _ in range(5):
            last = float(step.run())
        assert last < expected - 0.1  # it learns


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
        "lab.benchmarks.accelerator",
        f"--output={tmp_path / 'output'}",
        "--only=stp",
        "--tiny",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: --only=stp: there is no such row; the rows are {', '.join(MINUTES)}\n"
    assert not (tmp_path / "output").exists()


def test_the_document_is_that_of_the_committed_records(tmp_path: Path) -> None:
    records = ROOT / "lab" / "benchmarks" / "records" / "accelerator"
    assert (ROOT / "lab" / "docs" / "accelerator.md").read_text() == page(records)
    assert page(tmp_path).count("not run") == len(MINUTES)


def test_the_page_says_how_long_the_paper_s_models_would_train_and_what_was_measured_before(tmp_path: Path) -> None:
    def record(folder: Path, base: float, big: float) -> None:
        folder.mkdir(exist_ok=True)
        parts = {
            "base: ours": {"milliseconds": base},
            "base: ours, cudnn": {"milliseconds": 2 * base},
            "base: ours, cudnn, no mask": {"milliseconds": 0.1},  # it mixes packed sentences
            "base: PyTorch": {"milliseconds": 0.1},
            "big: ours, cudnn": {"milliseconds": big},
        }
        write_json(folder / "step.json", {"parts": parts, "finished": True})

    record(tmp_path, 36.0, 84.0)
    only_now = page(tmp_path)
    assert "- base: ours: 100,000 updates, the paper's, would take 1.0 hours (the paper: 12 on 8 P100)\n" in only_now
    assert (
        "- big: ours, cudnn: 300,000 updates, the paper's, would take 7.0 hours (the paper: 84 on 8 P100)\n" in only_now
    )
    record(tmp_path / "before", 72.0, 168.0)
    (tmp_path / "before" / "README.md").write_text("## Before\n\nTwo dots were one.\n")
    both = page(tmp_path)
    assert both.startswith(only_now + "\n## Before\n\nTwo dots were one.\n\n### One update")
    added = both.removeprefix(only_now)
    assert "would take 2.0 hours" in added and added.count("###") == 1  # no table of what was not measured before


def test_a_row_counts_all_updates_and_minutes_of_a_run_that_was_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from lab.benchmarks.accelerator import training
    from vaswani.run.averaging import Checkpoint

    checkpoints = [Checkpoint(step, 0.0, {}) for step in (5_000, 6_000)]
    lines = [{"kind": "train", "seconds": 300.0}, {"kind": "valid"}, {"kind": "train", "seconds": 390.0}]
    best = SimpleNamespace(step=5_000, config=SimpleNamespace(decode=None))
    sentences = SimpleNamespace(sources=[], references=[], language="de", data="", name="")
    fakes = {
        "check_device": lambda cfg: None,
        "train": lambda cfg, workdir: 0,
        "list_checkpoints": lambda workdir: checkpoints,
        "read_metrics": lambda workdir: lines,
        "open_run": lambda workdir: best,
        "open_split": lambda run, split: sentences,
        "chosen": lambda decode: None,
        "translate": lambda *arguments: ([], 0.0),
        "score": lambda *arguments: {},
        "provenance": lambda *arguments: {},
        "about": lambda *arguments: {},
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(training, name, fake, raising=False)
    cfg: Any = SimpleNamespace(steps=6_000)
    found = training.trained(cfg, tmp_path, 60.0, whole=False)
    assert (found["updates"], found["stopped_early"], found["training_minutes"]) == (6_000, False, 6.5)


def test_records_of_the_miniature_are_not_taken_for_those_of_a_gpu(tmp_path: Path) -> None:
    def measured_on(name: str) -> None:
        record = {"parts": {}, "finished": True, "machine": {"device": name}}
        (tmp_path / "step.json").write_text(json.dumps(record))

    checks.check_output(tmp_path, is_tiny=False)
    measured_on("cpu, EPYC")
    checks.check_output(tmp_path, is_tiny=True)
    with pytest.raises(UserError, match=r"step\.json was measured with --tiny; name another folder$"):
        checks.check_output(tmp_path, is_tiny=False)
    measured_on("NVIDIA H100 80GB HBM3")
    checks.check_output(tmp_path, is_tiny=False)
    with pytest.raises(UserError, match="without --tiny"):
        checks.check_output(tmp_path, is_tiny=True)


def test_the_tests_of_the_miniature_are_in_its_file() -> None:
    from lab.benchmarks.accelerator.tests import QUICK, TESTS

    text = (ROOT / TESTS["kernels"].file).read_text()
    assert all(re.search(rf"^def test_\w*{name}", text, re.MULTILINE) for name in QUICK.split(" or "))


def test_a_page_of_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"nowhere: no such folder; give that of the records, lab/benchmarks/records/accelerator$"
    ):
        report.main(["report", str(tmp_path / "nowhere")])
