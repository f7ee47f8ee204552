"""One point of a sweep: the process that trains it, and what its run reports."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from train.sweep.expressions import Point

Summary = dict[str, int | float]
OBJECTIVE = "nll"  # validation loss without label smoothing: comparable also where eps_ls differs
_SECONDS_BETWEEN_LOOKS = 0.5
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


class Lost(Exception):
    """The point is no longer this worker's: its run must end at once and leave no trace."""


class Outcome(NamedTuple):
    """How a point ended: "done", "failed" or "pruned", in one line why, and the `summary` of its records."""

    state: str
    reason: str
    summary: Summary


class Row(NamedTuple):
    """What is known of a point; `state` may also be "waiting", "running" or "interrupted"."""

    name: str
    overrides: Point
    state: str
    reason: str
    summary: Summary


@runtime_checkable
class Held(Protocol):
    """A point in the hands of this worker, whichever kind of sweep it is of."""

    name: str
    overrides: Point
    attempt: int

    def renew(self) -> bool:
        """Keeps hold of it; True where it is to be stopped early. Raises `Lost`."""

    def release(self) -> None:
        """Gives it back unfinished."""

    def finish(self, outcome: Outcome) -> None:
        """Records how it ended. Raises `Lost`."""


@runtime_checkable
class Todo(Protocol):
    """The points of a sweep, as many workers share them."""

    def finished(self) -> bool:
        """Whether nothing is left, nor can come back."""

    def take(self) -> Held | None:
        """Returns a point that is now this worker's alone; None while there is none to have."""

    def rows(self) -> list[Row]:
        """What is known of each point."""


def read_records(run: Path) -> list[dict[str, Any]]:
    """The records of a run's `metrics.jsonl` (see `train.metrics`), also while it is being written; [] without one."""
    try:
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("}\n")]


def summary(records: list[dict[str, Any]]) -> Summary:
    """The last "step", training "minutes", and of each validation measure NAME the last and, as "NAME_best", the best.

    Measures are "loss", "nll" and "perplexity", least is best, and "bleu". What has not been measured is left out.
    """
    found: Summary = {"step": records[-1]["step"]} if records else {}
    if times := [record["seconds"] for record in records if record["kind"] == "train"]:
        found["minutes"] = times[-1] / 60
    for name, best in (("loss", min), ("nll", min), ("perplexity", min), ("bleu", max)):
        if values := [record[name] for record in records if record["kind"] == "valid" and name in record]:
            found |= {name: values[-1], f"{name}_best": best(values)}
    return found


def run_child(command: list[str], log: Path, attend: Callable[[], bool]) -> tuple[int, str]:
    """Runs `command` to its end; returns its status as `subprocess` has it, and in one line what it said last.

    Args:
      command: a training run.
      log: file to which its output is added.
      attend: called twice a second meanwhile, and when all is over. Once it returns True the child is asked to stop
        (SIGTERM: it saves first); if it raises, the child is killed at once.

    The child has its own process group, so that Ctrl-C reaches it only through `attend`, once. Where the kernel can
    (Linux), it is killed when this process dies, however this process dies: nobody trains for a worker that is gone.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        start = output.tell()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # safe: a worker has no other thread
        )
        try:
            asked = False
            while child.poll() is None:
                if attend() and not asked:
                    child.send_signal(signal.SIGTERM)
                    asked = True
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            attend()  # this process may have slept long enough to be taken for dead
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    text = log.read_bytes()[start:].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if child.returncode < 0:
        return child.returncode, f"killed by {signal.Signals(-child.returncode).name}"
    return child.returncode, (errors or lines or [f"exit status {child.returncode}"])[-1]
