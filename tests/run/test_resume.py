"""k updates = j updates, `kill -9`, resume, k - j updates: bit for bit."""

import json
import os
import shutil
import signal
import time
from contextlib import closing
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from tests.run.test_checkpoint import state
from tests.run.test_unchanged import move_files
from tests.train.test_train_cli import start, wait_for
from vaswani.run import saved, signals
from vaswani.run.checkpoint import Checkpoints, load_params
from vaswani.run.records import read_metrics
from vaswani.run.saved import fault
from vaswani.train import loop


@pytest.mark.parametrize("batching", ["bucket", pytest.param("pack", marks=pytest.mark.slow)])  # test_pipeline: both
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, batching: str) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.data.batching, cfg.log_every, cfg.checkpoint.every, cfg.steps = batching, 1, 3, 1_000_000

    killed = start(f"--config={tiny.config_file(tmp_path, cfg)}", f"--workdir={tmp_path}/killed")
    wait_for(tmp_path / "killed" / "checkpoints" / "6" / "commit_success.txt", killed)
    killed.kill()
    assert killed.wait() == -9
    killed.communicate()
    latest = max(saved.steps(tmp_path / "killed" / "checkpoints"))
    cfg.steps = latest + 4  # not where a checkpoint falls by itself
    assert cfg.steps > 9

    for name in ("killed", "whole"):
        assert loop.train(cfg, tmp_path / name) == 0
    resumed, whole = (load_params(tmp_path / name, cfg.steps) for name in ("killed", "whole"))
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)

    logs = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("killed", "whole")
    ]
    assert [record["step"] for record in logs[0]] == [record["step"] for record in logs[1]]
    assert [record["loss"] for record in logs[0]] == [record["loss"] for record in logs[1]]
    launches = json.loads((tmp_path / "killed" / "run.json").read_text())["launches"]
    assert [launch["step"] for launch in launches] == [0, cfg.steps - 4]


@pytest.mark.slow
def test_a_run_whose_files_have_moved_ends_with_the_same_bits(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = 8
    assert loop.train(cfg, tmp_path / "whole") == 0
    shutil.copy(tmp_path / "whole" / "tokenizer.model", tmp_path / "given.model")
    cfg.steps = 4
    cfg.data.tokenizer = str(tmp_path / "given.model")
    assert loop.train(cfg, tmp_path / "run") == 0
    cfg.steps = 8
    move_files(cfg, tmp_path, tmp_path / "moved")
    assert loop.train(cfg, tmp_path / "run") == 0
    resumed, whole = (load_params(tmp_path / name, 8) for name in ("run", "whole"))
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)


def scripted(monkeypatch: pytest.MonkeyPatch, *validations: tuple[float, str]) -> None:
    """Replaces each validation by an nll, and by how it ends: "complete", "given up" for a signal, or both."""
    waiting = iter(validations)

    def validate(*_: object) -> dict[str, float]:
        nll, ending = next(waiting)
        try:
            if ending != "complete":
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
        except SystemExit:
            if ending == "given up":
                raise
        return {"loss": nll, "nll": nll, "perplexity": 9.0}

    monkeypatch.setattr(loop, "validate", validate)
    monkeypatch.setattr(signals, "GRACE", 300.0)


def patient(folder: Path, patience: int) -> ConfigDict:
    """A config whose validations fall on other updates than its checkpoints."""
    cfg = tiny.training_config(folder)
    cfg.steps, cfg.log_every, cfg.checkpoint.every, cfg.checkpoint.keep_last = 7, 1, 4, 9
    cfg.eval.every, cfg.eval.patience = 3, patience
    return cfg


def reasons(run: Path) -> dict[int, tuple[str, bool]]:
    """Returns of each checkpoint why it was saved, and whether it has metrics, after checking that it is intact."""
    folders = {step: run / "checkpoints" / str(step) for step in saved.steps(run / "checkpoints")}
    assert [fault(folder) for folder in folders.values()] == [None] * len(folders)
    found = {step: saved.about(folder) for step, folder in folders.items()}
    return {step: (checkpoint.reason, checkpoint.metrics != {}) for step, checkpoint in found.items()}


def validated(run: Path) -> list[tuple[int, float]]:
    return [(record["step"], record["nll"]) for record in read_metrics(run) if record["kind"] == "valid"]


def test_a_checkpoint_says_why_it_was_saved_and_no_validation_is_left_out_or_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = patient(tmp_path, patience=1)
    scripted(monkeypatch, (9.0, "given up"), (1.0, "complete"), (2.0, "complete"))
    assert loop.train(cfg, tmp_path / "run") == 143
    assert reasons(tmp_path / "run") == {3: ("signal", False)}
    assert loop.train(cfg, tmp_path / "run") == 0
    assert reasons(tmp_path / "run") == {4: ("schedule", False), 6: ("patience", True)}
    assert validated(tmp_path / "run") == [(3, 1.0), (6, 2.0)]


@pytest.mark.slow
def test_a_signals_checkpoint_is_patiences_once_its_validation_has_ended_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = patient(tmp_path, patience=1)
    run = tmp_path / "run"
    scripted(monkeypatch, (1.0, "given up at its end"), (9.0, "given up"), (2.0, "complete"), (3.0, "complete"))
    assert loop.train(cfg, run) == 143
    assert reasons(run) == {3: ("signal", True)}
    assert loop.train(cfg, run) == 143
    assert reasons(run) == {4: ("schedule", False), 6: ("signal", False)}
    assert loop.train(cfg, run) == 0
    assert reasons(run) == {4: ("schedule", False), 6: ("patience", True)}
    cfg.eval.patience = 0
    assert loop.train(cfg, run) == 0
    assert reasons(run) == {4: ("schedule", False), 6: ("patience", True), 7: ("end", True)}
    assert validated(run) == [(3, 1.0), (6, 2.0), (7, 3.0)]


@pytest.mark.parametrize(
    ("reason", "minutes", "kept"),
    [
        ("signal", 0.0, [3, 5]),
        ("signal", 9.0, [3, 5]),
        ("schedule", 0.0, [4, 5]),
        (None, 0.0, [4, 5]),  # an earlier version did not say why
    ],
)
def test_what_a_signal_left_makes_way_for_the_next(
    tmp_path: Path, reason: str | None, minutes: float, kept: list[int]
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.checkpoint.keep_last, cfg.checkpoint.every_minutes = 2, minutes
    with closing(Checkpoints(tmp_path / "checkpoints", cfg.checkpoint)) as checkpoints:
        checkpoints.save(3, state(3), {}, None, {})
        checkpoints.save(4, state(4), {}, None, {}, reason or "")
    if reason is None:
        folder = tmp_path / "checkpoints" / "4"
        metadata = json.loads((folder / "_CHECKPOINT_METADATA").read_text())
        (folder / "_CHECKPOINT_METADATA").write_text(json.dumps(metadata | {"custom_metadata": {}}))
        saved.write_checksums(folder, saved.read_checksums(folder), ["_CHECKPOINT_METADATA"])
    with closing(Checkpoints(tmp_path / "checkpoints", cfg.checkpoint)) as checkpoints:
        checkpoints.save(5, state(5), {}, None, {})
        checkpoints.wait()
        assert checkpoints.steps() == kept
