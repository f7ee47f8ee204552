"""What the training of every task is tested for."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from base.errors import UserError
from run.checkpoint import Checkpoints, load_params
from train import loop


def refusal(cfg: ConfigDict, workdir: Path, data: Mapping[str, str]) -> str:
    """Returns the line that training is refused with, with these values in `cfg.data`."""
    cfg.data.update(data)
    with pytest.raises(UserError) as caught:
        loop.train(cfg, workdir)
    return str(caught.value)


def assert_resumes_to_the_same_bits(cfg: ConfigDict, run: Path, folder: Path) -> None:
    """Trains a copy of a run again, in `folder`, from its last checkpoint but one: it must end with the run's bits."""
    again = shutil.copytree(run, folder / "again")
    shutil.rmtree(again / "checkpoints" / str(cfg.steps))
    checkpoints = Checkpoints(again / "checkpoints")
    assert checkpoints.latest(), "it would begin anew"
    checkpoints.close()
    assert loop.train(cfg, again) == 0
    jax.tree.map(np.testing.assert_array_equal, load_params(again, cfg.steps), load_params(run, cfg.steps))
