"""Points as trials of a study: how many there are, who has which, and what becomes of those that a worker left."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError

from base.errors import UserError
from tests.extras import needed
from train.sweep import study as studies
from train.sweep.plan import open_plan
from train.sweep.point import Lost, Outcome
from train.sweep.study import HeldPoint, Progress, Study, try_out, without_password
from train.sweep.table import as_records, as_text

ROOT = Path(__file__).parent.parent.parent
PLAN = {
    "kind": "search",
    "config": {"steps": 16, "eval": {"every": 1, "every_epochs": 0}, "optim": {"lr": 1.0}},
    "storage": None,
    "study": "s",
}
DONE = Outcome("done", "", {"nll": 3.0, "nll_best": 2.5})
LONG = 60.0  # seconds, of which others judge by the database's clock


def suggest(trial: Any) -> dict[str, Any]:
    return {"optim.lr": trial.suggest_float("lr", 0.1, 10.0, log=True)}


@pytest.fixture
def worker(tmp_path: Path) -> Callable[..., Study]:
    """Opens the search as one more process would."""

    def opened(trials: int = 3, pruner: str = "none", suggest: Any = suggest, url: str | None = None) -> Study:
        open_plan(tmp_path, PLAN)
        study = Study(tmp_path, PLAN, url, int(LONG), pruner)
        study.enqueue({f"trial-{number:03d}": None for number in range(trials)}, suggest, retry=False)
        return study

    return opened


def take(study: Study) -> HeldPoint:
    held = study.take()
    assert held is not None
    return held


def silence(study: Study) -> None:
    """Makes all heartbeats so far older than the grace period."""
    database = sqlite3.connect(study.workdir / "sweep" / "study.db")
    with database:
        database.execute("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-61 seconds')")
    database.close()


@pytest.mark.slow
def test_trials_are_as_many_as_asked_for_however_many_workers(worker: Callable[..., Study], tmp_path: Path) -> None:
    first, second = worker(), worker()
    held = [take(first), take(second), take(first)]
    assert [one.name for one in held] == ["trial-000", "trial-001", "trial-002"]
    assert second.take() is None
    assert not second.finished()
    held[0].finish(DONE)
    held[1].finish(Outcome("pruned", "", {}))
    held[2].finish(Outcome("failed", "update 3: the loss is nan", {}))
    assert first.finished()
    assert first.take() is None
    points = second.statuses()
    assert [(point.state, point.reason) for point in points] == [
        ("done", ""),
        ("pruned", ""),
        ("failed", "update 3: the loss is nan"),
    ]
    assert points[0].summary == DONE.summary
    assert points[0].overrides == held[0].overrides != held[1].overrides
    result = json.loads((tmp_path / "sweep" / "results" / "trial-002.json").read_text())
    assert result == {"state": "failed", "reason": "update 3: the loss is nan", "summary": {}}
    more = worker(trials=4)
    assert take(more).name == "trial-003"
    assert first.take() is None  # it was asked for three


RACER = """
import sys, time
from pathlib import Path
from train.sweep.study import Study
folder = Path(sys.argv[1])
config = {"steps": 1, "eval": {"every": 1, "every_epochs": 0}}
study = Study(folder, {"kind": "grid", "config": config, "study": "s"}, None, 60, "none")
study.enqueue({str(number): {} for number in range(16)}, lambda trial: {}, retry=False)
(folder / "ready" / sys.argv[2]).touch()
while len(list((folder / "ready").iterdir())) < 4:
    time.sleep(0.01)
while not study.finished() and (held := study.take()):
    print(held.name)
"""


@pytest.mark.slow
def test_of_four_processes_racing_for_points_one_gets_each(tmp_path: Path) -> None:
    (tmp_path / "ready").mkdir()
    (tmp_path / "sweep").mkdir()
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [subprocess.Popen([*command, str(i)], cwd=ROOT, stdout=subprocess.PIPE, text=True) for i in range(4)]
    taken = [name for racer in racers for name in racer.communicate()[0].split()]
    assert sorted(taken, key=int) == [str(number) for number in range(16)]


def test_a_point_enqueued_twice_is_trained_once(worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # neither sees what the other enqueues
        patch.setattr(Study, "_counting", lambda self: {})
        here, there = worker(trials=1), worker(trials=1)
    held = take(here)
    assert there.take() is None
    held.finish(DONE)
    assert here.finished()
    assert there.take() is None
    assert [point.name for point in there.statuses()] == ["trial-000"]


def test_a_trial_given_back_is_taken_up_with_its_parameters(worker: Callable[..., Study]) -> None:
    here, there = worker(trials=1), worker(trials=1)
    held = take(here)
    held.release()
    assert not there.finished()
    assert there.statuses()[0].state == "interrupted"
    again = take(there)
    assert (again.name, again.overrides, again.attempt) == (held.name, held.overrides, 2)
    with pytest.raises(Lost, match=r"^lost to another worker$"):
        held.finish(DONE)
    held.release()  # changes nothing
    again.finish(DONE)
    assert here.finished()


def test_a_silent_trial_is_taken_up_and_its_worker_finds_out(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = [0.0]
    monkeypatch.setattr(studies, "monotonic", lambda: clock[0])
    slow, living = worker(trials=1), worker(trials=1)
    held = take(slow)
    for clock[0] in (20.0, 40.0, 60.0, 80.0):  # as long as its heart beats, it keeps the trial
        silence(slow)
        held.heartbeat()
        assert living.take() is None
    silence(slow)
    assert slow.statuses()[0].state == "interrupted"
    assert slow.study.trials[0].state == TrialState.RUNNING, "whoever only looks ends no trial"
    again = take(living)
    assert (again.name, again.overrides, again.attempt) == (held.name, held.overrides, 2)
    clock[0] = 111.0
    with pytest.raises(Lost, match=r"^without a heartbeat for 31 s, so that another worker may"):
        held.heartbeat()
    held._last = 100.0
    with pytest.raises(Lost, match=r"^lost to another worker$"):  # if it did not know, the study would say so
        held.heartbeat()
    with pytest.raises(Lost):
        held.finish(DONE)
    again.finish(DONE)
    assert [trial.state for trial in slow.study.trials] == [TrialState.FAIL, TrialState.COMPLETE]


def test_a_worker_silent_for_half_the_grace_period_stops_before_another_may_begin(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(studies, "monotonic", lambda: clock[0])
    held = take(worker(trials=1))
    clock[0] = LONG / 2
    held.heartbeat()
    clock[0] = LONG + 1
    with pytest.raises(Lost):
        held.heartbeat()


def test_a_worker_killed_as_it_takes_a_point_does_not_keep_it(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = worker(trials=1), worker(trials=1)
    monkeypatch.setattr(studies, "HeldPoint", lambda *_: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):  # between the trial's being RUNNING and the first heartbeat of its run
        here.take()
    monkeypatch.undo()
    assert there.take() is None
    silence(there)
    assert take(there).name == "trial-000"


def test_a_worker_killed_as_it_enqueues_a_stale_trial_does_not_lose_it(worker: Callable[..., Study]) -> None:
    here, there = worker(trials=1), worker(trials=1)
    take(here)
    trial = here.study.trials[0]
    here.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
    assert not there.finished()
    assert take(there).name == "trial-000"


def test_a_heartbeat_outlives_a_hiccup_of_the_storage(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(studies, "monotonic", lambda: clock[0])
    held = take(worker())
    recorded = []
    record = RDBStorage.record_heartbeat
    monkeypatch.setattr(
        RDBStorage, "record_heartbeat", lambda storage, trial: recorded.append(clock[0]) or record(storage, trial)
    )
    away = OperationalError("", {}, Exception("away"))
    with monkeypatch.context() as patch:
        patch.setattr(RDBStorage, "set_trial_user_attr", lambda *_, **__: (_ for _ in ()).throw(away))
        clock[0] = 20.0
        held.heartbeat()
    clock[0] = 29.0
    held.heartbeat()
    clock[0] = 50.0
    held.heartbeat()
    assert recorded == [29.0, 50.0]


def test_a_trial_whose_keys_do_not_fit_together_fails_alone(worker: Callable[..., Study]) -> None:
    def picky(trial: Any) -> dict[str, Any]:
        if trial.number == 0:
            raise UserError("config: model.h is odd")
        return suggest(trial)

    here = worker(trials=2, suggest=picky)
    assert take(here).name == "trial-001"
    points = here.statuses()
    assert (points[0].state, points[0].reason) == ("failed", "config: model.h is odd")


def test_a_trial_whose_keys_the_storage_could_not_keep_is_given_back(worker: Callable[..., Study]) -> None:
    calls = []

    def unlucky(trial: Any) -> dict[str, Any]:
        calls.append(trial.number)
        if len(calls) == 1:
            away = StorageInternalError("an error of the database")  # as Optuna says it, and `Sweep`
            away.__cause__ = OperationalError("UPDATE", {}, Exception("database is locked"))
            raise UserError("search(): the database is locked") from away
        return suggest(trial)

    here = worker(trials=1, suggest=unlucky)
    held = here.take() or take(here)
    assert held.name == "trial-000" and len(calls) == 2
    held.finish(DONE)
    assert [point.state for point in here.statuses()] == ["done"]


def test_a_trial_taken_away_while_its_keys_are_chosen_is_dropped(worker: Callable[..., Study]) -> None:
    def slow(trial: Any) -> dict[str, Any]:
        here.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        try:
            return suggest(trial)
        except Exception as error:  # as `Sweep` does with whatever search(trial) raises
            raise UserError(f"search(): {error}") from error

    here = worker(trials=1, suggest=slow)
    assert here.take() is None
    assert here.statuses()[0].state == "interrupted"


def test_a_trial_that_failed_is_tried_again_with_its_parameters(worker: Callable[..., Study]) -> None:
    here = worker(trials=1)
    held = take(here)
    held.finish(Outcome("failed", "killed by SIGKILL", {"step": 3}))
    for _ in range(2):
        here.enqueue({"trial-000": None}, suggest, retry=True)
    again = take(here)
    assert (again.name, again.overrides) == (held.name, held.overrides)
    again.finish(DONE)
    assert here.finished()
    assert [(point.state, point.reason) for point in here.statuses()] == [("done", "")]


def test_the_time_left_is_shared_by_the_workers(worker: Callable[..., Study]) -> None:
    here, there = worker(trials=5), worker(trials=5)
    assert here.progress() == Progress(0, 5, None)
    for name, outcome in (("done", 6.0), ("pruned", 2.0), ("failed", 100.0)):
        take(here).finish(Outcome(name, "killed" if name == "failed" else "", {**DONE.summary, "minutes": outcome}))
    assert here.progress() == Progress(3, 5, 2 * 4.0)
    held = take(there)
    assert here.progress() == Progress(3, 5, 2 * 4.0 / 2)
    held.release()
    assert here.progress() == Progress(3, 5, 2 * 4.0)
    for _ in range(2):
        take(here).finish(DONE)
    assert here.progress() == Progress(5, 5, None)


def write_valid(tmp_path: Path, name: str, *losses: float) -> None:
    (tmp_path / name).mkdir(exist_ok=True)
    record = {"kind": "valid", "loss": 9.0, "perplexity": 2.0}
    lines = [json.dumps({"step": step, "nll": loss, **record}) + "\n" for step, loss in enumerate(losses, 1)]
    (tmp_path / name / "metrics.jsonl").write_text("".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("pruner", ["asha", "hyperband"])
def test_a_trial_that_is_worse_than_others_is_stopped(
    worker: Callable[..., Study], tmp_path: Path, pruner: str
) -> None:
    here = worker(trials=8, pruner=pruner)
    stopped = []
    for number in range(8):
        held = take(here)
        write_valid(tmp_path, held.name, *(2.0 + number, 1.0 + number))
        held._last -= 20.0
        stopped.append(held.heartbeat())
        held.finish(Outcome("pruned" if stopped[-1] else "done", "", {"nll_best": 1.0 + number}))
    assert not stopped[0]
    assert any(stopped)
    trials = here.study.get_trials()
    assert trials[0].intermediate_values == {1: 2.0, 2: 1.0}
    assert trials[0].value == 1.0


def validated(held: HeldPoint, *losses: float) -> bool:
    """Returns whether the pruner stops a point that has validated these."""
    write_valid(held._study.workdir, held.name, *losses)
    held._last -= 20.0
    return held.heartbeat()


def is_the_second_of_eight_pruned(worker: Callable[..., Study]) -> bool:
    """Returns whether `asha`, by which a quarter go on, stops a trial of 2.0 after that of 1.0 and six worse ones."""
    here = worker(trials=8, pruner="asha")
    for nll in (5.0, 6.0, 7.0, 8.0, 9.0, 10.0):
        held = take(here)
        validated(held, nll)
        held.finish(Outcome("pruned", "", {"nll_best": nll}))
    return validated(take(here), 2.0)


def test_a_trial_that_was_interrupted_is_compared_with_once(worker: Callable[..., Study]) -> None:
    here = worker(trials=1, pruner="asha")
    for _ in range(4):
        held = take(here)
        assert not validated(held, 1.0)
        held.release()
    take(here).finish(DONE)

    assert not is_the_second_of_eight_pruned(worker)


def test_a_trial_taken_up_again_keeps_what_it_reported(worker: Callable[..., Study], tmp_path: Path) -> None:
    here = worker(trials=1, pruner="asha")
    held = take(here)
    write_valid(tmp_path, held.name, 3.0, 2.0)
    held._last -= 20.0
    held.heartbeat()
    held.release()
    assert here.statuses()[0].nll == {1: 3.0, 2: 2.0}
    again = take(here)
    assert here.statuses()[0].nll == {1: 3.0, 2: 2.0}
    write_valid(tmp_path, held.name, 3.0, 2.0, 1.5)
    again.finish(DONE)
    assert here.statuses()[0].nll == {1: 3.0, 2: 2.0, 3: 1.5}


def test_a_run_too_short_for_a_heartbeat_is_reported_at_its_end(worker: Callable[..., Study], tmp_path: Path) -> None:
    here = worker(pruner="asha")
    held = take(here)
    write_valid(tmp_path, held.name, 3.0, 2.0)
    assert not held.heartbeat()
    held.finish(Outcome("done", "", {"nll_best": 2.0}))
    assert here.study.get_trials()[0].intermediate_values == {1: 3.0, 2: 2.0}


@pytest.mark.parametrize("measures", [{}, {"nll_best": float("nan")}])
def test_a_search_needs_a_validation_loss_and_a_grid_does_not(
    worker: Callable[..., Study], measures: dict, tmp_path: Path
) -> None:
    here = worker(trials=1)
    take(here).finish(Outcome("done", "", measures))
    point = here.statuses()[0]
    assert (point.state, point.reason) == ("failed", "the run has no finite validation nll")
    plan = {**PLAN, "kind": "grid", "study": "another"}
    grid = Study(tmp_path, plan, None, 60, "asha")
    grid.enqueue({"base": {}}, suggest, retry=False)
    take(grid).finish(Outcome("done", "", measures))
    assert grid.statuses()[0].state == "done"


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
    with pytest.raises(UserError, match="--storage: it does not have this study"):
        Study(tmp_path, {**PLAN, "study": "t"}, None, 60)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+psycopg://nobody@127.0.0.1:1/none", "--storage: .*connection.* failed"),
        ("sqlite:////nowhere/at/all.db", "--storage: unable to open database file"),
        ("oracel://x", "--storage: Can't load plugin: sqlalchemy.dialects:oracel"),
        ("study.db", "--storage: Could not parse SQLAlchemy URL"),
    ],
)
def test_a_storage_out_of_reach_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    if "psycopg" in url:
        needed("psycopg")
    monkeypatch.setattr(studies, "sleep", lambda seconds: None)
    with pytest.raises(UserError, match=message) as error:
        Study(tmp_path, PLAN, url, 60, "asha")
    assert "\n" not in str(error.value)


def test_a_given_database_serves_as_the_folders_own_does(tmp_path: Path, worker: Callable[..., Study]) -> None:
    url = f"sqlite:///{tmp_path}/a?b%20.db"
    here, there = worker(trials=2, url=url), worker(trials=2, url=url)
    held = take(here)
    take(there).finish(DONE)
    held.release()
    take(there).finish(DONE)
    assert here.finished()
    points = Study(tmp_path, PLAN, url, 60).statuses()
    assert [(point.name, point.state) for point in points] == [("trial-000", "done"), ("trial-001", "done")]


def test_a_password_is_not_kept() -> None:
    assert without_password(None) is None
    assert without_password("postgresql+psycopg://me:secret@db/sweeps") == "postgresql+psycopg://me:***@db/sweeps"


def test_a_search_is_tried_out_first() -> None:
    try_out(suggest)
    with pytest.raises(UserError, match="no such key"):
        try_out(lambda trial: (_ for _ in ()).throw(UserError("there is no such key")))


def test_a_validation_is_reported_once_the_storage_is_back(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = worker(trials=1)
    held = take(here)
    write_valid(tmp_path, held.name, 3.0)
    held._last -= 20.0
    away = OperationalError("", {}, Exception("away"))
    with monkeypatch.context() as patch:
        patch.setattr(RDBStorage, "set_trial_intermediate_value", lambda *_, **__: (_ for _ in ()).throw(away))
        held.heartbeat()
    held.heartbeat()
    assert here.statuses()[0].nll == {1: 3.0}


def test_an_interrupted_trial_is_in_one_bracket_of_hyperband_once(worker: Callable[..., Study]) -> None:
    here = worker(trials=1, pruner="hyperband")
    pruner: Any = here.study.pruner
    for attempt in range(4):
        held = take(here)
        validated(held, *([1.0] * (attempt + 1)))
        brackets = [pruner._create_bracket_study(here.study, number).get_trials() for number in range(3)]
        members = [[trial.number for trial in bracket] for bracket in brackets]
        assert members == [[attempt], [], []]  # number 1 would be in the second bracket if it were no copy
        held.release()


def test_a_trial_that_was_tried_again_is_compared_with_once(worker: Callable[..., Study]) -> None:
    here = worker(trials=1, pruner="asha")
    for _ in range(4):
        held = take(here)
        assert not validated(held, 1.0)
        held.finish(Outcome("failed", "killed by SIGKILL", {}))
        here.enqueue({"trial-000": None}, suggest, retry=True)
    take(here).finish(DONE)

    assert not is_the_second_of_eight_pruned(worker)


def test_a_search_some_of_whose_values_do_not_fit_together_is_not_refused() -> None:
    refused = iter([True, True, False])

    def picky(trial: Any) -> dict[str, Any]:
        if next(refused):
            raise UserError("config: optim.weight_decay is 0.02; it must be 0 with optim.name=adam")
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
    with pytest.raises(UserError) as refusal:
        worker(trials=3, suggest=lambda trial: drawn(trial, known | {key: choices}))
    difference = f"{key} is one of {known[key]} there and one of {choices} here"
    assert f"this folder holds another sweep ({difference}); use another --workdir" in str(refusal.value)
    assert len(here.statuses()) == 2, "nothing is enqueued"


def test_a_parameter_of_another_kind_is_refused(worker: Callable[..., Study]) -> None:
    take(worker(trials=1))
    worker(trials=2, suggest=lambda trial: {"optim.lr": trial.suggest_float("lr", 1.0, 2.0, log=True)})
    with pytest.raises(
        UserError, match=r"another sweep \(lr is drawn from Float.*log=True.* there and .*log=False.* here\)"
    ):
        worker(trials=2, suggest=lambda trial: {"optim.lr": trial.suggest_float("lr", 0.1, 10.0)})


def test_the_values_of_a_trial_that_has_none_yet_are_not_shown(worker: Callable[..., Study]) -> None:
    def picky(trial: Any) -> dict[str, Any]:
        if trial.number == 0:
            raise UserError("config: model.h is odd")
        return suggest(trial)

    here = worker(trials=3, suggest=picky)
    held = take(here)
    held.finish(DONE)
    config = {"steps": 16, "optim.lr": 1.0}
    records = as_records(here.statuses(), config)
    assert {record["point"]: record.get("optim.lr") for record in records} == {
        "trial-000": None,
        "trial-001": None,
        "trial-002": None,
    }, "that of one trial alone differs from nothing"
    take(here).finish(DONE)
    records = as_records(here.statuses(), config)
    assert [record["optim.lr"] for record in records if record["point"] == "trial-000"] == [None]
    assert "None" not in as_text(records)


def test_that_the_pruner_stops_a_point_is_not_forgotten_when_the_storage_is_away(
    worker: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = worker(pruner="asha")
    held = take(here)
    assert not validated(held, 1.0)
    held.finish(DONE)
    held = take(here)
    away = OperationalError("", {}, Exception("away"))
    report = RDBStorage.set_trial_intermediate_value

    def unlucky(storage: RDBStorage, trial_id: int, step: int, value: float) -> None:
        if step == 2:
            raise away
        report(storage, trial_id, step, value)

    with monkeypatch.context() as patch:
        patch.setattr(RDBStorage, "set_trial_intermediate_value", unlucky)
        assert validated(held, 5.0, 5.0)
