"""A worker of a sweep: trains one point after another, as Optuna hands them out, and tells how each is doing."""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError

from vaswani.errors import UserError
from vaswani.run.lock import lock
from vaswani.run.records import read_metrics
from vaswani.train.sweep.point import OBJECTIVE, Outcome, PointStatus, run_child, summary
from vaswani.train.sweep.storage import STORAGE_ERRORS
from vaswani.train.sweep.study import HeldPoint, Lost, Study

_PAUSE = 5.0  # seconds between two looks at whether a point is waiting
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


class Watch:
    """Tells the study how a run is doing, and says when the run is to stop: by a signal, or by the pruner."""

    def __init__(self, point: HeldPoint, folder: Path, stop: Stop, every: float) -> None:
        """`every` is in seconds."""
        self.pruned = False
        self._point = point
        self._folder = folder
        self._stop = stop
        self._every = every
        self._next = time.monotonic() + every
        self._reported = point.reported

    def __call__(self) -> bool:
        """Returns whether the run is to stop; raises Optuna's error where another worker has taken the point."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            try:
                self.report()
            except UpdateFinishedTrialError:
                raise
            except STORAGE_ERRORS:
                pass  # it may be back in a moment; all that it has not got is reported then
        return self.pruned or self._stop.received is not None

    def report(self) -> list[dict[str, Any]]:
        """Reports what the run has measured; returns its records. Raises `UserError` where they are damaged."""
        records = read_metrics(self._folder)
        trial = self._point.trial
        trial.set_user_attr("summary", summary(records))
        for record in records:
            if record["kind"] == "valid" and record["step"] > self._reported:
                trial.report(record[OBJECTIVE], record["step"])
                self._reported = record["step"]  # only now, for the storage may be away
                self.pruned = trial.should_prune() or self.pruned  # at once: Optuna says so only once
        return records


def work(study: Study, command: Command, stop: Stop, every: float) -> None:
    """Trains one point after another until all have ended, wherever, or a signal comes.

    Every `every` seconds it reports what a run has measured. While others have all points that are left, it waits, for
    a worker may die; but not where the storage has no heartbeats, and so never says that one has.
    """

    def train(point: HeldPoint) -> Outcome | None:
        begins = "begins" if point.attempt == 1 else f"goes on, attempt {point.attempt}"
        _say(f"{point.name}: {begins} ({point.number} of {study.progress().points})")
        return _train(point, study.workdir, command, stop, every)

    def say_end(point: PointStatus) -> None:
        _say(f"{point.name}: {_ending(point)}; {_counts(study)}")

    while not stop.received and not study.finished():
        try:
            if study.train_next(train, say_end):
                continue
        except Lost as lost:
            _say(str(lost))
            continue
        if not study.has_heartbeats:
            return
        stop.pause(min(every, _PAUSE))


def _ending(point: PointStatus) -> str:
    """Returns in words how a point ended: its state, the reason of a failure, and its lowest nll."""
    if point.state == "interrupted":
        return "given back"
    if point.reason:
        return f"{point.state}: {point.reason}"
    if f"{OBJECTIVE}_best" not in point.summary:
        return point.state
    return f"{point.state}, lowest {OBJECTIVE} {point.summary[f'{OBJECTIVE}_best']:.4f}"


def _counts(study: Study) -> str:
    """Returns how many points have ended, and how long the others will take."""
    progress = study.progress()
    counts = f"{progress.ended} of {progress.points} finished"
    return counts if progress.minutes_left is None else f"{counts}, about {progress.minutes_left:,.1f} min left"


def _train(point: HeldPoint, workdir: Path, command: Command, stop: Stop, every: float) -> Outcome | None:
    """Returns the outcome of a point; None if its run was only interrupted."""
    folder = workdir / point.name
    log = workdir / "sweep" / "logs" / f"{point.name}.log"
    watch = Watch(point, folder, stop, every)
    try:
        folder.mkdir(exist_ok=True)
        while not _is_free(folder):  # a run that outlived its worker (not on Linux) is still in there
            if watch():
                return None
            stop.pause(1.0)
        status, last_line = run_child(command(point, folder), log, watch)
        if status < 0:
            stop.pause(1.0)  # what killed the run may also be about to reach this process
        stopped_by_pruner = watch.pruned
        measures = summary(watch.report())  # later points are compared with what it reports
    except UserError as error:
        return Outcome("failed", str(error), {})
    if status == 0:
        return Outcome("done", "", measures)
    if stopped_by_pruner:
        return Outcome("pruned", "", measures)
    if stop.received or status in (130, 143, -signal.SIGINT, -signal.SIGTERM):
        return None
    return Outcome("failed", last_line, measures)


def _is_free(folder: Path) -> bool:
    with suppress(UserError), lock(folder):
        return True
    return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
