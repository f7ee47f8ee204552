"""Epochs as the unit of validations and checkpoints, and the end of a run that no longer improves."""

import shutil
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest

from tests import tiny
from tests.train.test_loop import records, steps
from vaswani.configs.common import default
from vaswani.run.checkpoint import load_params
from vaswani.run.saved import Checkpoint
from vaswani.train import loop
from vaswani.train.schedule import Due, Every, Patience, Schedule, reason_to_save

NLL = [2.0, 2.5, 2.2, 2.0, 1.0]  # of each validation: with a patience of 3 the run ends after the fourth


def valid(nll: float, step: int = 1) -> dict:
    return {"kind": "valid", "step": step, "nll": nll}


@pytest.mark.parametrize(
    ("limit", "nlls", "ended"),
    [
        (2, [3.0, 2.0, 2.1], False),
        (2, [3.0, 2.0, 2.1, 2.0], True),  # equal is no improvement
        (2, [3.0, 2.0, 2.1, 1.9, 2.0], False),
        (3, [3.0, 2.0, 2.1, 2.0], False),
        (1, [3.0], False),
        (1, [3.0, 3.0], True),
        (1, [float("inf"), float("inf")], True),
        (0, [3.0, 3.0, 3.0], False),
    ],
)
def test_patience_ends_exactly_at_its_limit(limit: int, nlls: list[float], ended: bool) -> None:
    assert Patience(limit, [{"kind": "train", "nll": 0.0}, *map(valid, nlls)]).ended == ended


def test_something_is_due_every_so_many_updates_or_at_the_end_of_an_epoch() -> None:
    third = Every(steps=3, epochs=0)
    assert [step for step in range(1, 10) if third.falls_on(step, {"epoch": 1, "batch": 0})] == [3, 6, 9]
    second = Every(steps=3, epochs=2)
    ends = [(1, 0), (1, 1), (2, 0), (2, 5), (3, 0), (4, 0)]
    assert [end for end in ends if second.falls_on(3, {"epoch": end[0], "batch": end[1]})] == [(2, 0), (4, 0)]


def schedule(**changes: float) -> Schedule:
    cfg = default()
    cfg.steps, cfg.eval.every, cfg.checkpoint.every, cfg.checkpoint.keep_last = 10, 4, 3, 2
    cfg.log_every = 2
    cfg.checkpoint.update(changes)
    return Schedule.of(cfg)


def saved(plan: Schedule, overdue: tuple[int, ...] = ()) -> dict[int, str]:
    """Returns the steps that are saved, and why; each ends an epoch."""
    dues = {step: plan.after(step, {"epoch": step, "batch": 0}, step in overdue) for step in range(1, 11)}
    return {step: due.reason for step, due in dues.items() if due.reason}


def test_steps_are_validated_and_saved_by_their_number_and_the_last_one_always() -> None:
    position = {"epoch": 1, "batch": 5}
    validated = [step for step in range(1, 11) if schedule().after(step, position).validates]
    assert validated == [4, 8, 10]
    assert saved(schedule()) == {3: "schedule", 6: "schedule", 9: "schedule", 10: "end"}
    assert schedule().after(5, position) == Due(validates=False, reason=None)


def test_by_the_clock_only_those_that_are_averaged_are_saved_by_their_number() -> None:
    plan = schedule(every_minutes=7.0)
    assert saved(plan, overdue=(2, 8)) == {2: "schedule", 6: "schedule", 8: "schedule", 9: "schedule", 10: "end"}
    assert saved(schedule(every_minutes=7.0, keep_last=1)) == {9: "schedule", 10: "end"}
    assert [step for step in range(1, 11) if plan.reads_clock(step)] == [2, 4, 6, 8, 10]
    assert not any(schedule().reads_clock(step) for step in range(1, 11)), "without minutes"
    by_epoch = schedule(every_minutes=7.0, every_epochs=2)
    assert saved(by_epoch) == dict.fromkeys((2, 4, 6, 8, 10), "schedule")


@pytest.mark.parametrize(
    ("due", "has_ended", "is_stopping", "reason"),
    [
        ("schedule", True, True, "schedule"),
        ("end", True, True, "end"),
        (None, True, True, "patience"),
        (None, False, True, "signal"),
        (None, False, False, None),
    ],
)
def test_a_checkpoint_is_saved_for_the_first_reason_that_holds(
    due: str | None, has_ended: bool, is_stopping: bool, reason: str | None
) -> None:
    assert reason_to_save(Due(validates=True, reason=due), has_ended, is_stopping) == reason


@pytest.mark.parametrize(("recorded", "waited"), [([3], 1), ([3, 4], 1), ([], 0)])
def test_a_validation_that_was_recorded_before_the_process_was_killed_counts_once(
    monkeypatch: pytest.MonkeyPatch, recorded: list[int], waited: int
) -> None:
    patience = Patience(2, [valid(2.0, step) for step in recorded])
    training = mock.MagicMock(spec=loop.Training, schedule=schedule(), patience=patience)
    training.job.batches.get_state.return_value = {"epoch": 1, "batch": 1}
    training.checkpoints.about.return_value = Checkpoint(4, 0.0, {}, "signal")
    monkeypatch.setattr(loop, "validate", lambda *_: {"nll": 2.0})
    loop._validate_if_interrupted(training, {}, 4)
    assert training.patience.waited == waited
    assert training.reporter.record_validation.called == (4 not in recorded)
    training.checkpoints.add_validation.assert_called_once_with(4, {"nll": 2.0}, waited == 2)


@pytest.mark.slow
def test_a_run_ends_when_patience_does_and_counts_on_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.data.tokens_per_batch = 48 * 100  # two updates an epoch
    cfg.log_every = 5
    cfg.steps, cfg.eval.every_epochs, cfg.checkpoint.every_epochs, cfg.eval.patience = 20, 1, 3, 3
    measured = iter(NLL)

    def validate(*_: object) -> dict[str, float]:
        nll = next(measured)
        return {"loss": nll, "nll": nll, "perplexity": np.exp(nll)}

    monkeypatch.setattr(loop, "validate", validate)
    assert loop.train(cfg, tmp_path / "whole") == 0
    assert steps(tmp_path / "whole") == [6, 8]  # the end is saved, too
    line = "no lower nll than 2.0000 in the last 3 validations (eval.patience)"
    assert capsys.readouterr().err.splitlines()[-1] == f"{tmp_path}/whole has ended: {line}"

    log = (tmp_path / "whole" / "metrics.jsonl").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "place_rows", None)  # the same command does not make one more update
        assert loop.train(cfg, tmp_path / "whole") == 0
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == log
    assert line in capsys.readouterr().err and next(measured) == 1.0

    measured = iter(NLL[:3])  # and then fails, in the middle of patience
    with pytest.raises(StopIteration):
        loop.train(cfg, tmp_path / "resumed")
    assert steps(tmp_path / "resumed") == [6]
    measured = iter(NLL[3:])
    assert loop.train(cfg, tmp_path / "resumed") == 0
    assert next(measured) == 1.0
    both = [
        [(one["step"], one["kind"], one["nll"]) for one in records(tmp_path / name)] for name in ("whole", "resumed")
    ]
    assert [one for one in both[0] if one[1] == "valid"] == [one for one in both[1] if one[1] == "valid"]
    assert both[0][-2][:2] == (8, "valid") and both[0][-1][:2] == (8, "train")  # also the updates since the fifth
    assert [step for step, kind, _ in both[0] if kind == "train"] == [5, 8]
    jax.tree.map(
        np.testing.assert_array_equal, load_params(tmp_path / "whole", 8), load_params(tmp_path / "resumed", 8)
    )

    # Killed between the record of the last validation and its checkpoint: that validation is made again.
    killed = shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(killed / "checkpoints" / "8")
    measured = iter(NLL[3:])
    assert loop.train(cfg, killed) == 0
    assert next(measured) == 1.0 and steps(killed) == [6, 8]
