"""Searches: how many trials there are, who has which, and what becomes of those that a worker left."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from base.errors import UserError
from train.sweep.point import Lost, Outcome

optuna = pytest.importorskip("optuna")
from train.sweep import claims, search  # noqa: E402
from train.sweep.search import HeldTrial, Search, open_study, rehearse, rows_of, without_password  # noqa: E402

CONFIG = {"steps": 16, "eval": {"every": 1}, "optim": {"lr": 1.0}}
DONE = {"nll": 3.0, "nll_best": 2.5}


def suggest(trial: Any) -> dict[str, Any]:
    return {"optim.lr": trial.suggest_float("lr", 0.1, 10.0, log=True)}


@pytest.fixture
def worker(tmp_path: Path) -> Callable[..., Search]:
    """Opens the search as one more process would."""

    def opened(trials: int = 3, silence: float = 60.0, pruner: str = "none", suggest: Any = suggest) -> Search:
        return Search(open_study("s", None, tmp_path, CONFIG, pruner), tmp_path, trials, silence, suggest)

    return opened


def take(search: Search) -> HeldTrial:
    held = search.take()
    assert held is not None
    return held


def test_trials_are_as_many_as_asked_for_however_many_workers(worker: Callable[..., Search]) -> None:
    first, second = worker(), worker()
    held = [take(first), take(second), take(first)]
    assert [one.name for one in held] == ["trial-000", "trial-001", "trial-002"]
    assert second.take() is None
    assert not second.finished()
    held[0].finish(Outcome("done", "", DONE))
    held[1].finish(Outcome("pruned", "", {}))
    held[2].finish(Outcome("failed", "update 3: the loss is nan", {}))
    assert first.finished()
    assert first.take() is None
    rows = second.rows()
    assert [(row.state, row.reason) for row in rows] == [
        ("done", ""),
        ("pruned", ""),
        ("failed", "update 3: the loss is nan"),
    ]
    assert rows[0].summary == DONE
    assert rows[0].overrides == held[0].overrides
    more = worker(trials=4)
    assert take(more).name == "trial-003"


def test_the_worker_that_came_too_late_for_the_last_trial_drops_it(
    worker: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow = worker(trials=1), worker(trials=1)
    held = []
    ask = slow._study.ask
    monkeypatch.setattr(slow._study, "ask", lambda: (held.append(take(quick)), ask())[1])  # between look and ask
    assert slow.take() is None
    held[0].finish(Outcome("done", "", DONE))
    assert slow.finished()
    assert [row.name for row in slow.rows()] == ["trial-000"]


def test_a_trial_given_back_is_taken_up_with_its_parameters(worker: Callable[..., Search]) -> None:
    here, there = worker(trials=1), worker(trials=1)
    held = take(here)
    held.release()
    assert not there.finished()
    again = take(there)
    assert (again.name, again.overrides, again.attempt) == (held.name, held.overrides, 2)
    with pytest.raises(Lost):
        held.finish(Outcome("done", "", DONE))
    again.finish(Outcome("done", "", DONE))
    assert here.finished()


def test_a_silent_trial_is_taken_up_and_its_worker_learns_of_it(
    worker: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(claims, "monotonic", lambda: clock[0])
    slow, living = worker(trials=1), worker(trials=1)
    held = take(slow)
    for clock[0] in (20.0, 40.0, 60.0, 80.0):  # as long as it shows that it is there, it keeps the trial
        held.renew()
        assert living.take() is None
    clock[0] = 140.0
    assert living.take() is None
    clock[0] = 141.0
    again = take(living)
    assert (again.name, again.overrides) == (held.name, held.overrides)
    with pytest.raises(Lost):  # it knows that it has slept for too long
        held.renew()
    held._renewal.done()
    clock[0] = 152.0
    with pytest.raises(Lost):  # and if it did not, the storage would say so
        held.renew()


def test_a_trial_put_in_the_queue_twice_is_trained_once(worker: Callable[..., Search]) -> None:
    here, there = worker(trials=1), worker(trials=1)
    take(here).release()
    abandoned = here._points()[0]
    for workers in (here, there):  # both saw it at the same moment
        workers._study.add_trial(search._again(0, abandoned))
    again = take(here)
    assert there.take() is None
    again.finish(Outcome("done", "", DONE))
    assert here.finished()
    assert there.take() is None


def test_a_trial_whose_keys_do_not_go_together_fails_alone(worker: Callable[..., Search]) -> None:
    def picky(trial: Any) -> dict[str, Any]:
        if trial.number == 0:
            raise UserError("config: model.h is odd")
        return suggest(trial)

    here = worker(trials=2, suggest=picky)
    assert here.take() is None
    assert take(here).name == "trial-001"
    assert (here.rows()[0].state, here.rows()[0].reason) == ("failed", "config: model.h is odd")


def write_valid(tmp_path: Path, name: str, *losses: float) -> None:
    (tmp_path / name).mkdir(exist_ok=True)
    records = [{"step": step, "kind": "valid", "loss": 9.0, "nll": loss} for step, loss in enumerate(losses, 1)]
    (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize("pruner", ["asha", "hyperband"])
def test_a_trial_that_is_worse_than_others_is_stopped(
    worker: Callable[..., Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pruner: str
) -> None:
    monkeypatch.setattr(search.Renewal, "due", lambda self: True)
    here = worker(trials=8, pruner=pruner)
    stopped = []
    for number in range(8):
        held = take(here)
        write_valid(tmp_path, held.name, *(2.0 + number, 1.0 + number))
        stopped.append(held.renew())
        held.finish(Outcome("pruned" if stopped[-1] else "done", "", {"nll_best": 1.0 + number}))
    assert not stopped[0]
    assert any(stopped)
    trials = here._study.get_trials()
    assert trials[0].intermediate_values == {1: 2.0, 2: 1.0}
    assert trials[0].value == 1.0


def test_a_run_too_short_to_be_watched_is_reported_at_its_end(worker: Callable[..., Search], tmp_path: Path) -> None:
    here = worker(pruner="asha")
    held = take(here)
    write_valid(tmp_path, held.name, 3.0, 2.0)
    assert not held.renew()
    held.finish(Outcome("done", "", {"nll_best": 2.0}))
    assert here._study.get_trials()[0].intermediate_values == {1: 3.0, 2: 2.0}


@pytest.mark.parametrize("measures", [{}, {"nll_best": float("nan")}])
def test_a_run_without_a_validation_loss_has_failed(worker: Callable[..., Search], measures: dict) -> None:
    here = worker(trials=1)
    take(here).finish(Outcome("done", "", measures))
    assert here.rows()[0].state == "failed"
    assert here.rows()[0].reason == "the run has no finite validation loss"


def test_half_a_line_of_the_journal_is_dropped(worker: Callable[..., Search], tmp_path: Path) -> None:
    take(worker()).finish(Outcome("done", "", DONE))
    with (tmp_path / "journal.jsonl").open("ab") as file:  # a worker killed while it wrote
        file.write(b'{"op_code":8,"wor')
    take(worker()).finish(Outcome("done", "", DONE))
    assert [row.state for row in worker().rows()] == ["done", "done"]


def test_a_study_of_another_config_is_refused(tmp_path: Path) -> None:
    open_study("s", None, tmp_path, CONFIG, "asha")
    with pytest.raises(UserError, match="the study s in that storage searches from another config; choose another --s"):
        open_study("s", None, tmp_path, {**CONFIG, "steps": 17}, "asha")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+psycopg://nobody@127.0.0.1:1/none", "--storage: .*connection.* failed"),
        ("sqlite:////nowhere/at/all.db", "--storage: unable to open database file"),
        ("oracel://x", "--storage: Can't load plugin: sqlalchemy.dialects:oracel"),
    ],
)
def test_a_storage_out_of_reach_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    if "psycopg" in url:
        pytest.importorskip("psycopg")
    monkeypatch.setattr(search, "sleep", lambda seconds: None)
    with pytest.raises(UserError, match=message) as error:
        open_study("s", url, tmp_path, CONFIG, "asha")
    assert "\n" not in str(error.value)


def test_a_database_serves_as_the_journal_does(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    here, there = (Search(open_study("s", url, tmp_path, CONFIG, "asha"), tmp_path, 2, 60.0, suggest) for _ in range(2))
    held = take(here)
    take(there).finish(Outcome("done", "", DONE))
    held.release()
    with pytest.raises(Lost):
        held.finish(Outcome("done", "", DONE))
    take(there).finish(Outcome("done", "", DONE))
    assert here.finished()
    rows = rows_of(open_study("s", url, tmp_path, CONFIG, "none"), tmp_path, 2)
    assert [(row.name, row.state) for row in rows] == [("trial-000", "done"), ("trial-001", "done")]
    for storage in (here, there):
        storage._study._storage._backend.engine.dispose()


def test_a_password_is_not_kept() -> None:
    assert without_password(None) is None
    assert without_password("postgresql+psycopg://me:secret@db/sweeps") == "postgresql+psycopg://me:***@db/sweeps"


def test_a_search_is_rehearsed() -> None:
    rehearse(suggest)
    with pytest.raises(UserError, match="no such key"):
        rehearse(lambda trial: (_ for _ in ()).throw(UserError("there is no such key")))


def test_without_optuna_a_search_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "train.sweep.search")
    with pytest.raises(UserError, match=r"a search needs Optuna; install it with: pip install -e '\.\[sweep\]'"):
        import train.sweep.search  # noqa: F401
