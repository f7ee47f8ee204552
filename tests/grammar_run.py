"""A tiny run whose subwords are learned from the built-in grammar, so that its sentences are short."""

from pathlib import Path

import pytest
from ml_collections import ConfigDict

from data.grammar import sentences as grammar
from tests import tiny_run


def make(folder: Path) -> Path:
    """Writes an untrained run as `tests.tiny_run` does, and returns its folder."""
    config = tiny_run.config

    def words(folder: Path) -> ConfigDict:
        cfg = config(folder)
        cfg.data.vocab_size = 1200
        return cfg

    examples = [grammar.pair("train", i) for i in range(400)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_run, "PAIRS", [(example.english, example.german) for example in examples])
        patch.setattr(tiny_run, "config", words)
        return tiny_run.make(folder)
