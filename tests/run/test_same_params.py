"""Processes that have read different parameters are refused."""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests import tiny
from vaswani.errors import UserError
from vaswani.infer.runs import open_run
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run import distributed
from vaswani.train.warm_start import warm_start


@pytest.fixture
def other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process, which has read something else."""

    def gathered(own_k: np.ndarray) -> np.ndarray:
        return np.stack([own_k, own_k + np.uint32(1)])

    monkeypatch.setattr(distributed, "jax", SimpleNamespace(process_count=lambda: 2, process_index=lambda: 0))
    monkeypatch.setattr(distributed, "_meet", lambda what: None)
    monkeypatch.setattr(distributed.multihost_utils, "process_allgather", gathered)


@pytest.mark.usefixtures("other_process")
def test_a_run_is_not_evaluated_with_other_parameters_in_each_process(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^the parameters of process 1 differ from process 0's; name"):
        open_run(tiny.write_run(tmp_path / "run"), "latest")


@pytest.mark.usefixtures("other_process")
def test_a_run_does_not_begin_with_other_parameters_in_each_process(tmp_path: Path) -> None:
    run = tiny.write_run(tmp_path / "run")
    params = jax.jit(lambda: init_params(Transformer(tiny.TINY), jax.random.key(0)))()
    with pytest.raises(UserError, match=r"^--init=.*: the parameters of process 1 differ from process 0's"):
        warm_start(str(run), params, tmp_path)
