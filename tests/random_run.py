"""A run of a tiny model whose every parameter is random, so that none is at a special value."""

import tempfile
from functools import lru_cache
from pathlib import Path

import jax
import numpy as np

from data.tokenizer import Tokenizer
from infer.runs import Run
from model.transformer import init_params
from run.folder import model_config
from tests import tiny_run


@lru_cache
def tokenizer() -> Tokenizer:
    """Returns the tokenizer of `random_run`, learned from a few sentences."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [line for pair in tiny_run.PAIRS for line in pair]
        return Tokenizer.train(lines, 320, Path(folder) / "tokenizer.model")


def random_run(**model: object) -> Run:
    """Returns a run, of no folder, with these fields of `config.model` in the place of tiny ones."""
    cfg = tiny_run.config(Path("nowhere"))
    cfg.model.update(model)
    config = model_config(cfg, tokenizer().vocab_size)
    shapes = jax.eval_shape(lambda key: init_params(config, key), jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: (0.3 * rng.normal(size=leaf.shape) + (path[-1].key == "scale")).astype(np.float32), shapes
    )
    return Run(Path("nowhere"), cfg, config, tokenizer(), params, 1, (1,))
