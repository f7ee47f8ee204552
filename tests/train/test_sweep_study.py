"""Points as trials of a study: how many there are, who has which, and what becomes of those that a worker left."""

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError

from tests.extras import needed
from vaswani.errors import UserError
from vaswani.train.sweep import command as sweep_command
from vaswani.train.sweep import storage
from vaswani.train.sweep.plan import open_plan
from vaswani.train.sweep.point import Outcome, PointStatus
from vaswani.train.sweep.ranking import as_run
from vaswani.train.sweep.space import try_out
from vaswani.train.sweep.storage import without_password
from vaswani.train.sweep.study import HeldPoint, Lost, Progress, Study
from vaswani.train.sweep.table import table_of_points
from vaswani.train.sweep.worker import Stop, Watch

ROOT = Path(__file__).parent.parent.parent
PLAN = {
    "kind": "search",
    "config": {"steps": 16, "eval": {"every": 1, "every_epochs": 0}, "optim": {"lr": 1.0}},
    "storage": None,
    "study": "s",
}
DONE = Outcome("done", "", {"nll": 3.0, "nll_best": 2.5})
AWAY = OperationalError("UPDATE", {}, Exception("database is locked"))


def suggest(trial: Any) -> dict[str, Any]:
    return {"optim.lr": trial.suggest_float("lr", 0.1, 10.0, log=True)}


@pytest.fixture
def worker(tmp_path: Path) -> Callable[..., Study]:
    """Opens the search as one more process would."""

    def opened(trials: int = 3, pruner: str = "none", suggest: Any = suggest, url: str | None = None) -> Study:
        open_plan(tmp_path, PLAN)
        study = Study(tmp_path, PLAN, url, 60, pruner)
        study.enqueue({f"trial-{number:03d}": None for number in range(trials)}, suggest, retry=False)
        return study

    return opened


def train(study: Study, how: Outcome | Callable[[HeldPoint], Outcome | None] | None = DONE) -> list[str]:
    """Trains the next point, if one is waiting, to this outcome; returns its name and what became of it."""
    ends: list[PointStatus] = []
    study.train_next(lambda point: how(point) if callable(how) else how, ends.append)
    return [word for end in ends for word in (end.name, end.state)]


def silence(study: Study) -> None:
    """Makes all heartbeats older than the grace period."""
    database = sqlite3.connect(study.workdir / "sweep" / "study.db")
    with database:
        database.execute("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-61 seconds')")
    database.close()


def write_valid(folder: Path, *losses: float) -> None:
    folder.mkdir(exist_ok=True)
    record = {"kind": "valid", "loss": 9.0, "perplexity": 2.0}
    lines = [json.dumps({"step": step, "nll": loss, **record}) + "\n" for step, loss in enumerate(losses, 1)]
    (folder / "metrics.jsonl").write_text("".join(lines))


class NoStop(Stop):
    """No signal comes, and none is waited for."""

    def __init__(self) -> None:
        self.received = None


def watching(study: Study, point: HeldPoint, *losses: float) -> Watch:
    """Returns what watches the run of a point that has validated these."""
    write_valid(study.workdir / point.name, *losses)

    return Watch(point, study.workdir / point.name, NoStop(), 0.0)


@pytest.mark.slow
def test_trials_are_as_many_as_are_asked_for_however_many_workers(worker: Callable[..., Study]) -> None:
    first, second = worker(), worker()
    values = []

    def beside(point: HeldPoint) -> Outcome:
        values.append(point.overrides)
        assert [point.state for point in second.statuses()] == ["running", "waiting", "waiting"]
        assert train(second, Outcome("pruned", "", {})) == ["trial-001", "pruned"]
        assert not second.finished()
        return DONE

    assert train(first, beside) == ["trial-000", "done"]
    assert train(first, Outcome("failed", "step 3: the loss is nan", {})) == ["trial-002", "failed"]
    assert first.finished() and second.finished()
    assert train(first) == []
    points = second.statuses()
    assert [(point.state, point.reason) for point in points] == [
        ("done", ""),
        ("pruned", ""),
        ("failed", "step 3: the loss is nan"),
    ]
    assert points[0].summary == DONE.summary
    assert points[0].overrides == values[0] != points[1].overrides
    assert train(worker(trials=4)) == ["trial-003", "done"]


RACER = """
import sys, time
from pathlib import Path
from vaswani.train.sweep.point import Outcome
from vaswani.train.sweep.study import Study
folder = Path(sys.argv[1])
config = {"steps": 1, "eval": {"every": 1, "every_epochs": 0}}
study = Study(folder, {"kind": "grid", "config": config, "study": "s"}, None, 60, "none")
study.enqueue({str(number): {} for number in range(16)}, lambda trial: {}, retry=False)
(folder / "ready" / sys.argv[2]).touch()
while len(list((folder / "ready").iterdir())) < 4:
    time.sleep(0.01)
while study.train_next(lambda point: print(point.name) or Outcome("done", "", {}), lambda end: None):
    pass
"""


@pytest.mark.slow
def test_of_four_processes_racing_for_points_one_gets_each(tmp_path: Path) -> None:
    (tmp_path / "ready").mkdir()
    (tmp_path / "sweep").mkdir()
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [subprocess.Popen([*command, str(i)], cwd=ROOT, stdout=subprocess.PIPE, text=True) for i in range(4)]
    begun = [name for racer in racers for name in racer.communicate()[0].split()]
    assert [racer.returncode for racer in racers] == [0] * 4
    assert sorted(begun, key=int) == [str(number) for number in range(16)]


def test_a_point_enqueued_twice_is_trained_once(worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # neither sees what the other enqueues
        patch.setattr(Study, "_points", lambda self: {})
        here, there = worker(trials=1), worker(trials=1)

    def beside(point: HeldPoint) -> Outcome:
        assert train(there) == []
        return DONE

    assert train(here, beside) == ["trial-000", "done"]
    assert train(there) == []
    assert here.finished()
    assert [(point.name, point.state) for point in there.statuses()] == [("trial-000", "done")]


def test_a_point_given_back_is_trained_by_another_worker_with_its_values(worker: Callable[..., Study]) -> None:
    here, there = worker(trials=1), worker(trials=1)
    points = []

    def validated(point: HeldPoint, *losses: float) -> None:
        points.append(point)
        watching(there, point, *losses).report()

    assert train(here, lambda point: validated(point, 3.0, 2.0)) == ["trial-000", "interrupted"]
    assert [(point.state, point.nll) for point in there.statuses()] == [("interrupted", {1: 3.0, 2: 2.0})]
    assert not there.finished()
    assert train(there, lambda point: validated(point, 9.0, 9.0, 1.5) or DONE) == ["trial-000", "done"]
    assert here.statuses()[0].nll == {1: 3.0, 2: 2.0, 3: 1.5}, "each validation is reported once"
    first, again = points
    assert (first.attempt, again.attempt, again.reported) == (1, 2, 2)
    assert first.overrides == again.overrides == here.statuses()[0].overrides


def test_a_silent_worker_loses_its_point_and_finds_out(worker: Callable[..., Study]) -> None:
    slow, living = worker(trials=1), worker(trials=1)

    def silent(point: HeldPoint) -> Outcome:
        assert train(living) == [], "its heart beats"
        silence(slow)
        assert train(living) == ["trial-000", "done"]
        watching(slow, point, 9.0)()  # raises
        raise AssertionError

    with pytest.raises(Lost, match=r"^a point is lost to another worker$"):
        train(slow, silent)
    assert [trial.state for trial in slow.study.trials] == [TrialState.FAIL, TrialState.COMPLETE]
    assert [(point.name, point.state) for point in slow.statuses()] == [("trial-000", "done")]


def test_a_worker_killed_as_it_gives_a_point_back_does_not_lose_it(worker: Callable[..., Study]) -> None:
    here, there = worker(trials=1), worker(trials=1)
    with pytest.raises(KeyboardInterrupt):  # as if it were killed before it enqueues the point again
        train(here, lambda point: (_ for _ in ()).throw(KeyboardInterrupt))
    assert here.statuses()[0].state == "interrupted" and not there.finished()
    assert train(there) == ["trial-000", "done"]


def test_a_mistake_in_our_own_code_is_not_blamed_on_the_storage(worker: Callable[..., Study]) -> None:
    for error in (ValueError("of ours"), KeyError("x")):
        with pytest.raises(type(error), match=str(error)):
            train(worker(trials=1), lambda point, error=error: (_ for _ in ()).throw(error))


def test_a_validation_is_reported_once_the_storage_is_back(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = worker(trials=1)

    def unlucky(point: HeldPoint) -> Outcome:
        watch = watching(here, point, 3.0)
        for method in ("set_trial_user_attr", "set_trial_intermediate_value"):
            with monkeypatch.context() as patch:
                patch.setattr(RDBStorage, method, lambda *_, **__: (_ for _ in ()).throw(AWAY))
                assert not watch()
        assert here.statuses()[0].nll == {}
        watch()
        assert here.statuses()[0].nll == {1: 3.0}
        return DONE

    assert train(here, unlucky) == ["trial-000", "done"]


def test_a_heart_that_stops_is_one_line_and_the_point_is_trained(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", sweep_command._say_heart_stopped)
    monkeypatch.setattr(RDBStorage, "record_heartbeat", lambda *_: (_ for _ in ()).throw(AWAY))
    assert train(worker(trials=1)) == ["trial-000", "done"]
    reason = "--storage: database is locked"
    assert capfd.readouterr().err == f"note: no more heartbeats ({reason}): another worker may take this point over\n"


def test_that_the_pruner_stops_a_point_is_not_forgotten_when_the_storage_is_away(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = worker(pruner="asha")
    report = RDBStorage.set_trial_intermediate_value

    def unlucky(storage: RDBStorage, trial_id: int, step: int, value: float) -> None:
        if step == 2:
            raise AWAY
        report(storage, trial_id, step, value)

    def worse(point: HeldPoint) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr(RDBStorage, "set_trial_intermediate_value", unlucky)
            assert watching(here, point, 5.0, 5.0)()
        return Outcome("pruned", "", {})

    assert train(here, lambda point: DONE if not watching(here, point, 1.0)() else None) == ["trial-000", "done"]
    assert train(here, worse) == ["trial-001", "pruned"]


def test_a_trial_whose_keys_do_not_fit_together_fails_alone(worker: Callable[..., Study]) -> None:
    def picky(trial: Any) -> dict[str, Any]:
        if trial.number == 0:
            raise UserError("config: model.h is odd")
        return suggest(trial)

    here = worker(trials=2, suggest=picky)
    assert train(here) == ["trial-000", "failed"]
    assert train(here) == ["trial-001", "done"]
    assert here.statuses()[0].reason == "config: model.h is odd"


def test_a_trial_whose_keys_the_storage_could_not_keep_is_given_back(worker: Callable[..., Study]) -> None:
    calls = []

    def unlucky(trial: Any) -> dict[str, Any]:
        calls.append(trial.number)
        if len(calls) == 1:
            away = StorageInternalError("an error of the database")  # as Optuna says it, and `Sweep`
            away.__cause__ = AWAY
            raise UserError("search(): the database is locked") from away
        return suggest(trial)

    here = worker(trials=1, suggest=unlucky)
    assert train(here) == ["trial-000", "interrupted"]
    assert train(here) == ["trial-000", "done"]


def test_a_trial_that_failed_is_tried_again_with_its_values(worker: Callable[..., Study]) -> None:
    here = worker(trials=1)
    values = []
    train(here, lambda point: values.append(point.overrides) or Outcome("failed", "killed by SIGKILL", {"step": 3}))
    assert here.finished()
    for _ in range(2):  # the second finds nothing that failed
        here.enqueue({"trial-000": None}, suggest, retry=True)
    assert [point.state for point in here.statuses()] == ["waiting"]
    assert train(here, lambda point: values.append(point.overrides) or DONE) == ["trial-000", "done"]
    assert train(here) == []
    assert values[0] == values[1]
    assert [(point.state, point.reason) for point in here.statuses()] == [("done", "")]


def test_the_time_left_is_shared_by_the_workers(worker: Callable[..., Study]) -> None:
    here, there = worker(trials=5), worker(trials=5)
    assert here.progress() == Progress(0, 5, None)
    for state, minutes in (("done", 6.0), ("pruned", 2.0), ("failed", 100.0)):
        train(here, Outcome(state, "killed" if state == "failed" else "", {**DONE.summary, "minutes": minutes}))
    assert here.progress() == Progress(3, 5, 2 * 4.0)
    progress = []
    train(there, lambda point: progress.append(here.progress()))
    assert progress == [Progress(3, 5, 2 * 4.0 / 2)]
    assert here.progress() == Progress(3, 5, 2 * 4.0)
    for _ in range(2):
        train(here)
    assert here.progress() == Progress(5, 5, None)


@pytest.mark.slow
@pytest.mark.parametrize("pruner", ["asha", "hyperband"])
def test_a_trial_that_is_worse_than_others_is_stopped(worker: Callable[..., Study], pruner: str) -> None:
    here = worker(trials=8, pruner=pruner)
    stopped: list[bool] = []

    def worse(point: HeldPoint) -> Outcome:
        nll = 1.0 + len(stopped)
        stopped.append(watching(here, point, 1.0 + nll, nll)())
        return Outcome("pruned" if stopped[-1] else "done", "", {"nll_best": nll})

    for _ in range(8):
        train(here, worse)
    assert not stopped[0]
    assert any(stopped)
    assert here.study.trials[0].intermediate_values == {1: 2.0, 2: 1.0}
    assert here.study.trials[0].value == 1.0


@pytest.mark.parametrize("measures", [{}, {"nll_best": float("nan")}])
def test_a_search_needs_a_validation_loss_and_a_grid_does_not(
    worker: Callable[..., Study], measures: dict, tmp_path: Path
) -> None:
    here = worker(trials=1)
    assert train(here, Outcome("done", "", measures)) == ["trial-000", "failed"]
    assert here.statuses()[0].reason == "the run has no finite validation nll"
    grid = Study(tmp_path, {**PLAN, "kind": "grid", "study": "another"}, None, 60, "asha")
    grid.enqueue({"base": {}}, suggest, retry=False)
    assert train(grid, Outcome("done", "", measures)) == ["base", "done"]


@pytest.mark.parametrize(
    ("steps", "every", "every_epochs", "least", "least_of_hyperband"),
    [
        (16, 4, 0, 4, 4),
        (16, 1_500, 0, 16, 16),  # no trial has more
        (16, 0, 0, 1, 1),
        (16, 1_500, 1, "auto", 1),  # of validations by epochs it is estimated
        (9_200, 1_500, 1, "auto", 92),
    ],
)
def test_trials_may_be_pruned_from_their_first_validation(
    steps: int, every: int, every_epochs: int, least: int | str, least_of_hyperband: int, tmp_path: Path
) -> None:
    (tmp_path / "sweep").mkdir()
    config = {"steps": steps, "eval": {"every": every, "every_epochs": every_epochs}}
    asha = Study(tmp_path, {**PLAN, "config": config}, None, 60, "asha").study.pruner
    hyperband = Study(tmp_path, {**PLAN, "config": config, "study": "t"}, None, 60, "hyperband").study.pruner
    assert (asha._min_resource or "auto") == least
    assert (hyperband._min_resource, hyperband._max_resource) == (least_of_hyperband, steps)


def test_a_study_of_another_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    Study(tmp_path, PLAN, None, 60, "asha")
    for other in ({**PLAN, "config": {**PLAN["config"], "steps": 17}}, {**PLAN, "kind": "grid"}):  # type: ignore[dict-item]
        with pytest.raises(UserError, match="the study s in that storage is of another sweep; choose another --study"):
            Study(tmp_path, other, None, 60, "asha")
    with pytest.raises(UserError, match="--storage: it has no study t"):
        Study(tmp_path, {**PLAN, "study": "t"}, None, 60)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+psycopg://nobody@127.0.0.1:1/none", "--storage: .*connection.* failed"),
        ("sqlite:////nowhere/at/all.db", "--storage: unable to open database file"),
        ("oracel://x", "--storage: Can't load plugin: sqlalchemy.dialects:oracel"),
        ("study.db", "--storage: Could not parse SQLAlchemy URL"),
        ("grpc://localhost:1", "--storage=grpc://localhost:1: no Optuna proxy answers there"),
    ],
)
def test_a_storage_out_of_reach_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    for package in ("psycopg", "grpc"):
        if package in url:
            needed(package)
    monkeypatch.setattr(storage, "sleep", lambda seconds: None)
    monkeypatch.setattr(storage, "_PATIENCE", 0.2)
    (tmp_path / "sweep").mkdir()
    with pytest.raises(UserError, match=message) as error:
        Study(tmp_path, PLAN, url, 60, "asha")
    assert "\n" not in str(error.value)


def test_a_given_database_serves_as_the_folders_own_does(tmp_path: Path, worker: Callable[..., Study]) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    here, there = worker(trials=2, url=url), worker(trials=2, url=url)
    assert train(here, None) == ["trial-000", "interrupted"]
    assert [train(there) for _ in range(2)] == [["trial-001", "done"], ["trial-000", "done"]]
    assert here.finished()
    points = Study(tmp_path, PLAN, url, 60).statuses()
    assert [(point.name, point.state) for point in points] == [("trial-000", "done"), ("trial-001", "done")]


@pytest.mark.parametrize("silence", [6, 60, 119])
def test_six_heartbeats_may_be_lost(tmp_path: Path, silence: int) -> None:
    (tmp_path / "sweep").mkdir()
    opened = storage.connect(None, tmp_path, silence)
    assert isinstance(opened, RDBStorage)
    assert 6 * opened.heartbeat_interval <= silence == opened.grace_period


def test_a_password_is_not_kept() -> None:
    assert without_password(None) is None
    assert without_password("postgresql+psycopg://me:secret@db/sweeps") == "postgresql+psycopg://me:***@db/sweeps"


def test_a_search_is_tried_out_first() -> None:
    try_out(suggest)
    with pytest.raises(UserError, match="no such key"):
        try_out(lambda trial: (_ for _ in ()).throw(UserError("there is no such key")))


def test_a_search_some_of_whose_values_do_not_fit_together_is_not_refused() -> None:
    refused = iter([True, True, False])

    def picky(trial: Any) -> dict[str, Any]:
        if next(refused):
            raise UserError("config: optim.weight_decay=0.02 needs optim.name to be adamw; it is adam")
        return suggest(trial)

    try_out(picky)
    assert next(refused, None) is None


@pytest.mark.parametrize(
    ("key", "choices"),
    [
        ("norm", ("post", "pre", "rms")),
        ("norm", ("pre",)),
        ("cell", ("gru", "lstm", "mgu")),  # which only trials with norm=pre have
        ("cell", ("lstm", "gru")),
    ],
)
def test_changed_choices_are_refused_before_a_trial_is_lost(
    worker: Callable[..., Study], key: str, choices: tuple[str, ...]
) -> None:
    known = {"norm": ("post", "pre"), "cell": ("gru", "lstm")}
    here = worker(trials=1)
    for params in ({"norm": "post"}, {"norm": "pre", "cell": "gru"}):
        distributions = {name: optuna.distributions.CategoricalDistribution(known[name]) for name in params}
        here.study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=1.0))

    def drawn(trial: Any, lists: dict[str, tuple[str, ...]]) -> dict[str, Any]:
        overrides = {
            "optim.lr": trial.suggest_float("lr", 0.1, 10.0),
            "model.norm": trial.suggest_categorical("norm", lists["norm"]),
        }
        if overrides["model.norm"] == "pre":
            overrides["model.cell"] = trial.suggest_categorical("cell", lists["cell"])
        return overrides

    worker(trials=2, suggest=lambda trial: drawn(trial, known))  # a new key, and equal choices
    with pytest.raises(UserError, match="CategoricalDistribution does not support dynamic value space"):
        worker(trials=3, suggest=lambda trial: drawn(trial, known | {key: choices}))
    assert len(here.statuses()) == 2, "nothing is enqueued"


def test_a_parameter_of_another_kind_is_refused(worker: Callable[..., Study]) -> None:
    train(worker(trials=1))
    worker(trials=2, suggest=lambda trial: {"optim.lr": trial.suggest_float("lr", 1.0, 2.0, log=True)})
    with pytest.raises(UserError, match="Cannot set different log configuration"):
        worker(trials=2, suggest=lambda trial: {"optim.lr": trial.suggest_float("lr", 0.1, 10.0)})


def test_the_values_of_a_trial_that_has_none_yet_are_not_shown(worker: Callable[..., Study]) -> None:
    here = worker(trials=3)
    train(here)
    train(here)
    config: dict[str, Any] = {"steps": 16, "seed": 0, "optim.lr": 1.0}
    config |= {"task": "translation", "data.tokenizer": "", "data.batching": "bucket"}
    table = table_of_points([as_run(point, config) for point in here.statuses()])
    place = table.head.index("lr")
    assert [bool(row[place]) for row in table.rows] == [True, True, False]
