"""What the training of every task is tested for."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.run import saved
from vaswani.run.checkpoint import load_params
from vaswani.tasks.config import model_config
from vaswani.train import loop
from vaswani.train.check import check


def refusal(cfg: ConfigDict, workdir: Path, data: Mapping[str, str | int]) -> str:
    """Returns the line that training is refused with, with these values in `cfg.data`."""
    cfg.data.update(data)
    with pytest.raises(UserError) as caught:
        loop.train(cfg, workdir)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refusal_of_config(cfg: ConfigDict) -> str:
    """Returns the line that a config is refused with, before a model is made of it."""
    with pytest.raises(UserError) as caught:
        check(cfg, default())
        model_config(cfg, cfg.data.vocab_size)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_resumes_to_the_same_bits(cfg: ConfigDict, run: Path, folder: Path) -> None:
    """Trains a copy of a run again, in `folder`, from its last checkpoint but one: it must end with the run's bits."""
    again = shutil.copytree(run, folder / "again")
    shutil.rmtree(again / "checkpoints" / str(cfg.steps))
    assert saved.steps(again / "checkpoints"), "it would begin anew"
    assert loop.train(cfg, again) == 0
    jax.tree.map(np.testing.assert_array_equal, load_params(again, cfg.steps), load_params(run, cfg.steps))
