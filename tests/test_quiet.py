"""What abandoned tasks have to say is kept off the terminal, and nothing else is."""

import asyncio
import gc
import logging
import subprocess
import sys
import types
from pathlib import Path

import pytest
from absl import logging as absl_logging

from run import quiet
from run.quiet import Quiet
from tests.conftest import ROOT


def abandon() -> None:
    """A task and a future fail, and are collected without anybody having asked how they ended."""

    async def fails() -> None:
        raise ValueError("no room")

    async def outer() -> None:
        task, future = asyncio.ensure_future(fails()), asyncio.get_running_loop().create_future()
        future.set_exception(ValueError("no room either"))
        await asyncio.sleep(0)
        del task, future

    asyncio.run(outer())
    gc.collect()


def test_what_is_abandoned_is_silent_also_after_closing(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("asyncio").removeFilter(quiet._not_abandoned)
    abandon()
    assert sorted(record.getMessage().splitlines()[0] for record in caplog.records) == [
        "Future exception was never retrieved",
        "Task exception was never retrieved",
    ]
    caplog.clear()
    Quiet().close()
    abandon()
    assert not caplog.records
    logging.getLogger("asyncio").error("about something else")
    assert len(caplog.records) == 1


def test_a_coroutine_of_orbax_that_is_closed_early_is_silent_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def one() -> None: ...

    shown: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    ours = one()
    about = types.SimpleNamespace(object=ours)
    with Quiet():
        sys.unraisablehook(about)  # type: ignore[arg-type]
        assert shown == [about]
        monkeypatch.setattr(quiet, "_ORBAX", __file__)
        sys.unraisablehook(about)  # type: ignore[arg-type]
        assert shown == [about]
    ours.close()


def test_what_orbax_logs_is_silent_also_after_closing() -> None:
    Quiet().close()
    logger = absl_logging.get_absl_logger()
    assert not logger.filter(logging.makeLogRecord({"pathname": "/site-packages/orbax/checkpoint/futures.py"}))
    assert logger.filter(logging.makeLogRecord({"pathname": "/site-packages/other/futures.py"}))


def test_a_thread_that_waits_on_does_not_keep_the_process() -> None:
    script = "\n".join(
        [
            "import threading",
            "from run.quiet import leave_within",
            "threading.Thread(target=threading.Event().wait).start()",
            "leave_within(0.1, status=2)",
        ]
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 2


def test_who_leaves_in_time_leaves_with_their_own_status() -> None:
    script = "from run.quiet import leave_within; leave_within(60, status=2); raise SystemExit(3)"
    assert subprocess.run([sys.executable, "-c", script], timeout=50).returncode == 3


def test_training_that_fails_leaves_without_the_threads_that_wait(tmp_path: Path) -> None:
    script = "\n".join(
        [
            "import runpy, sys, threading",
            "import train.loop, run.quiet",
            "from base.errors import UserError",
            "def fails(cfg, workdir):",
            "    threading.Thread(target=threading.Event().wait).start()",
            "    raise UserError('no room')",
            "soon, train.loop.train = run.quiet.leave_within, fails",
            "run.quiet.leave_within = lambda seconds, status: soon(min(seconds, 3.0), status)",
            f"sys.argv = ['train', '--config=configs/quickstart.py', '--workdir={tmp_path}/run']",
            "runpy.run_module('train', run_name='__main__')",
        ]
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "error: no room\n")
