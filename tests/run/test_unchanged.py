"""A run whose tokenizer or config was changed after its training is refused in one line, unless that is accepted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from tests import tiny
from vaswani.errors import UserError
from vaswani.infer.runs import open_run
from vaswani.run.folder import open_folder, record_launch
from vaswani.run.unchanged import check_unchanged
from vaswani.train import loop


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changes")
    cfg = tiny.training_config(folder)
    cfg.steps = cfg.checkpoint.every = 2
    assert loop.train(cfg, folder / "run") == 0
    return folder / "run"


def move_files(cfg: ConfigDict, folder: Path, to: Path) -> None:
    """Moves the corpora that `tiny.training_config` wrote, and any given tokenizer, and names them in `cfg`."""
    to.mkdir()
    for path in (*folder.glob("*.en"), *folder.glob("*.de"), *folder.glob("given.model")):
        path.rename(to / path.name)
    cfg.data.train, cfg.data.valid = (f"text:{to}/{split}.{{en,de}}" for split in ("train", "valid"))
    if cfg.data.tokenizer:
        cfg.data.tokenizer = str(to / "given.model")


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
        "here; restore the file, or set accept_changes if this is meant$"
    )
    with pytest.raises(UserError, match=message):
        open_run(run, "latest")
    open_run(run, "latest", accept_changes=True)
    assert "note: " in (told := capsys.readouterr().err) and "'none' here; accepted" in told


def test_a_key_taken_out_of_the_config_is_no_younger_key(run: Path) -> None:
    path = run / "config.json"
    config = json.loads(path.read_text())
    del config["model"]["d_ff"]
    path.write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"model\.d_ff is \d+ there and 2048 here;"):
        open_run(run, "latest")


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
        assert ("set accept_changes" in done.stderr) == (status == 2)


def test_training_does_not_resume_with_another_config(run: Path) -> None:
    cfg = tiny.training_config(run.parent)
    cfg.update(json.loads((run / "config.json").read_text()))
    cfg.model.positions, cfg.steps = "none", 2
    _edit(run, "model", "positions", "none")
    with pytest.raises(UserError, match=r"model\.positions is 'sinusoidal' there"):
        loop.train(cfg, run)


@pytest.fixture
def moved(run: Path, tmp_path: Path) -> ConfigDict:
    """Returns the config of a copy of `run`, whose files are all in another folder."""
    cfg = tiny.training_config(tmp_path)
    shutil.copy(run / "tokenizer.model", tmp_path / "given.model")
    cfg.steps = cfg.checkpoint.every = 2
    cfg.data.tokenizer = str(tmp_path / "given.model")
    move_files(cfg, tmp_path, tmp_path / "moved")
    return cfg


def test_the_same_bytes_elsewhere_are_the_data_and_the_tokenizer_of_a_run(
    run: Path, moved: ConfigDict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((run / "config.json").read_text())
    with open_folder(moved, run):
        check_unchanged(run, 2)
    (note,) = capsys.readouterr().err.splitlines()
    paths = f"data.valid is {before['data']['valid']!r} there and {moved.data.valid!r} here"
    assert note.startswith(f"note: data.tokenizer is '' there and '{tmp_path}/moved/given.model' here; data.train is ")
    assert note.endswith(f"; {paths}; the content is the same")
    assert json.loads((run / "config.json").read_text())["data"]["train"] == moved.data.train
    # Once a launch has read them, the run is opened also where they are not.
    launches = json.loads((run / "run.json").read_text())["launches"]
    manifests = json.loads(json.dumps(launches[-1]["data"]))
    for split in ("train", "valid"):
        manifests[split]["spec"] = moved.data[split]
    record_launch(run, manifests, 2)
    (tmp_path / "moved").rename(tmp_path / "gone")
    check_unchanged(run, 2)
    _edit(run, "data", "train", "grammar:train")
    with pytest.raises(UserError, match=r"saved: data\.train is 'text:\S* there and 'grammar:train' here; restore"):
        check_unchanged(run, 2)


@pytest.mark.parametrize(
    ("name", "key"), [("train.de", "train"), ("valid.en", "valid"), ("given.model", "tokenizer"), ("", "seed")]
)
def test_one_changed_byte_elsewhere_is_another_run(run: Path, moved: ConfigDict, name: str, key: str) -> None:
    before = (run / "config.json").read_bytes()
    if name:
        path = run.parent / "moved" / name
        content = path.read_bytes()
        path.write_bytes(content[:-2] + b"_" + content[-1:])
    else:
        moved.seed = 1
    message = rf"the run of another config \([^\n]*{key} is [^\n]*\); use another --workdir, or the config that it was"
    with pytest.raises(UserError, match=message), open_folder(moved, run):
        pass
    assert (run / "config.json").read_bytes() == before


@pytest.mark.parametrize("name", ["train.de", "given.model"])
def test_a_moved_file_that_is_not_there_is_named(run: Path, moved: ConfigDict, name: str) -> None:
    (run.parent / "moved" / name).unlink()
    with pytest.raises(UserError, match=rf"{run.parent}/moved/{name}: no such file$"), open_folder(moved, run):
        pass


def test_a_run_that_recorded_neither_is_opened(run: Path) -> None:
    _edit(run, "model", "mixer", "linear")
    with pytest.raises(UserError, match=r"model\.mixer is 'attention' there and 'linear' here"):
        check_unchanged(run, 2)
    _swap_two_pieces(run)
    (run / "run.json").unlink()
    (run / "checkpoints" / "2" / "config" / "metadata").unlink()
    check_unchanged(run, 2)
