"""Only what orbax abandons is kept off the terminal, and none of its threads keeps a process alive."""

import gc
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.run.test_checkpoint import keep
from vaswani.run.checkpoint import Checkpoints, _without_tracebacks


def test_what_orbax_abandons_is_silent_and_everything_else_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def one() -> None: ...

    shown: list[object] = []
    hook = shown.append
    monkeypatch.setattr(sys, "unraisablehook", hook)
    ours = one()
    orbaxs = types.SimpleNamespace(cr_code=types.SimpleNamespace(co_filename="/site-packages/orbax/checkpoint/save.py"))
    about = [types.SimpleNamespace(object=thing) for thing in (ours, orbaxs, None, 3)]
    with _without_tracebacks():
        for event in about:
            sys.unraisablehook(event)  # type: ignore[arg-type]
    assert shown == [about[0], about[3]]
    assert sys.unraisablehook is hook
    ours.close()


def abandon() -> None:
    """Leaves a suspended coroutine as orbax's, which only the garbage collector finds, and which fails when it ends."""
    names: dict = {"pause": types.coroutine(lambda: (yield))}
    source = "async def save(own):\n    try:\n        await pause()\n    finally:\n        raise OSError"
    exec(compile(source, "/site-packages/orbax/checkpoint/save.py", "exec"), names)
    own: list = []
    own.append(names["save"](own))
    own[0].send(None)


def test_what_is_abandoned_by_an_error_is_collected_while_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    with pytest.raises(ValueError, match="failed"), _without_tracebacks():
        abandon()
        raise ValueError("failed")
    gc.collect()
    assert shown == []


def test_what_a_failed_save_abandoned_is_collected_by_closing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep())
    abandon()
    checkpoints.close()
    gc.collect()
    assert shown == []


def test_a_failed_save_is_one_line_and_its_process_ends(tmp_path: Path) -> None:
    """Where folders are made asynchronously, orbax's threads wait five minutes for the one that could not be made."""
    script = "\n".join(
        [
            "import os, pathlib",
            "from vaswani import command",
            "from tests.run.test_checkpoint import filled, state",
            "make = os.mkdir",
            "async def write(): ...",
            "def mkdir(path, *arguments, **named):",
            "    if pathlib.Path(path).name == '2': raise OSError(28, 'No space left on device')",
            "    make(path, *arguments, **named)",
            "def main(argv):",
            f"    checkpoints = filled(pathlib.Path('{tmp_path}/checkpoints'), {{1: None}})",
            "    os.mkdir = mkdir",
            "    write()  # abandoned while the command works",
            "    command.abandoned = write()  # held until Python ends, as the frames of a failed save may be",
            "    checkpoints.save(2, state(2), {}, None, {})",
            "command.run(main)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "checkpoint 2 could not be written (No space left on device); checkpoint 1 is intact" in done.stderr
