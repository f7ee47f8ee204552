"""A run whose tokenizer or config was changed after its training is refused in one line, unless that is accepted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from base.errors import UserError
from infer.runs import open_run
from run.changes import check_unchanged
from tests import tiny
from train import loop


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changes")
    cfg = tiny.training_config(folder)
    cfg.steps = cfg.checkpoint.every = 2
    assert loop.train(cfg, folder / "run") == 0
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def _edit(run: Path, group: str, key: str, value: object) -> None:
    config = json.loads((run / "config.json").read_text())
    config[group][key] = value
    (run / "config.json").write_text(json.dumps(config))


def _swap_two_pieces(run: Path) -> None:
    """Gives two subwords of the tokenizer each other's ids."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString((run / "tokenizer.model").read_bytes())
    one, other = model.pieces[-1], model.pieces[-2]
    one.piece, other.piece = other.piece, one.piece
    (run / "tokenizer.model").write_bytes(model.SerializeToString())


def test_an_unchanged_run_and_keys_that_do_not_matter_are_accepted(run: Path, capsys: pytest.CaptureFixture) -> None:
    open_run(run, "latest")
    for group, key, value in (("decode", "beam", 2), ("data", "test", "tsv:x"), ("model", "remat", "full")):
        _edit(run, group, key, value)
    open_run(run, "latest")
    assert "accepted" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "free"),
    [
        ("schedule", "paper", True),
        ("schedule", "inverse_sqrt", True),
        ("schedule", "cosine", False),
        ("name", "ademamix", False),
    ],
)
def test_a_run_may_go_on_for_longer_unless_its_updates_depend_on_their_number(
    key: str, value: str, free: bool, tmp_path: Path
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.optim[key] = value
    cfg.steps = cfg.checkpoint.every = 2
    assert loop.train(cfg, tmp_path / "run") == 0
    cfg.steps = 4
    if free:
        assert loop.train(cfg, tmp_path / "run") == 0
        return
    with pytest.raises(UserError, match="steps is 2 there and 4 here"):
        loop.train(cfg, tmp_path / "run")


def test_an_edited_config_is_refused_with_the_key_unless_accepted(run: Path, capsys: pytest.CaptureFixture) -> None:
    _edit(run, "model", "positions", "none")
    message = (
        r"config\.json has changed since checkpoint 2 was saved: model\.positions is 'sinusoidal' there and 'none' "
        "here; restore the file, or give --accept_changes if this is meant$"
    )
    with pytest.raises(UserError, match=message):
        open_run(run, "latest")
    open_run(run, "latest", accept_changes=True)
    assert "note: " in (told := capsys.readouterr().err) and "'none' here; accepted" in told


def test_a_changed_tokenizer_is_refused_unless_accepted(run: Path) -> None:
    _swap_two_pieces(run)
    with pytest.raises(
        UserError, match=r"tokenizer\.model has changed since the run was trained: its SHA-256 is [^\n]*$"
    ):
        open_run(run, "latest")
    open_run(run, "latest", accept_changes=True)


def test_the_tokenizer_of_the_latest_launch_counts(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    earlier = json.loads(json.dumps(record["launches"][-1]))
    earlier["data"]["train"]["tokenizer_sha256"] = "0" * 64
    record["launches"].insert(0, earlier)
    (run / "run.json").write_text(json.dumps(record))
    open_run(run, "latest")


@pytest.mark.slow
def test_the_commands_have_the_flag(run: Path) -> None:
    _edit(run, "model", "positions", "none")
    command = [sys.executable, "-m", "infer.translate", f"--workdir={run}"]
    for more, status in (([], 2), (["--accept_changes"], 0)):
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        done = subprocess.run([*command, *more], input="a\n", capture_output=True, text=True, env=environment)
        assert done.returncode == status, done.stderr
        assert ("--accept_changes" in done.stderr) == (status == 2)


def test_training_does_not_resume_with_another_config(run: Path) -> None:
    cfg = tiny.training_config(run.parent)
    cfg.update(json.loads((run / "config.json").read_text()))
    cfg.model.positions, cfg.steps = "none", 2
    _edit(run, "model", "positions", "none")
    with pytest.raises(UserError, match=r"model\.positions is 'sinusoidal' there"):
        loop.train(cfg, run)


def test_a_run_that_recorded_neither_is_opened(run: Path) -> None:
    _edit(run, "model", "mixer", "linear")
    with pytest.raises(UserError, match=r"model\.mixer is 'attention' there and 'linear' here"):
        check_unchanged(run, 2)
    _swap_two_pieces(run)
    (run / "run.json").unlink()
    (run / "checkpoints" / "2" / "config" / "metadata").unlink()
    check_unchanged(run, 2)
