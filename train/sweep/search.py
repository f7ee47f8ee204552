"""A search with Optuna as a list of points that many workers share; the only file that knows Optuna.

Which trial is whose is settled by the study's storage, so the workers need share nothing else: Optuna lets one worker
alone move a trial from WAITING to RUNNING, and a trial that has ended never changes again. While a worker trains it
changes the trial's attribute "beat". Where others see that unchanged for `silence` seconds, each by its own clock, the
first of them ends the trial as FAIL (the one who was silent learns so from its next beat) and a new trial with the same
parameters, and in "of" the number of the first, is put in the queue; `trial-NNN`, the run's folder, is named after the
first. A trial given back is handled alike. A trial that failed by itself has a "reason".

Two workers may put the same trial in the queue, and several may ask for the last one; so whoever gets a trial looks
whether it counts, which all see alike: the first N first numbers do, and of each the first trial not given up.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Any

from base.errors import UserError
from train.sweep.claims import Renewal, Silence
from train.sweep.expressions import Point
from train.sweep.point import OBJECTIVE, Lost, Outcome, Row, read_records, summary

try:
    import optuna
    from optuna.exceptions import OptunaError, UpdateFinishedTrialError
    from optuna.pruners import BasePruner, HyperbandPruner, NopPruner, SuccessiveHalvingPruner
    from optuna.storages import BaseStorage, JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    from optuna.trial import FrozenTrial, Trial, TrialState
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as error:
    raise UserError("a search needs Optuna; install it with: pip install -e '.[sweep]'") from error

STATES = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
}


def open_study(name: str, url: str | None, folder: Path, config: dict[str, Any], pruner: str) -> optuna.Study:
    """Opens the study `name`, or begins it.

    Args:
      name: of the study, within its storage.
      url: an SQLAlchemy URL; None keeps the study in a journal file in `folder`.
      folder: of the sweep's own files.
      config: the config that the search departs from, as JSON values; `eval.every` and `steps` tell the pruner the
        least and the most updates of a trial.
      pruner: "asha" (successive halving, asynchronous), "hyperband" or "none".

    Raises:
      UserError: the storage cannot be reached, or has a study of that name which searches from another config.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    least, most = config["eval"]["every"], config["steps"]
    pruners: dict[str, Callable[[], BasePruner]] = {
        "asha": lambda: SuccessiveHalvingPruner(min_resource=least),
        "hyperband": lambda: HyperbandPruner(min_resource=least, max_resource=most),
        "none": NopPruner,
    }
    with _reachable():
        study = optuna.create_study(
            study_name=name,
            storage=_open_storage(url, folder),
            direction="minimize",
            load_if_exists=True,
            # Trials that other workers have in hand count as bad ones, so that the next is tried elsewhere.
            sampler=optuna.samplers.TPESampler(constant_liar=True),
            pruner=pruners[pruner](),
        )
        text = json.dumps(config, sort_keys=True)
        if study.user_attrs.setdefault("config", text) != text:
            raise UserError(f"the study {name} in that storage searches from another config; choose another --study")
        study.set_user_attr("config", text)
    return study


class Search:
    """The first N trials of a study, as a list that many workers share."""

    def __init__(
        self, study: optuna.Study, workdir: Path, trials: int, silence: float, suggest: Callable[[Trial], Point]
    ) -> None:
        """Opens the list.

        Args:
          study: from `open_study`.
          workdir: folder of the runs. Workers that share it go on with a lost trial from its checkpoint; others begin
            it again.
          trials: how many.
          silence: seconds without a sign of life after which a worker is taken for dead.
          suggest: the config keys to set in a trial, and their values; raises a `UserError` where they do not go
            together, which fails that trial alone.
        """
        self._study, self._workdir, self._trials, self._suggest = study, workdir, trials, suggest
        self._silence = Silence(silence)

    def finished(self) -> bool:
        """Whether all trials are done, pruned or have failed."""
        with _reachable():
            points = self._points()
        return len(points) == self._trials and all(_ended(trial) for trial in points.values())

    def take(self) -> "HeldTrial | None":
        """Returns a trial that is now this worker's alone; None while others have all that are left."""
        with _reachable():
            for old in self._points().values():
                if old.state == TrialState.RUNNING and self._silence.of(str(old.number), old.user_attrs):
                    _give_up(self._study, old.number)
            points = self._points()
            for first, old in points.items():
                if _given_up(old):
                    self._study.add_trial(_again(first, old))
            queue = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
            if len(points) == self._trials and not queue:
                return None
            trial = self._study.ask()
            first = trial.user_attrs.get("of", trial.number)
            held = HeldTrial(f"trial-{first:03d}", trial, self._workdir, self._silence.seconds)
            counting = self._points().get(first)
            if counting is None or counting.number != trial.number:
                held.release()
                return None
            try:
                held.overrides = self._suggest(trial)
                trial.set_user_attr("overrides", held.overrides)
            except UserError as error:
                held.finish(Outcome("failed", str(error), {}))
                return None
            except UpdateFinishedTrialError:  # so slow that somebody took it for lost
                return None
            return held

    def rows(self) -> list[Row]:
        """What is known of each trial, in order."""
        return rows_of(self._study, self._workdir, self._trials)

    def _points(self) -> dict[int, FrozenTrial]:
        return _points(self._study, self._trials)


class HeldTrial:
    """A trial in the hands of this worker."""

    def __init__(self, name: str, trial: Trial, workdir: Path, silence: float) -> None:
        self.name, self.overrides, self.attempt = name, Point(), trial.user_attrs.get("attempt", 1)
        self._trial, self._run = trial, workdir / name
        self._renewal = Renewal(silence)
        self._beat = 0
        self._reported: set[int] = set()

    def renew(self) -> bool:
        """Keeps hold of it and reports new validations; True where the pruner gives the trial no more updates.

        Raises:
          Lost: it has been given to another worker, or may be soon.
        """
        if not self._renewal.due():
            return False
        pruned = False
        try:
            pruned = self._report()
            self._beat += 1
            self._trial.set_user_attr("beat", self._beat)
            self._renewal.done()
        except UpdateFinishedTrialError as error:
            raise Lost from error
        except (OptunaError, SQLAlchemyError, OSError):
            pass  # the storage may be back in a moment; after too long a moment `due` raises
        return pruned

    def release(self) -> None:
        """Gives it back unfinished."""
        with _reachable():
            _give_up(self._trial.study, self._trial.number)

    def finish(self, outcome: Outcome) -> None:
        """Records how it ended; the value of a trial is its best validation loss.

        Raises:
          Lost: it has been given to another worker.
        """
        state, reason, measures = outcome
        if state == "done" and not math.isfinite(measures.get(f"{OBJECTIVE}_best", math.nan)):
            state, reason = "failed", "the run has no finite validation loss"
        with _reachable():
            try:
                self._report()  # of a run so short that nobody looked: later trials are compared with it
                self._trial.set_user_attr("summary", measures)
                if state == "failed":
                    self._trial.set_user_attr("reason", reason)
                    self._trial.study.tell(self._trial, state=TrialState.FAIL)
                elif state == "pruned":
                    self._trial.study.tell(self._trial, state=TrialState.PRUNED)
                else:
                    self._trial.study.tell(self._trial, measures[f"{OBJECTIVE}_best"])
            except (UpdateFinishedTrialError, ValueError) as error:
                raise Lost from error

    def _report(self) -> bool:
        """Tells the study of validations it has not heard of; True where one of them is too bad to go on."""
        pruned = False
        for record in read_records(self._run):
            if record["kind"] == "valid" and record["step"] not in self._reported:
                self._reported.add(record["step"])
                self._trial.report(record[OBJECTIVE], record["step"])
                pruned = self._trial.should_prune() or pruned
        return pruned


def rows_of(study: optuna.Study, workdir: Path, trials: int) -> list[Row]:
    """What is known of the first `trials` of a study, in order, some of whose runs are in `workdir`."""
    with _reachable():
        points = _points(study, trials)
    rows = []
    for first, trial in points.items():
        name, known = f"trial-{first:03d}", trial.user_attrs
        state = "failed" if "reason" in known else STATES.get(trial.state, "interrupted")
        measures = known["summary"] if "summary" in known else summary(read_records(workdir / name))
        rows.append(Row(name, known.get("overrides", {}), state, known.get("reason", ""), measures))
    return rows


def rehearse(suggest: Callable[[Trial], Point]) -> None:
    """Calls `suggest` once for nothing, so that a mistake in it is found before anything runs; raises what it does."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    suggest(optuna.create_study().ask())


def without_password(url: str | None) -> str | None:
    """What a file may keep of a URL; raises `UserError` where it is none."""
    with _reachable():
        return url and make_url(url).render_as_string(hide_password=True)


def _points(study: optuna.Study, trials: int) -> dict[int, FrozenTrial]:
    """The trials that count, by the number of the first that had their parameters."""
    groups: dict[int, list[FrozenTrial]] = {}
    for trial in study.get_trials(deepcopy=False):
        groups.setdefault(trial.user_attrs.get("of", trial.number), []).append(trial)
    return {
        first: next((trial for trial in groups[first] if not _given_up(trial)), groups[first][-1])
        for first in sorted(groups)[:trials]
    }


class _Journal(JournalFileBackend):
    """A journal that outlives a writer killed, or a disk filled, in the middle of a line: the half line is dropped."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._lock.acquire()
        try:
            with Path(self._file_path).open("rb+") as file:
                if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read())[1] != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
        finally:
            self._lock.release()
        super().append_logs(logs)


def _open_storage(url: str | None, folder: Path) -> BaseStorage:
    if url is None:
        path = str((folder / "journal.jsonl").absolute())
        return JournalStorage(_Journal(path, JournalFileOpenLock(path)))
    for attempt in range(5):
        try:
            return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
        except SQLAlchemyError:
            if attempt == 4:
                raise
            sleep(1)  # workers that start together make the tables of a new database together: one of them can
    raise AssertionError


def _again(first: int, trial: FrozenTrial) -> FrozenTrial:
    return optuna.create_trial(
        state=TrialState.WAITING,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={"of": first, "attempt": trial.user_attrs.get("attempt", 1) + 1},
    )


def _give_up(study: optuna.Study, number: int) -> None:
    with suppress(UpdateFinishedTrialError, ValueError):  # another worker was first
        study.tell(number, state=TrialState.FAIL)


def _given_up(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and "reason" not in trial.user_attrs


def _ended(trial: FrozenTrial) -> bool:
    return trial.state.is_finished() and not _given_up(trial)


@contextmanager
def _reachable() -> Iterator[None]:
    """What a storage says when it cannot be used, in one line."""
    try:
        yield
    except (OptunaError, SQLAlchemyError, ImportError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()
        raise UserError(f"--storage: {reason[0] if reason else type(error).__name__}") from error
