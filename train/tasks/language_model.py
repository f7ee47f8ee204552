"""Language modelling: each token of a text given those before it."""

from functools import partial
from pathlib import Path

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from data.batching import TextBatch
from data.pipeline import TrainingBatches, text_batches
from data.prepare import prepare_all
from model.config import ModelConfig
from model.language_model import LanguageModel, init_params
from model.noise import Noise
from model.tokens import Tokens
from run.distributed import main_first
from run.folder import model_config
from run.sharding import own_share
from train.check import check_rows
from train.loss import Loss, softmax_cross_entropy
from train.task import Objective, Task


def objective(config: ModelConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the label-smoothed cross-entropy of a language model over all tokens of a text, `chunk` at a time."""
    model = LanguageModel(config)

    def loss(params: dict, batch: TextBatch, noise: Noise | None) -> Loss:
        x_btd, softmax_vd = model.apply({"params": params}, *tokens(batch), noise, method="hidden")
        weights_bt = jnp.asarray(batch.segments_bt != 0, jnp.float32)
        return softmax_cross_entropy(x_btd, softmax_vd, jnp.asarray(batch.out_bt), weights_bt, eps_ls, chunk)

    return Objective(partial(init_params, config), loss, tokens)


def tokens(batch: TextBatch) -> tuple[Tokens]:
    """Returns the model's input."""
    return (Tokens(batch.in_bt, batch.segments_bt, batch.positions_bt),)


def task(cfg: ConfigDict, workdir: Path, mesh: Mesh) -> Task:
    """Returns the task of a config; prepares its corpora, and the run's tokenizer, where they do not exist yet.

    Raises:
      UserError: the config or the corpora are at fault.
    """
    config = model_config(cfg, cfg.data.vocab_size)
    with main_first("data"):
        _, train_data, valid_data = prepare_all(cfg.data, workdir / "tokenizer.model", sides=1)
    check_rows(cfg, train_data, valid_data)
    return Task(
        objective(config, cfg.loss.eps_ls, cfg.loss.chunk),
        TrainingBatches(train_data, cfg.data, seed=cfg.seed, share=own_share(mesh, cfg.optim.accumulate)),
        partial(text_batches, valid_data, cfg.data, own_share(mesh)),
        lambda params: {},
        {"train": train_data.manifest, "valid": valid_data.manifest},
    )
