"""A worker of a sweep: takes a point, trains it, records how it ended, and takes the next."""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from base.checked_json import read_json
from base.errors import UserError
from run.lock import lock
from run.records import read_metrics
from train.patience import has_ended
from train.sweep.point import OBJECTIVE, Lost, Outcome, run_child, summary
from train.sweep.study import HeldPoint, Study

Command = Callable[[HeldPoint, Path], list[str]]  # what trains a point in a folder


class Stop:
    """Notes the first Ctrl-C or SIGTERM; a second Ctrl-C ends the process, and with it its run."""

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


def work(study: Study, command: Command, stop: Stop, idle: float) -> None:
    """Trains one point after another until all have ended, wherever, or a signal comes; polls every `idle` seconds."""
    while not stop.received and not study.finished():
        point = study.take()
        if point is None:
            stop.pause(idle)
            continue
        try:
            outcome = _train(point, study, command, stop)
            if outcome is None:
                point.release()
                _say(point, f"given back; {_counts(study)}")
            else:
                recorded = point.finish(outcome)
                _say(point, f"{_ending(recorded)}; {_counts(study)}")
        except Lost as lost:
            _say(point, str(lost))


def _ending(outcome: Outcome) -> str:
    """Returns in words how a point ended: its state, the reason of a failure, and its lowest nll."""
    if outcome.reason:
        return f"{outcome.state}: {outcome.reason}"
    if f"{OBJECTIVE}_best" not in outcome.summary:
        return outcome.state
    return f"{outcome.state}, lowest {OBJECTIVE} {outcome.summary[f'{OBJECTIVE}_best']:.4f}"


def _counts(study: Study) -> str:
    """Returns how many points have ended, and how long the others will take."""
    progress = study.progress()
    counts = f"{progress.ended} of {progress.points} have ended"
    return counts if progress.minutes_left is None else f"{counts}, about {progress.minutes_left:,.1f} min left"


def _train(point: HeldPoint, study: Study, command: Command, stop: Stop) -> Outcome | None:
    """Returns how the point ended; None where its run was only interrupted."""
    folder = study.workdir / point.name
    log = study.workdir / "sweep" / "logs" / f"{point.name}.log"
    pruned = False

    def watch() -> bool:
        nonlocal pruned
        pruned = point.heartbeat() or pruned
        return pruned or stop.received is not None

    try:
        folder.mkdir(exist_ok=True)
        while not _is_free(folder):  # a run that outlived its worker (not on Linux) is still in there
            if watch():
                return None
            stop.pause(1.0)
        begins = "begins" if point.attempt == 1 else f"goes on, attempt {point.attempt}"
        number = 1 + [*study.points].index(point.name)
        _say(point, f"{begins} ({number} of {len(study.points)})")
        status, last_line = run_child(command(point, folder), log, watch)
        if status < 0:
            stop.pause(1.0)  # what killed the run may be about to reach this process, too
        records = read_metrics(folder)
    except UserError as error:
        return Outcome("failed", str(error), {})
    measures = summary(records)
    # A run that has ended by itself may still be saving when the pruner stops it.
    if status == 0 or (pruned and records and _has_ended(folder, records)):
        return Outcome("done", "", measures)
    if pruned:
        return Outcome("pruned", "", measures)
    if stop.received or status in (130, 143, -signal.SIGINT, -signal.SIGTERM):
        return None
    return Outcome("failed", last_line, measures)


def _has_ended(folder: Path, records: list[dict[str, Any]]) -> bool:
    """Returns whether the run in a folder has nothing left to train, by its config."""
    config = read_json(folder / "config.json", {"steps": int, "eval": {"patience": int}})
    return has_ended(records, config["steps"], config["eval"]["patience"])


def _is_free(folder: Path) -> bool:
    with suppress(UserError), lock(folder):
        return True
    return False


def _say(point: HeldPoint, text: str) -> None:
    print(f"{point.name}: {text}", file=sys.stderr, flush=True)
