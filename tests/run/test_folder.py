"""The folder of a run: which config it belongs to, its launches, and a one-line error if a record is damaged."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.run import folder
from vaswani.run.folder import open_folder, record_launch
from vaswani.run.lock import check_ours
from vaswani.run.records import read_launches, read_metrics


def manifests(train: str = "a", valid: str = "b") -> dict[str, dict]:
    return {"train": {"sha256": {"pairs": train}}, "valid": {"sha256": {"pairs": valid}}}


@pytest.mark.parametrize("name", ["train", "valid"])
def test_data_that_changed_are_not_those_of_the_run(tmp_path: Path, name: str) -> None:
    """With other validation data, one log would mix the losses on two data sets."""
    record_launch(tmp_path, manifests(), 0)
    record_launch(tmp_path, manifests(), 5)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(UserError, match=rf"^data\.{name} has changed since {tmp_path} began[^\n]*$"):
        record_launch(tmp_path, manifests(**{name: "c"}), 5)
    assert (tmp_path / "run.json").read_bytes() == before
    record_launch(tmp_path, manifests(**{name: "c"}), 0)  # nothing was kept of the run before
    assert [launch["step"] for launch in read_launches(tmp_path)] == [0, 5, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1, 2]", r"it is \[1, 2\]; it must be an object"),
        (b"{}", "it has no 'launches'"),
        (b"\xff\0", "not JSON"),
        (b'{"launches": {}}', "launches is {}; it must be a list"),
        (b'{"launches": [3]}', r"launches\[0\] is 3; it must be an object"),
        (b'{"launches": [{"step": 0, "data": []}]}', r"launches\[0\].data is \[\]; it must be an object"),
        (b'{"launches": [{"step": 0, "data": {"train": {}}}]}', r"launches\[0\].data has no 'valid'"),
        (
            b'{"launches": [{"step": 0, "data": {"train": {"sha256": 5}, "valid": {"sha256": {}}}}]}',
            r"launches\[0\].data.train.sha256 is 5; it must be an object",
        ),
        (
            b'{"launches": [{"step": 0, "device": "x", "data": {"train": {"sha256": {}}, "valid": {"sha256": {}}}}]}',
            'launch 0: device is "x"; it must be an object',
        ),
        (
            b'{"launches": [{"step": 0, "data": {"train": {"sha256": {}, "tokenizer_sha256": 5}, '
            b'"valid": {"sha256": {}}}}]}',
            "launch 0: tokenizer_sha256 is 5; it must be text",
        ),
    ],
)
def test_a_damaged_run_json_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"^{tmp_path}/run.json: damaged[^\n]*{message}[^\n]*$"):
        record_launch(tmp_path, manifests(), 5)
    assert (tmp_path / "run.json").read_bytes() == content


@pytest.mark.parametrize(
    "line",
    [
        b"[1, 2]",
        b"{}",
        b"\xff\0",
        b'{"step": "x", "kind": "train"}',
        b'{"step": 1}',
        b'{"step": 1, "kind": "other", "seconds": "x"}',
    ],
)
def test_damaged_metrics_are_one_line(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1, "kind": "train", "seconds": 1}\n' + line + b"\n")
    with pytest.raises(UserError, match=rf"^{tmp_path}/metrics.jsonl: damaged in line 2[^\n]*$"):
        read_metrics(tmp_path)


@pytest.mark.parametrize("schedule", ["paper", "cosine"])
def test_steps_may_change_where_the_schedule_does_not_depend_on_them(tmp_path: Path, schedule: str) -> None:
    cfg = default()
    cfg.optim.schedule = schedule
    with open_folder(cfg, tmp_path):
        (tmp_path / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "seconds": 1}\n')
    cfg.steps = 50
    if schedule == "paper":
        with open_folder(cfg, tmp_path):
            assert json.loads((tmp_path / "config.json").read_text())["steps"] == 50
        return
    message = rf"^--workdir={tmp_path}: .* another config \(steps is 100000 there and 50 here\); .* --init={tmp_path}; "
    with pytest.raises(UserError, match=message), open_folder(cfg, tmp_path):
        pass


def test_a_damaged_config_is_not_taken_over(tmp_path: Path) -> None:
    with open_folder(default(), tmp_path):
        (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "config.json").write_text('{"seed": 0, "model": [1, 2]}')
    with pytest.raises(UserError, match=rf"^{tmp_path}/config.json: damaged[^\n]*$"), open_folder(default(), tmp_path):
        pass
    assert (tmp_path / "config.json").read_text() == '{"seed": 0, "model": [1, 2]}'


def test_a_process_keeps_its_folder_if_its_machine_gets_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_folder(default(), tmp_path):
        monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
        check_ours(tmp_path)


def test_code_beside_a_file_whose_name_is_in_no_encoding_has_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # not the user's, which may sign commits or have hooks
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "folder.py").touch()
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message=one"]
    for command in (["init", "--quiet"], ["config", "core.quotePath", "false"], ["add", "."], commit):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    try:
        (tmp_path / os.fsdecode(b"\xff")).touch()
    except OSError:
        pytest.skip("the file system takes only names in UTF-8")
    monkeypatch.setattr(folder, "_ROOT", tmp_path)
    found = folder.git()
    assert found is not None and found["dirty"] and len(found["commit"]) == 40


def test_a_clone_that_git_does_not_trust_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setattr(folder, "_ROOT", tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert folder.git() is None
    said = "note: the commit of the code is not recorded, since git says: fatal: detected dubious ownership"
    assert capsys.readouterr().err.startswith(said)


def test_what_a_process_killed_at_its_start_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / ".config.json.0123").write_text('{"se')
    with open_folder(default(), tmp_path):
        assert (tmp_path / "config.json").is_file()


def test_a_run_that_a_conversion_made_is_not_taken_over(tmp_path: Path) -> None:
    with open_folder(default(), tmp_path):
        (tmp_path / "checkpoints" / "0").mkdir(parents=True)
        (tmp_path / "tokenizer.model").write_bytes(b"imported")
    other = default()
    other.seed = 1
    message = "this folder holds the run of another config"
    with pytest.raises(UserError, match=message), open_folder(other, tmp_path):
        pass
    assert (tmp_path / "tokenizer.model").read_bytes() == b"imported"
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 0


def test_a_start_that_fails_by_a_mistake_leaves_no_new_folder(tmp_path: Path) -> None:
    def fail(workdir: Path, error: type[Exception], *, launched: bool = False, also: str = "tokenizer.model") -> None:
        with pytest.raises(error), open_folder(default(), workdir):
            (workdir / "checkpoints").mkdir()
            (workdir / also).touch()
            if launched:
                record_launch(workdir, manifests(), 0)
            raise error

    fail(tmp_path / "new" / "run", UserError)
    assert not any(tmp_path.iterdir())
    kept = {"other": {"also": "notes.txt"}, "launched": {"launched": True}}
    for name, options in kept.items():
        fail(tmp_path / name, UserError, **options)  # type: ignore[arg-type]
    fail(tmp_path / "crash", RuntimeError)
    (tmp_path / "old").mkdir()
    fail(tmp_path / "old", UserError)
    assert {path.name for path in tmp_path.iterdir()} == {"other", "launched", "crash", "old"}
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]
    assert (tmp_path / "launched" / "tokenizer.model").exists()
    assert (tmp_path / "old" / "config.json").exists()


def test_a_run_that_was_stopped_before_its_first_record_is_no_obstacle(tmp_path: Path) -> None:
    with open_folder(default(), tmp_path):
        (tmp_path / "metrics.jsonl").touch()  # as `train.metrics.Reporter` leaves it
        (tmp_path / "tracker.json").write_text("{}")
        record_launch(tmp_path, manifests(), 0)
    smaller = default()
    smaller.data.tokens_per_batch = 100
    with open_folder(smaller, tmp_path):
        assert json.loads((tmp_path / "config.json").read_text())["data"]["tokens_per_batch"] == 100
        assert not (tmp_path / "tracker.json").exists()
        assert read_launches(tmp_path) == [], "a launch of another config"
