"""Full disks, removed folders, a second process, a signal during validation: a one-line error, and nothing is lost."""

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from tests.run.test_checkpoint import filled, state
from tests.run.test_faults_damage import arrays, flip
from tests.train.test_train_cli import start, wait_for
from vaswani.errors import UserError
from vaswani.run import saved, signals
from vaswani.run.averaging import load_choice
from vaswani.run.checkpoint import load_params
from vaswani.run.lock import is_held, lock
from vaswani.run.saved import fault
from vaswani.train import loop
from vaswani.train.metrics import Reporter

# How the lines begin that a healthy run prints.
PROGRESS = (
    "step ",
    "resuming ",
    "config: ",
    "device: ",
    "model: ",
    "speed: ",
    "data.",
    "compiling ",
    "memory of ",
    "peak memory ",
)


def config(folder: Path, **changes: int) -> ConfigDict:
    cfg = tiny.training_config(folder)
    cfg.checkpoint.keep_last, cfg.checkpoint.keep_best, cfg.eval.every = 1000, 0, 8
    cfg.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
    return cfg


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and stderr without the lines about the start and of progress."""
    with process:
        try:
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert out == ""
    return process.returncode, "".join(line for line in err.splitlines(True) if not line.startswith(PROGRESS))


def launch(folder: Path, cfg: ConfigDict, workdir: Path) -> subprocess.Popen[str]:
    return start(f"--config={tiny.config_file(folder, cfg)}", f"--workdir={workdir}")


def whole(workdir: Path) -> list[int]:
    """Returns the steps of the checkpoints, after checking that each is intact and can be loaded."""
    steps = sorted(int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit())
    assert all(fault(workdir / "checkpoints" / str(step)) is None for step in steps)
    load_params(workdir, steps[-1])
    return steps


def records(workdir: Path) -> list[dict]:
    """Returns the metrics records, without what depends on the clock."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if "second" not in k} for line in lines]


def assert_same(one: Path, other: Path, step: int) -> None:
    jax.tree.map(np.testing.assert_array_equal, load_params(one, step), load_params(other, step))
    assert records(one) == records(other)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a corpus and of a run of 12 updates, `run`, with checkpoints 4, 8 and 12, validated at 8 and 12."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert loop.train(config(folder), folder / "run") == 0
    return folder


def first_four(undisturbed: Path, folder: Path) -> Path:
    """A copy of the run as it was after 4 updates."""
    run = shutil.copytree(undisturbed / "run", folder / "run", ignore=shutil.ignore_patterns("8", "12"))
    assert whole(run) == [4]
    return run


FULL = (
    r"checkpoint {lost} could not be written \({why}\); checkpoint {kept} is intact and the same command resumes from "
    "it once that is fixed"
)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit another process")
@pytest.mark.parametrize("where", ["checkpoints", "metrics.jsonl", "config.json"])
def test_what_cannot_be_written_is_one_line_and_leaves_the_checkpoints_whole(
    undisturbed: Path, tmp_path: Path, where: str
) -> None:
    """A limit on file sizes fails as a full disk does, and needs no privileges."""
    run = first_four(undisturbed, tmp_path)
    if where == "checkpoints":
        limit, message = (
            arrays(run / "checkpoints/4").stat().st_size // 2,
            FULL.format(lost=8, kept=4, why="File too large"),
        )
    else:
        record = (run / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
        (run / "metrics.jsonl").write_text(record * (20_000 // len(record)))
        limit, message = (
            {"metrics.jsonl": 20_100, "config.json": 1_000}[where],
            r"run(/config\.json)?: cannot be written \(File too large\)",
        )
    process = launch(undisturbed, config(undisturbed, log_every=1), run)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    status, err = finished(process)
    assert status == 2
    assert re.fullmatch(rf"error: [^\n]*{message}[^\n]*\n", err)
    assert whole(run) == [4]
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["4"]
    assert loop.train(config(undisturbed), run) == 0  # once there is room
    jax.tree.map(np.testing.assert_array_equal, load_params(run, 12), load_params(undisturbed / "run", 12))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # tensorboardX leaves its file open
def test_a_full_disk_is_no_endless_wait_for_tensorboard(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, lambda step: 0.1, first=1, last=9, every=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"), reporter:
            for step in range(1000):
                reporter._tensorboard.write(step, {"valid/loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory; only root may make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "none", disk]).returncode:
        pytest.skip("no permission to mount")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.slow
def test_a_full_disk_and_one_that_turns_read_only(undisturbed: Path, small_disk: Path) -> None:
    run = small_disk / "run"
    cfg = config(undisturbed, steps=1_000_000, checkpoint__every=1)
    status, err = finished(launch(undisturbed, cfg, run))
    assert status == 2
    kept = whole(run)[-1]
    # names the file, or the flag where the system's error has no file's name: a write to a file that is open
    assert re.fullmatch(rf"error: (--workdir=)?{run}[^\n]*No space left on device[^\n]*\n", err), err
    if "could not be" in err:
        assert re.search(FULL.format(lost=r"\d+", kept=kept, why="No space left on device"), err)

    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(UserError, match=rf"^{run}/lock: cannot be written \(Read-only file system\)[^\n]*$"):
        loop.train(cfg, run)
    assert load_choice(run, "latest")[0] == [kept]

    subprocess.run(["mount", "-o", "remount,rw,size=9m", small_disk], check=True)
    cfg.steps = kept + 2
    assert loop.train(cfg, run) == 0
    assert loop.train(cfg, small_disk.parent / "other") == 0
    jax.tree.map(
        np.testing.assert_array_equal, load_params(run, cfg.steps), load_params(small_disk.parent / "other", cfg.steps)
    )


@pytest.mark.slow
def test_a_second_process_is_refused_and_readers_are_not_and_a_lost_folder_is_noticed(
    undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    cfg = config(undisturbed, steps=1_000_000, checkpoint__keep_last=2)
    first = launch(undisturbed, cfg, run)
    wait_for(run / "checkpoints" / "4" / "commit_success.txt", first)
    holder = rf"pid {first.pid} on \S+ since \S+"
    with pytest.raises(
        UserError, match=rf"^--workdir={run}: another process is training in this folder \({holder}\)[^\n]*$"
    ):
        loop.train(cfg, run)
    assert load_choice(run, "latest")[0]

    shutil.rmtree(run, ignore_errors=True)
    while run.exists():  # it may have been writing
        shutil.rmtree(run, ignore_errors=True)
    status, err = finished(first)
    assert (status, bool(re.fullmatch(rf"error: {run}[^\n]*\n", err))) == (2, True), err


def test_a_look_at_the_lock_does_not_keep_a_training_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vaswani.run.lock._PAUSE", 1.0)  # the timer of a busy machine may be late
    (tmp_path / "lock").touch()
    looking = (tmp_path / "lock").open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)
    end = threading.Timer(0.05, looking.close)
    end.start()
    with lock(tmp_path):
        pass
    end.join()


def test_two_that_look_at_a_lock_at_once_do_not_take_each_other_for_a_training(tmp_path: Path) -> None:
    with lock(tmp_path):
        assert is_held(tmp_path)
    with (tmp_path / "lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_held(tmp_path)


def test_a_lock_is_free_again_after_its_process(tmp_path: Path) -> None:
    with lock(tmp_path):
        assert str(os.getpid()) in (tmp_path / "lock").read_text()
        with pytest.raises(UserError, match=f"pid {os.getpid()} on"), lock(tmp_path):
            pass
    with lock(tmp_path):
        pass


def test_a_folder_without_locks_is_trained_in_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with lock(tmp_path):
        pass
    assert (
        capsys.readouterr().err
        == f"note: {tmp_path} cannot be locked (No locks available): run only one training in it\n"
    )


def test_a_second_process_where_there_are_no_locks_is_named_and_the_first_saves_no_more(tmp_path: Path) -> None:
    with lock(tmp_path):
        checkpoints = filled(tmp_path / "checkpoints", {1: None})
        other = "pid 1 on elsewhere since 2026-01-01T00:00:00+00:00"
        (tmp_path / "lock").write_text(other)
        theirs = tmp_path / "checkpoints" / "2"
        theirs.mkdir()
        message = rf"^--workdir={tmp_path}: another process has started training in this folder \({re.escape(other)}\)"
        with pytest.raises(UserError, match=message):
            checkpoints.save(2, state(2), {}, None, {})
        with pytest.raises(UserError, match=message), checkpoints._writing():  # a save that the other one disturbed
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        assert theirs.is_dir()
        checkpoints.close()
    assert saved.steps(tmp_path / "checkpoints") == [1]


def test_a_lost_folder_is_not_made_again(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path / "run" / "checkpoints", {1: None})
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(UserError, match=r"checkpoints: this folder has disappeared; the run cannot be saved$"):
        checkpoints.save(2, state(2), {}, None, {})
    assert not (tmp_path / "run").exists()
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)  # as a save in flight does
    with pytest.raises(UserError, match=r"checkpoints: this folder has disappeared; the run cannot be saved$"):
        checkpoints.save(2, state(2), {}, None, {})
    checkpoints.close()
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.slow
def test_training_goes_on_from_the_newest_whole_checkpoint_to_the_same_end(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = shutil.copytree(undisturbed / "run", tmp_path / "run")
    for step in ("8", "12"):
        flip(arrays(run / "checkpoints" / step))
    assert loop.train(config(undisturbed), run) == 0
    err = capsys.readouterr().err
    assert (
        len(re.findall(r"warning: \S+/(8|12) is damaged \(state/\S+ has changed\)[^\n]*from checkpoint 4\n", err)) == 2
    )
    assert f"resuming {run} after step 4\n" in err
    assert whole(run) == [4, 8, 12]
    assert_same(run, undisturbed / "run", 12)


@pytest.mark.slow
def test_a_signal_that_a_validation_swallows_at_its_end_stops_after_the_same_update(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validate = loop.validate

    def swallowing(*args: object) -> dict:
        measured = validate(*args)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except SystemExit:
            pass
        return measured

    monkeypatch.setattr(loop, "validate", swallowing)
    run = tmp_path / "run"
    assert loop.train(config(undisturbed), run) == 143
    assert max(saved.steps(run / "checkpoints")) == 8
    assert saved.about(run / "checkpoints" / "8").metrics != {}, "the validation was complete"


@pytest.mark.slow
@pytest.mark.parametrize("step", [8, 12])
def test_a_validation_given_up_for_a_signal_is_made_up_for(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    validate, validations = loop.validate, iter(range(9))

    def interrupted(*args: object) -> dict:
        if next(validations) in (step // 12, step // 12 + 1):  # also when it is made up for the first time
            os.kill(os.getpid(), signal.SIGTERM)
        return validate(*args)

    monkeypatch.setattr(loop, "validate", interrupted)
    monkeypatch.setattr(signals, "GRACE", 300.0)  # a busy machine may need longer to leave than a user would wait
    run, cfg = tmp_path / "run", config(undisturbed)
    assert loop.train(cfg, run) == 143
    assert max(saved.steps(run / "checkpoints")) == step
    assert saved.about(run / "checkpoints" / str(step)).metrics == {}
    assert not [record for record in records(run) if record["step"] == step and record["kind"] == "valid"]

    with pytest.raises(SystemExit) as exit_:
        loop.train(cfg, run)
    assert (exit_.value.code, max(whole(run))) == (143, step)
    assert loop.train(cfg, run) == 0
    assert whole(run) == [4, 8, 12]
    assert_same(run, undisturbed / "run", 12)
    ours, theirs = (saved.about(folder / "checkpoints" / str(step)).metrics for folder in (run, undisturbed / "run"))
    assert ours == theirs != {}


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_checkpoints_of_one_that_was_not(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Reporter.update

    def interrupted(self: Reporter, step: int, *args: object) -> None:
        update(self, step, *args)
        if step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    run, cfg = tmp_path / "run", config(undisturbed)
    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "update", interrupted)
        assert loop.train(cfg, run) == 143
    assert whole(run) == [4, 6]
    assert loop.train(cfg, run) == 0
    assert whole(run) == whole(undisturbed / "run") == [4, 8, 12]
    for step in (4, 8, 12):
        jax.tree.map(np.testing.assert_array_equal, load_params(run, step), load_params(undisturbed / "run", step))


@pytest.mark.slow
def test_a_checkpoint_that_was_due_when_it_was_saved_is_kept(undisturbed: Path, tmp_path: Path) -> None:
    run = first_four(undisturbed, tmp_path)
    assert loop.train(config(undisturbed, checkpoint__every=5), run) == 0
    assert whole(run) == [4, 5, 10, 12]
