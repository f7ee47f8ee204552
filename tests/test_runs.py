"""Opening runs: the right parameters for every choice, and one clear line where there is no such run."""

import hashlib
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from base.errors import UserError
from infer.runs import count_parameters, list_checkpoints, open_run, params_sha256
from model.config import parameter_count
from tests import tiny_run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run.make(tmp_path_factory.mktemp("runs") / "run")


def embed(workdir: Path, *steps: int) -> np.ndarray:
    cfg = tiny_run.config(workdir)
    return np.mean([np.float64(tiny_run.params(320, cfg, step)["embed"]) for step in steps], axis=0)


@pytest.mark.parametrize(
    ("choice", "steps"),
    [(None, (2, 3, 4)), ("latest", (4,)), (3, (3,)), ("best", (2,)), ("average:2", (3, 4)), ("average-best:2", (2, 3))],
)
def test_open_run_loads_what_the_choice_names(workdir: Path, choice: str | int | None, steps: tuple[int, ...]):
    run = open_run(workdir, choice)
    assert (run.step, run.checkpoints) == (steps[-1], steps)
    np.testing.assert_array_equal(run.params["embed"], embed(workdir, *steps).astype(np.float32))
    assert count_parameters(run.params) == parameter_count(run.model_config)
    assert run.tokenizer.vocab_size == run.model_config.vocab_size == 320
    assert run.config.decode.beam == 1


def test_checkpoints_are_listed_with_time_and_metrics(workdir: Path):
    checkpoints = list_checkpoints(workdir)
    assert [checkpoint.step for checkpoint in checkpoints] == [1, 2, 3, 4]
    assert checkpoints[1].metrics == tiny_run.METRICS[2] and checkpoints[3].metrics == {}
    assert sorted(checkpoint.time for checkpoint in checkpoints) == [checkpoint.time for checkpoint in checkpoints]


def test_what_is_not_a_run_is_named(workdir: Path, tmp_path: Path):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"not the folder of a run, for it has no config\.json"):
        open_run(tmp_path)
    with pytest.raises(UserError, match="no checkpoint at step 7; there are 1, 2, 3, 4"):
        open_run(workdir, "7")
    copy = shutil.copytree(workdir, tmp_path / "copy")
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint"):
        open_run(copy, "latest")


def test_a_checkpoint_of_another_model_is_refused(workdir: Path, tmp_path: Path):
    copy = shutil.copytree(workdir, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["model"]["d_ff"] = 24
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"checkpoints/4 holds .* parameters; .* another model's"):
        open_run(copy, "latest")


def test_a_truncated_checkpoint_is_named_and_another_serves(
    workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    copy = shutil.copytree(workdir, tmp_path / "copy")
    for file in sorted((copy / "checkpoints" / "4" / "state").rglob("*")):
        if file.is_file() and file.stat().st_size > 4:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(UserError, match=r"checkpoints/4: this checkpoint is damaged"):
        open_run(copy, "4")
    capsys.readouterr()
    assert open_run(copy, "latest").step == 3
    assert "checkpoints/4 is damaged (state/" in capsys.readouterr().err
    assert open_run(copy, "average:2").checkpoints == (2, 3)


def test_the_hash_is_of_names_types_shapes_and_values_only():
    params = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": {"w": np.ones(2, np.float32)}}
    params["a-b"] = np.zeros(1, np.int32)  # before a/w as a path, after it in the tree
    digest = params_sha256(params)
    w, b = np.ones(2, "<f4").tobytes(), np.arange(6, dtype="<f4").tobytes()
    written = b"a-b int32 (1,)\n" + bytes(4) + b"a/w float32 (2,)\n" + w + b"b float32 (2, 3)\n" + b
    assert digest == hashlib.sha256(written).hexdigest()
    swapped = {**params, "b": np.asfortranarray(params["b"]).astype(">f4")}
    assert params_sha256(swapped) == digest
    assert params_sha256(jax.tree.map(jax.numpy.asarray, params)) == digest
    for changed in (
        {**params, "b": params["b"].T},
        {**params, "b": params["b"].astype(np.float64)},
        {**params, "c": params["b"]},
        {"a-b": params["a-b"], "b": params["b"], "c": params["a"]},
        {**params, "b": params["b"] + 1e-6},
    ):
        assert params_sha256(changed) != digest
