"""A worker of a sweep: takes a point, trains it, records how it ended, and takes the next."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from base.errors import UserError
from run.folder import read_json
from run.lock import lock
from train.sweep.point import Held, Lost, Outcome, Todo, read_records, run_child, summary


class Stop:
    """The first Ctrl-C or SIGTERM is noted; a second Ctrl-C ends the process, and with it its run."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def pause(self, seconds: float) -> None:
        """Waits so long, or until a signal."""
        end = time.monotonic() + seconds
        while not self.received and time.monotonic() < end:
            time.sleep(min(0.5, seconds))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def work(todo: Todo, workdir: Path, command: Callable[[Held, Path], list[str]], idle: float, stop: Stop) -> None:
    """Trains one point after the other until all are finished, by whomever, or a signal comes.

    Args:
      todo: the points.
      workdir: folder of their runs.
      command: what trains a point in a folder.
      idle: seconds between looks for something to do.
      stop: the signals.
    """
    while not stop.received and not todo.finished():
        held = todo.take()
        if held is None:
            stop.pause(idle)
            continue
        try:
            outcome = _train(held, workdir, command, stop)
            if outcome is None:
                held.release()
                _say(held, "given back")
            else:
                held.finish(outcome)
                _say(held, f"{outcome.state}: {outcome.reason}" if outcome.reason else outcome.state)
        except Lost:
            _say(held, "lost to another worker")


def _train(held: Held, workdir: Path, command: Callable[[Held, Path], list[str]], stop: Stop) -> Outcome | None:
    """Returns how the point ended; None where its run was only interrupted."""
    folder = workdir / held.name
    pruned = False

    def attend() -> bool:
        nonlocal pruned
        pruned = held.renew() or pruned
        return pruned or stop.received is not None

    folder.mkdir(exist_ok=True)
    while True:  # where a run outlives its worker (not on Linux), it is still in there
        try:
            with lock(folder):
                break
        except UserError:
            if attend():
                return None
            stop.pause(1.0)
    _say(held, "begins" if held.attempt == 1 else f"goes on, attempt {held.attempt}")
    status, last_line = run_child(command(held, folder), workdir / "sweep" / "logs" / f"{held.name}.log", attend)
    stop.pause(1.0 if status < 0 else 0.0)  # what killed the run may be about to reach this process, too
    records = read_records(folder)
    measures = summary(records)
    if status == 0 or (pruned and _is_complete(folder, records)):
        return Outcome("done", "", measures)
    if pruned:
        return Outcome("pruned", "", measures)
    if stop.received or status in (130, 143, -signal.SIGINT, -signal.SIGTERM):
        return None
    return Outcome("failed", last_line, measures)


def _is_complete(folder: Path, records: list[dict[str, Any]]) -> bool:
    """Whether a run that was asked to stop had come to its end by itself."""
    last = {"step": read_json(folder / "config.json")["steps"], "kind": "valid"}
    return bool(records) and last.items() <= records[-1].items()


def _say(held: Held, text: str) -> None:
    print(f"{held.name}: {text}", file=sys.stderr, flush=True)
