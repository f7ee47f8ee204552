"""k updates = j updates, `kill -9`, resume, k - j updates: bit for bit."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from run.checkpoint import Checkpoints, load_params
from tests import tiny
from tests.run.test_changes import move_files
from tests.train.test_train_cli import start, wait_for
from train import loop


@pytest.mark.parametrize("batching", ["bucket", pytest.param("pack", marks=pytest.mark.slow)])  # test_pipeline: both
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, batching: str) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.data.batching, cfg.log_every, cfg.checkpoint.every, cfg.steps = batching, 1, 3, 1_000_000

    killed = start(f"--config={tiny.config_file(tmp_path, cfg)}", f"--workdir={tmp_path}/killed")
    wait_for(tmp_path / "killed" / "checkpoints" / "6", killed)
    killed.kill()
    assert killed.wait() == -9
    killed.communicate()
    checkpoints = Checkpoints(tmp_path / "killed" / "checkpoints")
    cfg.steps = (checkpoints.latest() or 0) + 4  # not where a checkpoint falls by itself
    checkpoints.close()
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
