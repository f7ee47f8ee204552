"""A sweep as an Optuna study, which any number of workers share.

A point is a trial, enqueued with its "name", the run folder's, as a user attribute. A grid's point has its "overrides"
from the start; a search's gets them from `search(trial)` when it begins. `Study.optimize` hands a waiting trial to one
worker, records heartbeats while it is trained, and fails the trials of workers whose heartbeats have stopped. A trial
that failed by itself has a "reason"; one without was given back, or its worker died, and Optuna's retry callback
enqueues it again. Optuna never changes a trial that has ended, so each point ends once. Two machines may enqueue a
point at the same moment: the first trial that has not failed counts, and whoever gets another drops it.
"""

import copy
import json
import math
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import TrialPruned
from optuna.pruners import BasePruner, HyperbandPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from vaswani.errors import UserError
from vaswani.run.config import with_defaults
from vaswani.train.sweep.expressions import Point
from vaswani.train.sweep.plan import another
from vaswani.train.sweep.point import OBJECTIVE, Outcome, PointStatus
from vaswani.train.sweep.space import check_choices
from vaswani.train.sweep.storage import STORAGE_ERRORS, connect, exclusive, reachable, unreachable

_NAME = re.compile(r"[\w,=+-][\w.,=+-]*", re.ASCII)  # of a point, and of its folder; `expressions.name_of`
_STATES = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "interrupted",
    TrialState.WAITING: "waiting",
}


class Lost(Exception):
    """Another worker has taken the point."""


class _Fail(Exception):
    """Makes Optuna end a trial as FAIL."""


class Progress(NamedTuple):
    """How many points have ended, of how many, and the minutes left; None if nothing is, or none has been measured.

    The minutes are training time, as if each remaining point took the mean of the points done or pruned.
    """

    ended: int
    points: int
    minutes_left: float | None


class HeldPoint(NamedTuple):
    """A point that this worker trains.

    `number` counts the points of the sweep from 1, `attempt` the workers that have begun this one; `reported` is the
    last step whose validation the study has.
    """

    name: str
    number: int
    overrides: Point
    attempt: int
    reported: int
    trial: Trial


class Study:
    """An Optuna study whose trials are the points of a sweep."""

    def __init__(self, workdir: Path, plan: dict, url: str | None, silence: int, pruner: str | None = None) -> None:
        """Opens the study of a plan (see `train.sweep.plan`), or with a `pruner` creates it.

        `url` is the storage's SQLAlchemy URL or grpc://HOST:PORT, None for `sweep/study.db` in the folder; `silence` is
        the grace period: seconds without a heartbeat after which a worker counts as dead. Raises `UserError` where the
        storage cannot be used, or its study of that name is absent or of another sweep.
        """
        self.workdir = workdir
        self.search = plan["kind"] == "search"
        name = plan["study"]
        sweep = json.dumps([plan["kind"], plan["config"]], sort_keys=True)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with reachable():
            storage = connect(url, workdir, silence)
            self.has_heartbeats = isinstance(storage, RDBStorage)
            if pruner:
                self.study = optuna.create_study(
                    study_name=name,
                    storage=storage,
                    # Trials that other workers are training count as bad ones, so that the next is tried elsewhere.
                    sampler=TPESampler(constant_liar=True),
                    pruner=_pruner(pruner if self.search else "none", with_defaults(plan["config"])),
                    load_if_exists=True,
                )
            else:
                try:
                    self.study = optuna.load_study(study_name=name, storage=storage)
                except KeyError as error:
                    raise UserError(f"--storage: it has no study {name}") from error
            if self.study.user_attrs.get("sweep", sweep) != sweep:
                raise UserError(f"the study {name} in that storage is of another sweep; choose another --study")
            if pruner:
                self.study.set_user_attr("sweep", sweep)

    def enqueue(self, points: dict[str, Point | None], suggest: Callable[[Trial], Point], *, retry: bool) -> None:
        """Enqueues the points that the study lacks.

        `points` is name to overrides, None where `suggest` is to choose them, whose `UserError` fails only that trial.
        With `retry`, points that failed are enqueued again; and running points too, if the storage has no heartbeats,
        from which Optuna would learn that their workers are dead. Raises `UserError` where a grid would lose a point,
        or a search draws a parameter from other choices than before.
        """
        self.suggest = suggest
        with reachable(), exclusive(self.workdir):
            known = self._points()
            gone = [name for name in known if name not in points]
            if gone and not self.search:
                raise another(self.workdir, f"sweep() no longer has its point {gone[0]}")
            try:
                check_choices(suggest, self.study.get_trials(deepcopy=False))
            except ValueError as error:
                raise another(self.workdir, str(error)) from error
            for name, overrides in points.items():
                attributes = {"name": name, "overrides": overrides}
                if name not in known:
                    self.study.enqueue_trial({}, user_attrs=attributes)
                elif retry and _has_failed(known[name]):
                    self.study.enqueue_trial(known[name].params, user_attrs=attributes)
                elif retry and known[name].state == TrialState.RUNNING and not self.has_heartbeats:
                    self.study.tell(known[name].number, state=TrialState.FAIL)

    def train_next(self, train: Callable[[HeldPoint], Outcome | None], say_end: Callable[[PointStatus], None]) -> bool:
        """Trains a point, while Optuna records heartbeats; returns False if none is waiting.

        `train` returns how the point ended, None to give it back; `say_end` is called with what the study then has.
        Raises `Lost` where another worker has taken the point, `UserError` where the storage is out of reach.
        """
        with ExitStack() as claim:

            def objective(trial: Trial) -> float:
                claim.close()
                held = self._hold(trial)
                outcome = held if isinstance(held, Outcome) else train(held)
                if outcome is None:
                    raise _Fail
                return self._value(trial, outcome)

            def after(study: optuna.Study, trial: FrozenTrial) -> None:
                if _name(trial):
                    say_end(_status(trial))

            try:
                claim.enter_context(exclusive(self.workdir))  # until `objective`, for SQLite cannot lock a trial
                self._enqueue_again()
                if not self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                    return False
                self.study.optimize(objective, n_trials=1, catch=(_Fail,), callbacks=[after])
            except ValueError as error:
                if not str(error).startswith("Cannot tell"):  # Optuna's words for a trial that has ended
                    raise
                raise Lost("a point is lost to another worker") from error
            except STORAGE_ERRORS as error:
                raise unreachable(error) from error
        return True

    def _enqueue_again(self) -> None:
        """Enqueues the points that were given back, or whose workers are dead."""
        fail_stale_trials(self.study)
        retry = RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
        for trial in self._points().values():
            if trial.state == TrialState.FAIL and not _has_failed(trial):
                retry(self.study, copy.deepcopy(trial))

    def _hold(self, trial: Trial) -> HeldPoint | Outcome:
        """Returns the point of a trial, or how it ended where `search(trial)` refuses it."""
        points = self._points()
        name = trial.user_attrs.get("name")
        if name not in points or points[name].number != trial.number:
            trial.set_user_attr("name", None)  # another worker has the point: this trial is of none
            raise _Fail
        overrides = trial.user_attrs["overrides"]
        if overrides is None:
            try:
                overrides = self.suggest(trial)
            except UserError as error:
                if isinstance(error.__cause__, STORAGE_ERRORS):  # the storage may be back in a moment
                    raise _Fail from error
                return Outcome("failed", str(error), {})
            trial.set_user_attr("overrides", overrides)
        attempt = 1 + len(RetryHeartbeatStaleTrialCallback.retry_history(points[name]))
        reported = max(points[name].intermediate_values, default=-1)
        return HeldPoint(name, 1 + [*points].index(name), overrides, attempt, reported, trial)

    def _value(self, trial: Trial, outcome: Outcome) -> float:
        """Records how a point ended; returns its value, or raises what makes Optuna end it."""
        best = outcome.summary.get(f"{OBJECTIVE}_best", math.inf)
        if outcome.state == "done" and self.search and not math.isfinite(best):
            outcome = Outcome("failed", "the run has no finite validation nll", outcome.summary)
        trial.set_user_attr("summary", outcome.summary)
        if outcome.state == "failed":
            trial.set_user_attr("reason", outcome.reason)
            raise _Fail
        if outcome.state == "pruned":
            raise TrialPruned
        return math.inf if math.isnan(best) else best

    def finished(self) -> bool:
        """Returns whether every point is done, pruned or failed."""
        progress = self.progress()
        return progress.ended == progress.points

    def progress(self) -> Progress:
        """Returns how far the points are."""
        points = self.statuses()
        ended = [point for point in points if point.state in ("done", "pruned", "failed")]
        minutes = [point.summary["minutes"] for point in ended if not point.reason and "minutes" in point.summary]
        if not minutes or len(ended) == len(points):
            return Progress(len(ended), len(points), None)
        workers = 1 + sum(point.state == "running" for point in points)  # this one is between two points
        left = (len(points) - len(ended)) * sum(minutes) / len(minutes)
        return Progress(len(ended), len(points), left / workers)

    def statuses(self) -> list[PointStatus]:
        """Returns the status of each point, in the order of enqueueing."""
        with reachable():
            return [_status(trial) for trial in self._points().values()]

    def _points(self) -> dict[str, FrozenTrial]:
        """Returns the trial that counts of each point: the first that has not failed, or else the last."""
        counting: dict[str, FrozenTrial] = {}
        for trial in self.study.get_trials(deepcopy=False):
            name = _name(trial)
            if name and (name not in counting or counting[name].state == TrialState.FAIL):
                counting[name] = trial
        return counting


def _pruner(name: str, config: dict[str, Any]) -> BasePruner:
    """Returns Optuna's pruner of this name, which may stop a trial from its first validation."""
    # How many steps an epoch has is not known here: a hundredth of a trial, which is what Optuna estimates for ASHA.
    # With far fewer a trial would have to win all rungs at once.
    by_epochs = config["eval"]["every_epochs"] > 0
    every = config["steps"] // 100 if by_epochs else config["eval"]["every"]
    least = max(1, min(every, config["steps"]))
    pruners = {
        "asha": SuccessiveHalvingPruner(min_resource="auto" if by_epochs else least),
        "hyperband": HyperbandPruner(min_resource=least, max_resource=config["steps"]),
        "none": NopPruner(),
    }
    return pruners[name]


def _name(trial: FrozenTrial) -> str:
    """Returns the name of a trial's point; "" where it is of none."""
    name = trial.user_attrs.get("name")
    return name if isinstance(name, str) and _NAME.fullmatch(name) else ""


def _has_failed(trial: FrozenTrial) -> bool:
    """Whether a trial failed by itself; one that was given back, or whose worker died, has no reason."""
    return trial.state == TrialState.FAIL and "reason" in trial.user_attrs


def _status(trial: FrozenTrial) -> PointStatus:
    """Returns the status of a trial's point."""
    known = {"overrides": None, "reason": "", "summary": {}, **trial.user_attrs}
    state = "failed" if _has_failed(trial) else _STATES[trial.state]
    if state == "waiting" and RetryHeartbeatStaleTrialCallback.retry_history(trial):
        state = "interrupted"
    nll = trial.intermediate_values
    chosen = known["overrides"] is not None
    return PointStatus(_name(trial), known["overrides"] or {}, state, known["reason"], known["summary"], nll, chosen)
