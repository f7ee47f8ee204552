"""--init: what is taken from another run and what is not, that a resumed run ignores it, and its mistakes."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from tests.train.test_train_cli import start
from vaswani.errors import UserError
from vaswani.run.checkpoint import load_params
from vaswani.run.parameters import params_sha256
from vaswani.train import loop
from vaswani.train.warm_start import warm_start


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[ConfigDict, Path]:
    folder = tmp_path_factory.mktemp("warm")
    cfg = tiny.training_config(folder)
    cfg.steps = 8
    assert loop.train(cfg, folder / "run") == 0
    return cfg, folder / "run"


def fresh(run: Path) -> dict:
    return jax.tree.map(lambda leaf: jax.numpy.zeros_like(leaf), load_params(run, 8))


def test_what_matches_is_taken_and_the_rest_is_named(source: tuple, capfd: pytest.CaptureFixture[str]) -> None:
    _, run = source
    params, there = fresh(run), load_params(run, 4)
    params["embed"] = params["embed"][:-1]
    params["head"] = params["encoder"]["layer_0"].pop("norm_2")
    found, record = warm_start(f"{run}:4", params, run)
    del there["embed"], there["encoder"]["layer_0"]["norm_2"]
    assert not any(leaf.any() for leaf in jax.tree.leaves((found.pop("embed"), found.pop("head"))))
    jax.tree.map(np.testing.assert_array_equal, found, there)
    assert record["checkpoints"] == [4] and record["new"] == ["embed", "head/bias", "head/scale"]
    assert record["params_sha256"] == params_sha256(load_params(run, 4))
    rest = "encoder/layer_*/norm_2/bias, encoder/layer_*/norm_2/scale"
    message = f"3 (embed, head/bias, head/scale) new; 3 (embed, {rest}) of that run unused"
    assert message in capfd.readouterr().err


def test_a_parameter_of_the_same_size_but_another_shape_is_new(source: tuple) -> None:
    _, run = source
    params = fresh(run)
    params["embed"] = params["embed"].T
    found, record = warm_start(f"{run}:4", params, run)
    assert record["new"] == record["unused"] == ["embed"]
    assert found["embed"].shape == params["embed"].shape and not found["embed"].any()


def test_an_average_is_taken_as_for_inference(source: tuple) -> None:
    _, run = source
    found, record = warm_start(f"{run}:average:2", fresh(run), run)
    expected = (load_params(run, 4)["embed"].astype(np.float64) + load_params(run, 8)["embed"]) / 2
    np.testing.assert_array_equal(found["embed"], expected.astype(np.float32))
    assert record["checkpoints"] == [4, 8]


@pytest.mark.slow
def test_a_resumed_run_ignores_it_and_ends_with_the_same_bits(source: tuple, tmp_path: Path) -> None:
    cfg, run = source
    cfg = cfg.copy_and_resolve_references()
    cfg.optim.lr, cfg.steps = 0.01, 6
    assert loop.train(cfg, tmp_path / "whole", str(run)) == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "6")
    assert loop.train(cfg, tmp_path / "parts", "nowhere") == 0
    whole, parts = (load_params(tmp_path / name, 6) for name in ("whole", "parts"))
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
    average = (load_params(run, 4)["embed"] + load_params(run, 8)["embed"]) / 2
    assert 0 < np.abs(whole["embed"] - average).max() < 0.01
    launches = json.loads((tmp_path / "parts" / "run.json").read_text())["launches"]
    assert [launch.get("init", {}).get("run") for launch in launches] == [str(run), None]


def test_mistakes_are_said(source: tuple, tmp_path: Path) -> None:
    _, run = source

    def said(init: str, params: dict, workdir: Path) -> str:
        with pytest.raises(UserError) as caught:
            warm_start(init, params, workdir)
        return str(caught.value)

    params = fresh(run)
    assert said(f"{tmp_path}:4", params, run).endswith(f"{tmp_path} is not a run folder; write RUN or "
                                                       "RUN:CHECKPOINT")  # fmt: skip
    assert said(f"{run}:7", params, run) == f"--init={run}:7: no checkpoint at step 7; there are 4, 8"
    assert "checkpoint 'newest' is not a choice" in said(f"{run}:newest", params, run)
    assert said(str(run), {"head": np.zeros(3)}, run).endswith("has the path and the shape of one of this model")
    assert "this is a URL" in said("s3://bucket/run", params, run)
    (tmp_path / "tokenizer.model").write_bytes(b"other")
    assert said(str(run), params, tmp_path).endswith(f"set --config.data.tokenizer={run}/tokenizer.model")
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    assert "training never began in this folder" in said(str(tmp_path), params, run)


@pytest.mark.slow
def test_a_mistake_is_one_line_and_status_2(source: tuple, tmp_path: Path) -> None:
    cfg, _ = source
    process = start(f"--config={tiny.config_file(tmp_path, cfg)}", f"--workdir={tmp_path}/run",
                    f"--init={tmp_path}/absent")  # fmt: skip
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    errors = [line for line in err.splitlines() if "error" in line]
    assert errors == [f"error: --init={tmp_path}/absent: {tmp_path}/absent is not a run folder; write RUN or "
                      "RUN:CHECKPOINT"]  # fmt: skip
    assert "Traceback" not in err


def test_a_run_whose_config_was_edited_is_no_source(source: tuple, tmp_path: Path) -> None:
    copy = shutil.copytree(source[1], tmp_path / "run")
    config = json.loads((copy / "config.json").read_text())
    config["model"]["P_drop"] = 0.7
    (copy / "config.json").write_text(json.dumps(config))
    message = r"^--init=.*config\.json has changed since checkpoint 8 was saved: model\.P_drop"
    with pytest.raises(UserError, match=message):
        warm_start(f"{copy}:8", fresh(copy), copy)


def test_a_folder_with_a_colon_in_its_name_is_a_run(source: tuple, tmp_path: Path) -> None:
    copy = shutil.copytree(source[1], tmp_path / "a:4")
    _, record = warm_start(str(copy), fresh(copy), copy)
    assert record["run"] == str(copy)
    _, record = warm_start(f"{copy}:4", fresh(copy), copy)
    assert (record["run"], record["checkpoints"]) == (str(copy), [4])
