"""Validation keeps every line; one that no batch of training could hold is named before the first update."""

from pathlib import Path

import pytest

from tests import tiny
from train import loop


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
    assert place < lines.index("compiling the first update")
