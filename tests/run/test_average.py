"""Checkpoint averaging, and the choices of checkpoints."""

import tracemalloc

import numpy as np
import pytest

from vaswani.errors import UserError
from vaswani.run.averaging import average
from vaswani.run.choice import choose
from vaswani.run.saved import Checkpoint


def params(seed: int, width: int = 5) -> dict:
    rng = np.random.default_rng(seed)
    return {"encoder": {"wq": rng.normal(size=(3, width)).astype(np.float32)}, "embed": np.float32(rng.normal(size=2))}


def run(*metrics: dict, minutes: float = 1.0) -> list[Checkpoint]:
    """Checkpoints at steps 10, 20, ..., so many minutes apart."""
    return [Checkpoint(10 * (i + 1), 60 * minutes * i, metric) for i, metric in enumerate(metrics)]


def test_average_equals_the_mean_in_float64_whatever_the_order():
    steps = list(range(7))
    result = average(params, steps)
    expected = np.mean([np.float64(params(step)["encoder"]["wq"]) for step in steps], axis=0)
    assert result["encoder"]["wq"].dtype == np.float32
    np.testing.assert_array_equal(result["encoder"]["wq"], expected.astype(np.float32))
    np.testing.assert_array_equal(average(params, steps[::-1])["embed"], result["embed"])


def test_average_of_one_checkpoint_is_that_checkpoint_to_the_bit():
    np.testing.assert_array_equal(average(params, [3])["encoder"]["wq"], params(3)["encoder"]["wq"])


def test_average_leaves_the_loaded_parameters_alone():
    kept = {step: params(step) for step in (1, 2)}
    average(kept.__getitem__, [1, 2])
    np.testing.assert_array_equal(kept[1]["embed"], params(1)["embed"])


def test_checkpoints_of_two_models_are_not_averaged():
    with pytest.raises(UserError, match="checkpoint 2 has other parameters than checkpoint 1"):
        average(lambda step: params(step, width=4 + step), [1, 2])


@pytest.mark.parametrize(
    ("choice", "steps"),
    [
        ("latest", [50]),
        ("20", [20]),
        ("best", [30]),
        ("average:1", [50]),
        ("average:3", [30, 40, 50]),
        ("average:2@2", [30, 50]),
        ("average:3@1.5", [10, 30, 50]),
        ("average-best:2", [20, 30]),
    ],
)
def test_choices(choice: str, steps: list[int]):
    checkpoints = run({"bleu": 1.0}, {"bleu": 7.0}, {"bleu": 9.0}, {"bleu": 3.0}, {})
    assert choose(choice, checkpoints[::-1]) == steps


def test_an_average_without_minutes_does_not_look_at_times():
    assert choose("average:2", [Checkpoint(1, 100.0, {}), Checkpoint(2, 99.999, {})]) == [1, 2]


def test_best_is_the_least_loss_where_bleu_is_off_and_the_earlier_of_equals():
    assert choose("best", run({"loss": 2.0}, {"loss": 1.0}, {"loss": 3.0})) == [20]
    assert choose("best", run({"bleu": 4.0}, {"bleu": 5.0}, {"bleu": 5.0})) == [20]
    assert choose("best", run({"loss": -50.0}, {"bleu": 5.0, "loss": 9.0})) == [20]


def test_best_is_the_lowest_nll_where_bleu_was_measured_for_a_part_of_the_run(capsys: pytest.CaptureFixture[str]):
    assert choose("best", run({"bleu": 5.0, "nll": 3.0}, {"nll": 2.0}, {"nll": 2.5}, {})) == [20]
    assert capsys.readouterr().err == (
        "note: checkpoints that were not validated cannot be the best: 1 of 4\n"
        "note: 1 of 3 checkpoints have a BLEU; the best is the one of lowest nll\n"
    )
    assert choose("best", run({"bleu": 5.0, "nll": 3.0}, {"bleu": 4.0, "nll": 2.0})) == [10]
    assert capsys.readouterr().err == ""


def test_a_nan_is_never_the_best():
    assert choose("best", run({"nll": float("nan")}, {"nll": 3.0}, {"nll": 2.0}, {"nll": 2.5})) == [30]


def test_too_few_to_average_is_a_note(capsys: pytest.CaptureFixture[str]):
    assert choose("average:5", run({}, {})) == [10, 20]
    assert "the run has 2 checkpoints" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("15", "no checkpoint at step 15; there are 10, 20"),
        ("averge:5", "'averge:5' is not a choice; write one of latest"),
        ("average:0", "is not a choice"),
        ("average-best:2@3", "is not a choice"),
        ("best", "no checkpoint has a validation score"),
    ],
)
def test_choices_that_cannot_be(choice: str, message: str):
    with pytest.raises(UserError, match=message):
        choose(choice, run({}, {}))


def test_a_run_without_checkpoints_is_an_error():
    with pytest.raises(UserError, match="no checkpoint"):
        choose("latest", [])


def test_checkpoints_without_a_validation_are_not_left_out_in_silence(capsys: pytest.CaptureFixture[str]):
    assert choose("best", run({}, {}, {"nll": 2.0})) == [30]
    assert capsys.readouterr().err == "note: checkpoints that were not validated cannot be the best: 2 of 3\n"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_checkpoint_and_one_sum_are_in_memory_at_a_time(count: int):
    size = 1_000_000
    tracemalloc.start()
    try:
        average(lambda step: {"embed": np.full(size, step, np.float32)}, list(range(count)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12.5 * size
