"""A sitting: the parts that have no record yet, in their order, as long as the minutes last.

Each is a process group of its own, so that nothing which it starts keeps the device's memory. Its record, a line of
JSON, is written as soon as it ends. A record counts for the commit and the machine that it names, and for no other.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from vaswani.errors import UserError
from vaswani.files import write_text
from vaswani.read_json import read_json_lines

RECORDS = "records.jsonl"
SCHEMA = {"part": str, "commit": str, "machine": dict, "seconds": float, "found": dict}
SPAWN = multiprocessing.get_context("spawn")
MOST = 3  # times its expected seconds that a part may take


class Context(NamedTuple):
    """What every part is told: the folder of its runs, and whether this is the rehearsal."""

    runs: Path
    tiny: bool


class Part(NamedTuple):
    """One thing to measure: its seconds on an H200, estimated, and the work, which returns what was found.

    `environment` is of its process alone.
    """

    name: str
    seconds: float
    work: Callable[[Context], dict[str, Any]]
    environment: tuple[tuple[str, str], ...] = ()


class Code(NamedTuple):
    """What a record was measured with."""

    commit: str
    machine: dict[str, str]


def sit(parts: Sequence[Part], code: Code, context: Context, output: Path, seconds: float) -> dict[str, str]:
    """Does the parts, first those that were not tried; returns of each that has no result yet why that is.

    A part that does not fit in what is left is skipped. One that has not ended when all seconds are over is killed
    without a record: the next sitting goes on with it, trainings from their last checkpoint. One that takes `MOST`
    times as long as expected has failed.
    """
    end = time.monotonic() + seconds
    path = output / RECORDS
    earlier = {record["part"]: record for record in read_records(path) if is_of(record, code)}
    untried = [part for part in parts if part.name not in earlier]
    failed = [part for part in parts if part.name in earlier and "failed" in earlier[part.name]["found"]]
    missing: dict[str, str] = {}
    for part in (*untried, *failed):
        left = end - time.monotonic()
        expected = 0.0 if context.tiny else part.seconds
        if left <= max(expected, 0):
            missing[part.name] = f"skipped: {part.seconds:.0f} s expected, {max(left, 0):.0f} s left"
            continue
        print(f"{part.name}: {part.seconds:.0f} s expected, {left:.0f} s left", file=sys.stderr, flush=True)
        most = left if context.tiny else min(left, MOST * part.seconds)
        began = time.monotonic()
        found = in_own_group(part, context, output / "logs" / f"{file_name(part.name)}.log", most)
        if found is None and most == left:
            missing[part.name] = f"killed after {most:.0f} s, when the time was over"
            continue
        if found is None:
            found = {"failed": f"killed after {most:.0f} s"}
        if "failed" in found:
            missing[part.name] = f"failed: {found['failed']}"
        taken = round(time.monotonic() - began, 1)
        about = {"part": part.name, **code._asdict(), "time": datetime.now(UTC).isoformat(timespec="seconds")}
        append(path, about | {"seconds": taken, "found": found})
    return missing


def in_own_group(part: Part, context: Context, log: Path, seconds: float) -> dict[str, Any] | None:
    """Does a part in a process group of its own; returns its result or why it failed, and None if it took longer.

    Whatever is left of the group is killed, also if this process is.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_work, args=(part.work, context, log, sender))
    with mock.patch.dict(os.environ, dict(part.environment)):
        process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else None
    except EOFError:
        process.join()
        return {"failed": f"the process ended with {process.exitcode}; {log} has its last words"}
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()  # in case that it had no group yet
        process.join()


def _work(work: Callable[[Context], dict[str, Any]], context: Context, log: Path, sender: Connection) -> None:
    """Does the work of a part, and sends what it found."""
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("ab", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        found = work(context)
    except Exception as error:  # whatever a compiler, a kernel or another engine may raise
        traceback.print_exc()
        lines = str(error).strip().splitlines()
        found = {"failed": f"{type(error).__name__}: {lines[0][:300] if lines else ''}"}
    sender.send(found)
    time.sleep(60)  # the parent kills the group, this process too


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Returns the records of a file; none if there is no file.

    Raises:
      UserError: a line is damaged.
    """
    return read_json_lines(path, SCHEMA) if path.exists() else []


def append(path: Path, record: dict[str, Any]) -> None:
    """Adds a record to a file, which has all lines or all but the last, whatever happens."""
    earlier = path.read_text(encoding="utf-8") if path.exists() else ""
    write_text(path, f"{earlier}{json.dumps(record)}\n")


def is_of(record: dict[str, Any], code: Code) -> bool:
    """Returns whether a record was measured at this commit, on such a machine, with these versions."""
    return (record["commit"], record["machine"]) == code


def commit_here(given: str | None, git: dict[str, Any] | None) -> str:
    """Returns the commit that records name: that of the checkout or, where there is none, the one on the command line.

    Raises:
      UserError: it is not known, or the code differs from it.
    """
    if git is None:
        if not given:
            raise UserError("there is no git checkout here: give the commit of this code as --commit=HASH")
        return given
    if git["dirty"]:
        raise UserError("the code has changes that are not committed, and records name a commit: commit them first")
    if given and not git["commit"].startswith(given):
        raise UserError(f"--commit={given}: this checkout is at {git['commit']}")
    return git["commit"]


def file_name(part: str) -> str:
    """Returns a part's name as that of a file."""
    return "".join(letter if letter.isalnum() else "-" for letter in part)
