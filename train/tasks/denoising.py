"""Span denoising (Raffel et al. 2020, "T5"): the encoder reads a text with spans left out, the decoder writes them."""

from pathlib import Path

from jax.sharding import Mesh
from ml_collections import ConfigDict

from run.folder import model_config
from train.task import Task
from train.tasks.masked_lm import restoring
from train.tasks.translation import objective


def task(cfg: ConfigDict, workdir: Path, mesh: Mesh) -> Task:
    """Returns the task of a config; see `train.tasks.masked_lm.restoring`."""
    config = model_config(cfg, cfg.data.vocab_size)
    return restoring(cfg, workdir, mesh, objective(config, cfg.loss.eps_ls, cfg.loss.chunk))
