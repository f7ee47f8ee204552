"""40 updates in lockstep with PyTorch's layers, loss and Adam: no seeds, no intervals, the same numbers.

Each case also shows that rounding alone would not have come as far: ours beside ours with 2^-22 added to one row. And
errors that a training survives, planted one by one, are noticed. `python -m lab.lockstep` draws it.
Skipped without PyTorch and transformers, see tests/extras.py.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import beside_torch
from tests.conftest import ROOT
from tests.lockstep import CASES, Losses, Training
from tests.slow import slow_but
from tests.tolerance import BFLOAT16, LOGIT
from vaswani.train.optim import learning_rate

PAPER = "the paper's"
FIRST = 5
BOUND = 1e-4
SEVEN_DIGITS = 0.5e-6  # relative: two numbers agree to p digits if they differ by less than half of 10^(1 - p)
MESHES = [(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]  # devices along data, fsdp and tensor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lockstep")


@pytest.fixture(scope="module")
def paper(folder: Path) -> Training:
    return Training.of(folder, PAPER)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Losses:
    return beside_torch.losses(*beside_torch.pair(folder, PAPER))


def assert_lockstep(ours: Losses, theirs: Losses) -> None:
    assert len(ours) == len(theirs) == 40
    assert ours[-1] < ours[0] - 0.3, "the model learns"
    assert ours[:FIRST] == pytest.approx(theirs[:FIRST], rel=SEVEN_DIGITS, abs=0)
    assert ours == pytest.approx(theirs, rel=0, abs=BOUND)


@pytest.mark.parametrize("case", slow_but([PAPER], [case for case in CASES if case != "bfloat16"]))
def test_every_loss_is_theirs(folder: Path, case: str) -> None:
    training, model = beside_torch.pair(folder, case)
    assert_lockstep(training.losses(), beside_torch.losses(training, model))


@pytest.mark.slow
def test_in_bfloat16_the_losses_are_theirs_of_float32_up_to_its_rounding(folder: Path, theirs: Losses) -> None:
    """A loss is a mean over tokens of differences of two numbers as large as a logit, see `tests.tolerance`."""
    training = Training.of(folder, "bfloat16")
    tokens = min(np.count_nonzero(batch.labels_bt) for batch in training.batches)
    assert training.losses() == pytest.approx(theirs, rel=0, abs=2 * LOGIT * BFLOAT16 / tokens**0.5)


@pytest.mark.slow
def test_on_every_mesh_of_eight_devices_the_losses_are_theirs(folder: Path, theirs: Losses) -> None:
    command = [sys.executable, "-m", "tests.lockstep", folder, json.dumps(MESHES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for ours in json.loads(done.stdout):
        assert_lockstep(ours, theirs)


@pytest.mark.slow
def test_rounding_alone_has_not_grown_to_the_bound(paper: Training) -> None:
    """Beyond it chaos would hide an error, and a wrong loss would be excused as rounding."""
    assert paper.nudged().losses() == pytest.approx(paper.losses(), rel=0, abs=BOUND)


def eps_inside_the_root(training: Training) -> Training:
    optim = training.cfg.optim
    rate = lambda done: learning_rate(optim, training.model.d_model, training.cfg.steps, done + 1)  # noqa: E731
    return training._replace(tx=optax.adam(rate, optim.b1, optim.b2, eps=0.0, eps_root=optim.eps))


def bias_correction_one_update_late(training: Training) -> Training:
    adam, *rest = training.state.opt_state
    late = adam._replace(count=adam.count + 1)
    return training._replace(state=training.state.replace(opt_state=(late, *rest)))


def smoothing_over_all_tokens(training: Training) -> Training:
    """The true one keeps 1 - eps_ls + eps_ls / v, the others have eps_ls / v each."""
    v = training.model.vocab_size
    eps_ls = training.cfg.loss.eps_ls * (v - 1) / v
    return training._replace(objective=dataclasses.replace(training.objective, eps_ls=eps_ls))


def loss_averaged_over_sentences(training: Training) -> Training:
    def make_example(batch):
        example = training.objective.make_example(batch)
        tokens_b1 = jnp.sum(example.weights_bt, axis=1, keepdims=True)
        return example._replace(weights_bt=example.weights_bt / jnp.maximum(tokens_b1, 1))

    return training._replace(objective=dataclasses.replace(training.objective, make_example=make_example))


PLANTED: list[Callable[[Training], Training]] = [
    eps_inside_the_root,
    bias_correction_one_update_late,
    smoothing_over_all_tokens,
    loss_averaged_over_sentences,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_error_is_noticed(paper: Training, theirs: Losses, plant: Callable[[Training], Training]) -> None:
    wrong = plant(paper).losses()
    assert wrong[-1] < wrong[0] - 0.3, "the model learns all the same"
    assert np.abs(np.subtract(wrong, theirs)).max() > BOUND
