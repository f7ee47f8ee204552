"""A config and a batch small enough to train in a test."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from base.errors import UserError
from base.tokens import Tokens
from configs.common import default
from data.batching import Batch
from train import loop

WORDS = ["a", "the", "dog", "cat", "man", "woman", "walks", "runs", "old", "young", "red", "two", "street", "house"]


def config(folder: Path) -> ConfigDict:
    """Writes 200 random pairs into `folder` and returns a one-layer config; one batch shape, so one compilation."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 200), ("valid", 8)):
        lines = [" ".join(rng.choice(WORDS, size=rng.integers(2, 7))) for _ in range(count)]
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{split}.de").write_text("".join(f"{line[::-1]}\n" for line in lines))
    cfg = default()
    cfg.steps, cfg.log_every = 12, 4
    cfg.data.train, cfg.data.valid = (f"text:{folder}/{split}.{{en,de}}" for split in ("train", "valid"))
    cfg.data.update({"cache": str(folder / "cache"), "vocab_size": 300, "tokens_per_batch": 192, "max_length": 48})
    cfg.data.update({"buckets": (48,), "pack_length": 48})
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "d_k": 4, "d_v": 4, "P_drop": 0.1})
    cfg.optim.warmup = 8
    cfg.checkpoint.every, cfg.eval.every, cfg.eval.bleu_sentences = 4, 100, 0
    return cfg


def refusal(cfg: ConfigDict, workdir: Path, data: Mapping[str, str]) -> str:
    """Returns the line that training is refused with, with these values in `cfg.data`."""
    cfg.data.update(data)
    with pytest.raises(UserError) as caught:
        loop.train(cfg, workdir)
    return str(caught.value)


def config_file(folder: Path, cfg: ConfigDict) -> Path:
    """Writes a config file whose `get_config()` is `cfg`."""
    path = folder / "tiny_config.py"
    path.write_text(
        "from configs.common import default\n\n\ndef get_config():\n    cfg = default()\n"
        + "".join(f"    cfg.{key} = {value!r}\n" for key, value in _leaves(cfg))
        + "    return cfg\n"
    )
    return path


def batch(rows: int = 4, length: int = 6, vocab_size: int = 20, seed: int = 0) -> Batch:
    """Returns random sentences, one per row, of unequal lengths; the last row is empty, as in an epoch's last batch."""
    rng = np.random.default_rng(seed)
    lengths_b = rng.integers(2, length + 1, size=rows)
    lengths_b[-1] = 0
    real_bt = np.arange(length) < lengths_b[:, None]
    segments_bt = real_bt.astype(np.int32)
    positions_bt = (np.arange(length) * real_bt).astype(np.int32)
    source_bs, target_in_bt, target_out_bt = (
        (rng.integers(4, vocab_size, size=(rows, length)) * real_bt).astype(np.int32) for _ in range(3)
    )
    source = Tokens(source_bs, segments_bt, positions_bt)
    target = Tokens(target_in_bt, segments_bt, positions_bt)
    return Batch(source, target, target_out_bt)


def _leaves(cfg: ConfigDict, prefix: str = "") -> list[tuple[str, object]]:
    leaves: list[tuple[str, object]] = []
    for key, value in cfg.items():
        leaves += _leaves(value, f"{prefix}{key}.") if isinstance(value, ConfigDict) else [(prefix + key, value)]
    return leaves
