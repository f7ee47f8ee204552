"""Makes the folder of an untrained run of a tiny model, as training would leave it."""

import atexit
import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from configs.common import default
from data.tokenizer import Tokenizer
from model.config import ModelConfig
from model.transformer import init_params
from run.checkpoint import Checkpoints

PAIRS = [
    ("The dog sleeps.", "Der Hund schläft."),
    ("We read a new book.", "Wir lesen ein neues Buch."),
    ("The old cat sees the dog.", "Die alte Katze sieht den Hund."),
    ("You write an e-mail.", "Du schreibst eine E-Mail."),
]
METRICS = {1: {"loss": 3.0, "bleu": 1.0}, 2: {"loss": 2.0, "bleu": 9.0}, 3: {"loss": 1.0, "bleu": 4.0}, 4: None}


class State(NamedTuple):
    """The part of a training state that readers use."""

    step: Any
    params: Any


def make(folder: Path) -> Path:
    """Writes a run with checkpoints 1 to 4, of which 2 has the best BLEU, and returns its folder."""
    shutil.copytree(_made(tuple(PAIRS), config(folder).data.vocab_size), folder)
    for language, lines in (("en", [x for x, _ in PAIRS]), ("de", [y for _, y in PAIRS])):
        (folder.parent / f"tiny.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config(folder).to_dict()))
    return folder


@lru_cache
def _made(pairs: tuple[tuple[str, str], ...], vocab_size: int) -> Path:
    """Returns a folder with what does not depend on its name, written once in each process of tests."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    cfg = config(folder)
    lines = [line for pair in pairs for line in pair]
    tokenizer = Tokenizer.train(lines, vocab_size, folder / "tokenizer.model")
    checkpoints = Checkpoints(folder / "checkpoints", cfg.checkpoint)
    for step, metrics in METRICS.items():
        state = State(np.int32(step), params(tokenizer.vocab_size, cfg, step))
        checkpoints.save(step, state, {"epoch": 0}, metrics, {"seed": 0})
    checkpoints.close()
    return folder


def config(folder: Path) -> ConfigDict:
    """Returns a config with two layers of two heads, and a test split that does not exist yet."""
    cfg = default()
    cfg.data.vocab_size = 320
    cfg.data.test = f"text:{folder.parent}/tiny.{{en,de}}"
    cfg.model.update({"N": 2, "d_model": 8, "d_ff": 16, "h": 2, "d_k": 4, "d_v": 4})
    cfg.decode.update({"beam": 1, "extra_length": 3, "checkpoint": "average:3"})
    return cfg


def params(vocab_size: int, cfg: ConfigDict, step: int) -> Any:
    """Returns the parameters of checkpoint `step`: the same initial ones, with a small change for each step."""
    rng = np.random.default_rng(step)
    fresh = _fresh(ModelConfig(vocab_size=vocab_size, **cfg.model.to_dict()))
    return jax.tree.map(lambda leaf: leaf + rng.normal(scale=0.02, size=leaf.shape).astype(np.float32), fresh)


@lru_cache
def _fresh(model: ModelConfig) -> Any:
    return jax.device_get(init_params(model, jax.random.key(0)))
