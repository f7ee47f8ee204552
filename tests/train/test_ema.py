"""The moving average of the parameters (`optim.ema`), which `--checkpoint=ema` names."""

from pathlib import Path

import jax
import numpy as np
import pytest

from tests import tiny
from vaswani.errors import UserError
from vaswani.run.averaging import load_choice
from vaswani.run.checkpoint import load_params
from vaswani.train import loop


@pytest.mark.slow
@pytest.mark.parametrize("clip_norm", [1.0, 0.0])
def test_the_average_weighs_each_update_less_than_the_next_and_changes_the_parameters_by_rounding(
    tmp_path: Path, clip_norm: float
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = cfg.checkpoint.keep_last = 5
    cfg.checkpoint.every = 1
    cfg.optim.clip_norm = clip_norm
    assert loop.train(cfg, tmp_path / "plain") == 0
    cfg.optim.ema = 0.75
    assert loop.train(cfg, tmp_path / "run") == 0
    each = [load_params(tmp_path / "run", step) for step in range(1, 6)]
    plain = load_params(tmp_path / "plain", 5)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6), each[-1], plain)
    weights = 0.75 ** np.arange(4, -1, -1)
    weights /= weights.sum()
    expected = jax.tree.map(lambda *leaves: np.tensordot(weights, np.stack(leaves), 1), *each)
    steps, ema = load_choice(tmp_path / "run", "ema")
    assert steps == [5]
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6), ema, expected)
    assert any(np.abs(a - b).max() > 1e-4 for a, b in zip(*map(jax.tree.leaves, (ema, each[-1])), strict=True))

    with pytest.raises(UserError, match=r"plain: this run keeps no average of its parameters; --config\.optim\.ema"):
        load_choice(tmp_path / "plain", "ema")


@pytest.mark.slow
def test_a_resumed_run_continues_the_average_to_the_same_bits(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = 4
    cfg.optim.ema = 0.9
    assert loop.train(cfg, tmp_path / "whole") == 0
    cfg.steps = 2
    assert loop.train(cfg, tmp_path / "halves") == 0
    cfg.steps = 4
    assert loop.train(cfg, tmp_path / "halves") == 0
    ema, resumed = (load_choice(tmp_path / name, "ema")[1] for name in ("whole", "halves"))
    jax.tree.map(np.testing.assert_array_equal, ema, resumed)
