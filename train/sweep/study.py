"""The points of a sweep as trials of an Optuna study, which any number of workers share.

A point is a trial, enqueued with its "name" as a user attribute; one of a grid has its "overrides" from the start, one
of a search gets them from `search(trial)` when it begins. The worker that moves a trial from WAITING to RUNNING trains
it and records Optuna's heartbeats. When those stop for the grace period, another worker ends the trial as FAIL and
enqueues it again under its name, which is that of the run's folder. A point given back is handled alike; a trial that
failed by itself has a "reason". Optuna never changes a trial that has ended, so each point ends once. Two workers may
enqueue a point at the same moment: the first trial not abandoned counts, and whoever gets another drops it.

Heartbeats come from the loop that watches the run: `Study.optimize` records them in a thread, beside which forking the
run is unsafe, and which ends when the database is away for a moment.
"""

import copy
import json
import math
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, check_distribution_compatibility
from optuna.exceptions import ExperimentalWarning, OptunaError, StorageInternalError, UpdateFinishedTrialError
from optuna.pruners import HyperbandPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import NullPool, event, make_url
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from base.checked_json import WIDEST, is_text
from base.errors import UserError
from base.files import write_json
from run.records import read_metrics
from train.sweep.expressions import Point
from train.sweep.plan import another, whole_config
from train.sweep.point import OBJECTIVE, Lost, Outcome, PointStatus, Summary, summary

_NAME = re.compile(r"[\w,=+-][\w.,=+-]*", re.ASCII)  # of a point, and of its folder; `expressions.name_of`
TAKEN = "lost to another worker"
_TRIES = 10  # trials that `try_out` draws at most
_STATES = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "interrupted",
    TrialState.WAITING: "waiting",
}


class Progress(NamedTuple):
    """How many points have ended, of how many, and the minutes left; None if nothing is, or none has been measured.

    The minutes are those of training, as if each point that is left took the mean of those done or pruned.
    """

    ended: int
    points: int
    minutes_left: float | None


class Study:
    """An Optuna study whose trials are the points of a sweep."""

    def __init__(self, workdir: Path, plan: dict, url: str | None, silence: int, pruner: str | None = None) -> None:
        """Opens the study of a plan (see `train.sweep.plan`), or with a `pruner` creates it.

        `url` is the storage's SQLAlchemy URL, None for `sweep/study.db` in the folder; `silence` is the grace period:
        seconds without a heartbeat after which a worker counts as dead. Raises `UserError` where the storage cannot be
        used, or its study of that name is absent or of another sweep.
        """
        self.workdir = workdir
        self.search = plan["kind"] == "search"
        self.silence = silence
        name = plan["study"]
        config = whole_config(plan)
        text = json.dumps([plan["kind"], config], sort_keys=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with reachable():
            self.storage = _connect(url, workdir, silence)
            if pruner is None:
                self.study = optuna.load_study(study_name=name, storage=self.storage)
                if self._noted(text) != text:
                    raise UserError(f"{workdir}/sweep/plan.json: damaged: the study {name} is of another sweep")
            else:
                self._create(name, config, pruner)
                if self._noted(text) != text:
                    raise UserError(f"the study {name} in that storage is of another sweep; choose another --study")
                if "sweep" not in self.study.user_attrs:
                    self.study.set_user_attr("sweep", text)
            self._id = self.storage.get_study_id_from_name(name)

    def _noted(self, default: str) -> str:
        """Returns which sweep the study is noted to be of; `default` if nobody has noted it yet.

        The worker that did may be older than some keys of the config: these have their defaults.
        """
        noted = self.study.user_attrs.get("sweep")
        if noted is None:
            return default
        try:
            kind, config = json.loads(noted)
            return json.dumps([kind, whole_config({"config": config})], sort_keys=True)
        except (AttributeError, TypeError, ValueError):  # not a worker's
            return ""

    def _create(self, name: str, config: dict[str, Any], pruner: str) -> None:
        """Creates the study, or opens it where another worker has created it."""
        if self.storage.engine.dialect.name == "sqlite":
            # Optuna reads a trial's state before it writes it and relies on SELECT ... FOR UPDATE: SQLite has none.
            event.listen(self.storage.engine, "begin", lambda link: link.exec_driver_sql("BEGIN IMMEDIATE"))
        # Updates of a trial before its first validation. How many an epoch has is not known here: a hundredth of a
        # trial, which is what Optuna estimates for ASHA. With far fewer a trial would have to win all rungs at once.
        by_epochs = config["eval"]["every_epochs"] > 0
        every = config["steps"] // 100 if by_epochs else config["eval"]["every"]
        least = max(1, min(every, config["steps"]))
        pruners = {
            "asha": _Asha(min_resource="auto" if by_epochs else least),
            "hyperband": _Hyperband(min_resource=least, max_resource=config["steps"]),
            "none": NopPruner(),
        }
        self.study = optuna.create_study(
            study_name=name,
            storage=self.storage,
            # Trials that other workers are training count as bad ones, so that the next is tried elsewhere.
            sampler=optuna.samplers.TPESampler(constant_liar=True),
            pruner=pruners[pruner if self.search else "none"],
            load_if_exists=True,
        )

    def enqueue(self, points: dict[str, Point | None], suggest: Callable[[Trial], Point], *, retry: bool) -> None:
        """Makes these points this worker's task, and enqueues those that the study does not have.

        `points` is name to overrides, None where `suggest` is to choose them, whose `UserError` fails that trial alone.
        With `retry`, points that failed are enqueued once more. Raises `UserError` where a grid would lose a point,
        or a search draws a parameter from other choices than before.
        """
        self.points = points
        self.suggest = suggest
        with reachable():
            known = self._counting()
            gone = [name for name in known if name not in points]
            if gone and not self.search:
                raise another(self.workdir, f"its point {gone[0]} is not among those of sweep()")
            self._check_distributions(suggest)
            for name, overrides in points.items():
                attributes: dict[str, Any] = {"name": name, "overrides": overrides, "replaces": None}
                if name not in known:
                    self.study.enqueue_trial({}, user_attrs=attributes)
                elif retry and "reason" in known[name].user_attrs:
                    attributes["replaces"] = known[name].number
                    self.study.enqueue_trial(known[name].params, user_attrs=attributes)

    def _check_distributions(self, suggest: Callable[[Trial], Point]) -> None:
        """Raises `UserError` where `suggest` draws a parameter in a way that Optuna would refuse beside earlier trials.

        One trial of each set of parameters is drawn again, since some parameters may depend on the values of others.
        """
        known: dict[str, BaseDistribution] = {}
        examples: dict[frozenset[str], FrozenTrial] = {}
        for trial in self.study.get_trials(deepcopy=False):
            known = trial.distributions | known
            if trial.params:
                examples[frozenset(trial.params)] = trial
        for example in examples.values():
            trial_now = optuna.create_study(sampler=_Again(example)).ask()
            with suppress(UserError):  # values that do not fit together
                suggest(trial_now)
            for name, now in trial_now.distributions.items():
                before = known.get(name, now)
                try:
                    check_distribution_compatibility(before, now)
                except ValueError as error:
                    difference = f"{name} is {_drawn(before)} there and {_drawn(now)} here"
                    raise another(self.workdir, difference) from error

    def finished(self) -> bool:
        """Returns whether every point is done, pruned or failed."""
        progress = self.progress()
        return progress.ended == progress.points

    def progress(self) -> Progress:
        """Returns how far this worker's points are."""
        with reachable():
            known = self._counting()
            trials = [known[name] for name in self.points]
        ended = [trial for trial in trials if trial.state.is_finished() and not _abandoned(trial)]
        measures = [_record(trial)[2] for trial in ended if trial.state != TrialState.FAIL]
        minutes = [measured["minutes"] for measured in measures if "minutes" in measured]
        if not minutes or len(ended) == len(trials):
            return Progress(len(ended), len(trials), None)
        states = [trial.state for trial in trials]
        workers = 1 + states.count(TrialState.RUNNING)  # this one is between two points
        left = (len(trials) - len(ended)) * sum(minutes) / len(minutes)
        return Progress(len(ended), len(trials), left / workers)

    def take(self) -> "HeldPoint | None":
        """Returns a point that only this worker holds; None while others hold all that are left."""
        with reachable():
            fail_stale_trials(self.study)
            retry = RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
            for trial in filter(_abandoned, self._counting().values()):
                retry(self.study, copy.deepcopy(trial))
            for trial in self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                if trial.user_attrs.get("name") in self.points:
                    held = self._claim(trial)
                    if held is not None:
                        return held
        return None

    def _claim(self, trial: FrozenTrial) -> "HeldPoint | None":
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)
        self.storage.record_heartbeat(trial_id)  # first: a RUNNING trial without a heartbeat never becomes stale
        with suppress(UpdateFinishedTrialError, Lost):  # so slow that it became stale
            if self.storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                held = HeldPoint(self, trial, trial_id)
                if self._counting()[held.name].number != trial.number:
                    held.release()
                elif trial.user_attrs.get("overrides") is not None or held.choose():
                    return held
        return None

    def statuses(self) -> list[PointStatus]:
        """Returns what is known of each point, in the order of enqueueing; `UserError` where the study is damaged."""
        with reachable():
            # Private, for the public `fail_stale_trials` also ends them: whoever only looks at a sweep, perhaps with a
            # shorter --silence than its workers, must not take their points away.
            stale = self.storage._get_stale_trial_ids(self._id)
            silent = {self.storage.get_trial(trial_id).number for trial_id in stale}
            trials = self._counting()
        statuses: list[PointStatus] = []
        for name, trial in trials.items():
            overrides, reason, measures = _record(trial)
            state = _STATES[trial.state]
            if trial.number in silent:
                state = "interrupted"
            if reason:
                state = "failed"
            chosen = trial.user_attrs.get("overrides") is not None
            statuses.append(PointStatus(name, overrides, state, reason, measures, trial.intermediate_values, chosen))
        return statuses

    def importances(self) -> dict[str, float]:
        """Returns how much of the differences in nll Optuna ascribes to each parameter of a search; {} if it cannot."""
        with reachable():
            done = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            if len({trial.value for trial in done}) < 2:
                return {}
            return optuna.importance.get_param_importances(self.study)

    def _counting(self) -> dict[str, FrozenTrial]:
        """Returns the trial that counts of each point."""
        trials = self.study.get_trials(deepcopy=False)
        trials_of: dict[str, list[FrozenTrial]] = {}
        superseded = _superseded(trials)
        for trial in trials:
            name = trial.user_attrs.get("name")
            if isinstance(name, str) and _NAME.fullmatch(name):
                trials_of.setdefault(name, []).append(trial)
        counting: dict[str, FrozenTrial] = {}
        for name, candidates in trials_of.items():
            valid = [trial for trial in candidates if trial.number not in superseded]
            counting[name] = valid[0] if valid else candidates[-1]
        return counting


class _Again(RandomSampler):
    """Draws the values of an earlier trial, and others where their distributions have changed."""

    def __init__(self, example: FrozenTrial) -> None:
        super().__init__()
        self._example = example

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if self._example.distributions.get(param_name) == param_distribution:
            return self._example.params[param_name]
        return super().sample_independent(study, trial, param_name, param_distribution)


class _Asha(SuccessiveHalvingPruner):
    """Compares a point with each other point once, also where a trial was given back or tried again."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        return super().prune(cast(optuna.Study, _NotSuperseded(study)), trial)


class _Hyperband(HyperbandPruner):
    """As `_Asha`; a copy stays in the bracket of the first trial, in which it has completed rungs."""

    _left_out: frozenset[int] = frozenset()

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        self._left_out = frozenset(_superseded(study.get_trials(deepcopy=False)))
        return super().prune(study, trial)

    def _get_bracket_id(self, study: optuna.Study, trial: FrozenTrial) -> int:
        if trial.number in self._left_out:
            return -1  # of no bracket
        first = copy.copy(trial)
        first.number = trial.system_attrs.get("failed_trial", trial.number)  # as Optuna notes it in a copy
        return super()._get_bracket_id(study, first)


class _NotSuperseded:
    """A study without the trials that others have replaced."""

    def __init__(self, study: optuna.Study) -> None:
        self._whole = study

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def get_trials(self, **arguments: Any) -> list[FrozenTrial]:
        trials = self._whole.get_trials(**arguments)
        superseded = _superseded(trials)
        return [trial for trial in trials if trial.number not in superseded]


class HeldPoint:
    """A point that this worker trains."""

    def __init__(self, study: Study, waiting: FrozenTrial, trial_id: int) -> None:
        """`waiting` is the trial as it was enqueued, `trial_id` its number in the storage."""
        self._study = study
        self._id = trial_id
        self._trial = Trial(study.study, trial_id)
        self.name: str = waiting.user_attrs["name"]
        self.overrides: Point = _record(waiting)[0]
        self.attempt = 1 + len(RetryHeartbeatStaleTrialCallback.retry_history(waiting))
        self._reported = set(waiting.intermediate_values)
        self._pruned = False
        self._last = monotonic()

    def choose(self) -> bool:
        """Lets `search(trial)` choose the overrides; returns False where that failed.

        The point has then failed, too, or is given back where it was the storage that failed.
        """
        try:
            self.overrides = self._study.suggest(self._trial)
        except UserError as error:
            cause = error.__cause__
            if isinstance(cause, StorageInternalError):
                cause = cause.__cause__
            if isinstance(cause, OperationalError | InterfaceError):  # the storage may be back in a moment
                self.release()
                return False
            self.finish(Outcome("failed", str(error), {}))
            return False
        self._trial.set_user_attr("overrides", self.overrides)
        return True

    def heartbeat(self) -> bool:
        """Records a heartbeat and new validations when it is time to; returns whether the pruner stops the point.

        Raises `Lost` where another worker has the point or may have it soon, `UserError` where the metrics are damaged.
        """
        since = monotonic() - self._last
        if since > self._study.silence / 2:
            raise Lost(f"without a heartbeat for {since:.0f} s, so that another worker may take it")
        if since <= self._study.silence / 6:
            return False
        records = read_metrics(self._study.workdir / self.name)
        try:
            self._trial.set_user_attr("summary", summary(records))
            self._report(records)
            self._study.storage.record_heartbeat(self._id)
            self._last = monotonic()
        except UpdateFinishedTrialError as error:
            raise Lost(TAKEN) from error
        except (OptunaError, SQLAlchemyError):
            pass  # the storage may be back in a moment; if not, `Lost` follows
        return self._pruned

    def release(self) -> None:
        """Gives the point back unfinished; does nothing where it is lost."""
        with reachable(), suppress(UpdateFinishedTrialError, ValueError):
            self._study.study.tell(self._trial, state=TrialState.FAIL)

    def finish(self, outcome: Outcome) -> Outcome:
        """Records how the point ended, in the study and in `sweep/results`; returns what was recorded.

        Raises `Lost` where another worker has the point.
        """
        best = outcome.summary.get(f"{OBJECTIVE}_best", math.inf)
        if outcome.state == "done" and self._study.search and not math.isfinite(best):
            outcome = Outcome("failed", "the run has no finite validation nll", outcome.summary)
        workdir = self._study.workdir
        tell = self._study.study.tell
        with reachable():
            try:
                self._trial.set_user_attr("summary", outcome.summary)
                if outcome.state == "failed":
                    self._trial.set_user_attr("reason", outcome.reason)
                else:  # a run may be too short for a heartbeat, but later ones are compared with it
                    self._report(read_metrics(workdir / self.name))
                write_json(workdir / "sweep" / "results" / f"{self.name}.json", outcome._asdict())
                if outcome.state == "done":
                    tell(self._trial, math.inf if math.isnan(best) else best)
                elif outcome.state == "failed":
                    tell(self._trial, state=TrialState.FAIL)
                else:
                    tell(self._trial, state=TrialState.PRUNED)
            except (UpdateFinishedTrialError, ValueError) as error:
                raise Lost(TAKEN) from error
        return outcome

    def _report(self, records: list[dict[str, Any]]) -> None:
        """Reports validations, and notes if one that is new is too bad to go on."""
        for record in records:
            if record["kind"] == "valid" and record["step"] not in self._reported:
                self._trial.report(record[OBJECTIVE], record["step"])
                self._reported.add(record["step"])  # only now, for the storage may be away
                self._pruned = self._trial.should_prune() or self._pruned  # at once: Optuna says so only once


@contextmanager
def reachable() -> Iterator[None]:
    """Turns what a storage raises when it cannot be used into a `UserError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # Optuna's heartbeats
            yield
    except KeyError as error:
        raise UserError("--storage: it does not have this study") from error
    except (TypeError, AttributeError) as error:  # of attributes that no worker has written
        raise UserError(f"--storage: the study is damaged ({error})") from error
    except (OptunaError, SQLAlchemyError, ImportError, RuntimeError, ValueError) as error:
        # Optuna wraps SQLAlchemy's error, which wraps that of the database: its first line says most.
        innermost = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
        lines = str(innermost).strip().splitlines()
        raise UserError(f"--storage: {lines[0] if lines else type(error).__name__}") from error


def without_password(url: str | None) -> str | None:
    """Returns the URL with its password masked; raises `UserError` where it is none."""
    with reachable():
        if not url:
            return url
        return make_url(url).render_as_string(hide_password=True)


def try_out(suggest: Callable[[Trial], Point]) -> None:
    """Calls `suggest` for nothing, so that a mistake in it is found before anything runs.

    Values that do not fit together fail one trial alone: it is a mistake if all of several trials are refused.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    for _ in range(_TRIES - 1):
        with suppress(UserError):
            suggest(study.ask())
            return
    suggest(study.ask())


def _drawn(distribution: BaseDistribution) -> str:
    """Returns in words what a parameter is drawn from."""
    if isinstance(distribution, CategoricalDistribution):
        return f"one of {distribution.choices}"
    return f"drawn from {distribution}"


def _connect(url: str | None, workdir: Path, silence: int) -> RDBStorage:
    own = workdir / "sweep" / "study.db"
    if url is None and (own.is_symlink() or own.parent.is_symlink()):
        raise UserError(f"{own}: a link to elsewhere; give the database that you mean as --storage=URL")
    is_sqlite = url is None or make_url(url).get_backend_name() == "sqlite"
    file = own if url is None else make_url(url).database
    engine: dict[str, Any] = {"pool_pre_ping": True}
    if is_sqlite:
        engine = {
            "poolclass": NullPool,
            "creator": lambda: sqlite3.connect(file or "", timeout=60, isolation_level=None),
        }
    for attempt in range(5):
        try:
            return RDBStorage(url or "sqlite://", engine, heartbeat_interval=max(1, silence // 6), grace_period=silence)
        except SQLAlchemyError:
            if attempt == 4:
                raise
            sleep(1)  # workers that start together create the tables together: one of them succeeds
    raise AssertionError


def _record(trial: FrozenTrial) -> tuple[Point, str, Summary]:
    """Returns the overrides, the reason of failure and the measures of a point; `UserError` where one is none."""
    known = {"overrides": None, "reason": "", "summary": {}, **trial.user_attrs}
    overrides = known["overrides"] or {}
    reason = known["reason"]
    measures = known["summary"]
    if not (_is_point(overrides) and isinstance(reason, str) and _is_summary(measures)):
        raise UserError(f"--storage: the study is damaged: trial {trial.number} is not the record of a point")
    return overrides, reason, measures


def _is_point(overrides: Any) -> bool:
    if not isinstance(overrides, dict):
        return False
    return all(map(_is_value, overrides.values())) and isinstance(overrides.get("steps", 1), int)


def _is_summary(measures: Any) -> bool:
    return isinstance(measures, dict) and all(map(_is_number, measures.values()))


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < WIDEST)


def _is_value(value: Any) -> bool:
    """Whether a key of a config may have this value."""
    if isinstance(value, list | tuple):
        return all(map(_is_number, value))
    return value is None or isinstance(value, bool) or _is_number(value) or (isinstance(value, str) and is_text(value))


def _superseded(trials: list[FrozenTrial]) -> set[int]:
    """Returns the numbers of the trials that were given back, or have failed and are tried again."""
    numbers = {trial.number for trial in trials if _abandoned(trial)}
    for trial in trials:
        replaced = trial.user_attrs.get("replaces")
        if isinstance(replaced, int):
            numbers.add(replaced)
    return numbers


def _abandoned(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and "reason" not in trial.user_attrs
