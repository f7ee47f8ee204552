"""Validation keeps every line; one that no batch of training could hold is named before the first update."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests import tiny
from vaswani.configs.common import default
from vaswani.data.row_lengths import check_positions
from vaswani.errors import UserError
from vaswani.train import loop


def test_a_line_longer_than_a_batch_is_named_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.data.units, cfg.data.vocab_size, cfg.steps = "words", 0, 1
    assert loop.train(cfg, tmp_path / "without") == 0
    assert "data.valid has a line" not in capsys.readouterr().err
    for language in ("en", "de"):
        with (tmp_path / f"valid.{language}").open("a") as valid:
            valid.write("the " * 200 + "\n")
    assert loop.train(cfg, tmp_path / "run") == 0
    lines = capsys.readouterr().err.splitlines()
    note = "note: data.valid has a line of 201 tokens, more than a batch (data.tokens_per_batch is 192): if validation"
    (place,) = [number for number, line in enumerate(lines) if line.startswith(note)]
    assert place < lines.index("compiling the first step")


def test_validation_needs_as_many_learned_positions_as_its_longest_line_and_training_as_its_longest_bucket() -> None:
    cfg_data = default().data
    cfg_data.batching, cfg_data.buckets = "bucket", (64, 128)
    short, long = (SimpleNamespace(lengths=np.array([[longest, 5]])) for longest in (60, 74))
    check_positions(cfg_data, 74, short, long)
    with pytest.raises(
        UserError, match=r"max_positions is 73; it must be at least 74, as long as the rows of data.valid"
    ):
        check_positions(cfg_data, 73, short, long)
    check_positions(cfg_data, 128, long, short)
    with pytest.raises(UserError, match=r"is 127; it must be at least 128, as long as the rows of data.train"):
        check_positions(cfg_data, 127, long, short)
