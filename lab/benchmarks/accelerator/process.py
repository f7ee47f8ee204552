"""Processes that leave nothing behind: a row with all its children, and a part with the device's memory to itself."""

import multiprocessing
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a process ended: `reason` is empty if it did so by itself, with status 0."""

    reason: str
    log: str


def run_whole(command: list[str], environment: dict[str, str], seconds: float) -> Ended:
    """Runs a command in a process group of its own, and kills whatever is left of the group once it ends.

    A child of a row, such as a training run, would otherwise keep the device's memory from every later row.
    """
    with tempfile.TemporaryFile() as log:  # a pipe would stay open as long as any child does
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
        )
        status: int | None = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _kill_group(process)
        log.seek(0)
        text = log.read().decode(errors="replace")
    if status is None:
        return Ended(f"killed after {seconds:.0f} s", text)
    if status:
        last = (text.strip().splitlines() or ["no reason given"])[-1]
        return Ended(f"status {status}: {last}", text)
    return Ended("", text)


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a module's function returns in a new process, whose peak of memory is then the function's own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
