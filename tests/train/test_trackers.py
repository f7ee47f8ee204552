"""`--tracker`: Weights & Biases and MLflow get the records of metrics.jsonl, and a resumed run continues there."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.extras import needed, reason
from vaswani.errors import UserError
from vaswani.tasks.loss import Loss
from vaswani.train.metrics import Reporter
from vaswani.train.step import Sums
from vaswani.train.trackers import check_installed, metrics_of, open_tracker

ROOT = Path(__file__).parent.parent.parent
SUMS = Sums(Loss(np.float32(20), np.float32(10), np.float32(10)), np.int32(18), np.float32(1))


class Recorder:
    """A tracker that keeps what it is told, and fails at one update."""

    def __init__(self, fails_at: int = 0) -> None:
        self.told: list[tuple[int, dict[str, float]]] = []
        self.fails_at = fails_at

    def log(self, step: int, metrics: dict[str, float]) -> None:
        if step == self.fails_at:
            raise ConnectionError("no route to\nthe server")
        self.told.append((step, metrics))

    def close(self, failed: bool) -> None:
        pass


def report(workdir: Path, recorder: Recorder) -> list[dict]:
    with Reporter(workdir, lambda step: 0.1, first=1, last=3, every=1, tracker=recorder) as reporter:
        for step in (1, 2, 3):
            reporter.update(step, SUMS, positions=20)
        reporter.record_validation(3, {"loss": 1.0, "nll": 1.0, "perplexity": 2.7})
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def test_a_tracker_gets_every_record(tmp_path: Path) -> None:
    recorder = Recorder()
    records = report(tmp_path, recorder)
    assert recorder.told == [(record["step"], metrics_of(record)) for record in records]
    assert recorder.told[-1] == (3, {"valid/loss": 1.0, "valid/nll": 1.0, "valid/perplexity": 2.7})


def test_a_tracker_that_fails_stops_no_training(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    recorder = Recorder(fails_at=2)
    assert len(report(tmp_path, recorder)) == 4
    assert [step for step, _ in recorder.told] == [1]
    err = capsys.readouterr().err
    assert err.count(r"note: the tracker gets no more records: no route to\nthe server") == 1


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check_installed(None)
    with pytest.raises(
        UserError, match=r"^--tracker=wandb: the package wandb is not installed; pip install -e '\.\[wa"
    ):
        check_installed("wandb")
    with open_tracker(None, tmp_path, {}) as nothing:
        assert nothing is None
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_training_imports_no_package_that_it_does_not_use() -> None:
    """A tracker without its flag; and PyTorch, which tensorboardX would import for a type hint."""
    code = "import sys, vaswani.train.loop; print(sorted({'wandb', 'mlflow', 'torch'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_wandb_offline_has_the_records_and_the_config(tmp_path: Path) -> None:
    needed("wandb")
    kept = run_twice("wandb", tmp_path, {"WANDB_MODE": "offline"})
    from wandb.proto import wandb_internal_pb2

    losses = {}
    configs = []
    files = sorted(tmp_path.rglob("*.wandb"))
    assert [file.name for file in files] == [f"run-{kept}.wandb"] * 2, "one of each launch"
    for file in files:
        for content in logged(file.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(content)
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            if "train/loss" in items:
                losses[int(items["step"])] = float(items["train/loss"])
            configs += [item.value_json for item in record.run.config.update if item.key == "model.h"]
    assert losses == {1: 5.0, 2: 4.0}
    assert set(configs) == {"4"}


def logged(content: bytes) -> Iterator[bytes]:
    """Yields the records of a W&B file: after seven bytes, a LevelDB log, in blocks of 32 KiB."""
    place = 7
    record = b""
    while place + 7 <= len(content):
        left = 32_768 - place % 32_768
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_mlflow_in_files_has_the_records_and_the_config(tmp_path: Path) -> None:
    needed("mlflow")
    store = f"{tmp_path}/store"
    kept = run_twice("mlflow", tmp_path, {"MLFLOW_TRACKING_URI": store, "MLFLOW_ALLOW_FILE_STORE": "true"})
    (run,) = Path(store).glob(f"*/{kept}")
    assert (run / "params" / "model.h").read_text() == "4"
    lines = (run / "metrics" / "train" / "loss").read_text().splitlines()
    assert [tuple(map(float, line.split()[1:])) for line in lines] == [(5.0, 1.0), (4.0, 2.0)]


CODE = """
import sys
from pathlib import Path
from vaswani.train.trackers import open_tracker
name, workdir, step, loss = sys.argv[1:]
with open_tracker(name, Path(workdir), {"model": {"h": 4}, "steps": 2}) as tracker:
    tracker.log(int(step), {"train/loss": float(loss)})
"""


def run_twice(name: str, workdir: Path, environment: dict[str, str]) -> str:
    """Tells a tracker of one update in each of two processes; returns the id that the run has kept in both."""
    ids = []
    for step, loss in ((1, 5.0), (2, 4.0)):
        command = [sys.executable, "-c", CODE, name, str(workdir), str(step), str(loss)]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ids.append(json.loads((workdir / "tracker.json").read_text())[name])
    assert ids[0] == ids[1]
    return ids[0]


def test_a_tracker_that_cannot_begin_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("api_key not configured\nUse `wandb login`")

    monkeypatch.setattr("vaswani.train.trackers.WandB", refuse)
    with pytest.raises(UserError, match=r"^--tracker=wandb: Use `wandb login`$"), open_tracker("wandb", tmp_path, {}):
        pass
    assert not (tmp_path / "tracker.json").exists()
    assert "extra wandb" in reason("wandb")


def test_a_server_that_has_gone_at_the_end_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    class Gone(Recorder):
        id = "7"

        def close(self, failed: bool) -> None:
            raise ConnectionError("HTTP 503\nno route to the server\n")

    monkeypatch.setattr("vaswani.train.trackers.MLflow", lambda *_: Gone())
    with open_tracker("mlflow", tmp_path, {}):
        pass
    note = "note: --tracker=mlflow could not be told of the end: no route to the server\n"
    assert capsys.readouterr().err == note


def test_a_run_that_an_error_ended_is_not_told_as_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[bool] = []

    class Noting(Recorder):
        id = "7"

        def close(self, failed: bool) -> None:
            ends.append(failed)

    monkeypatch.setattr("vaswani.train.trackers.MLflow", lambda *_: Noting())
    with open_tracker("mlflow", tmp_path, {}):
        pass
    with pytest.raises(UserError), open_tracker("mlflow", tmp_path, {}):
        raise UserError("step 3: the loss is nan")
    assert ends == [False, True]
