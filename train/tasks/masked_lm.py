"""Masked language modelling: the tokens that were hidden from a text, each given what is on both sides of it."""

from functools import partial
from pathlib import Path

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from base.errors import UserError
from base.ids import EOS, PAD
from data.batching import Batch
from data.classes import Classified
from data.corrupt import Corrupted, corruption
from data.pipeline import TrainingBatches, evaluation_batches
from data.prepare import prepare_all
from model.config import ModelConfig
from model.masked_lm import MaskedLM, init_params
from model.noise import Noise
from model.tokens import Tokens
from run.distributed import main_first
from run.folder import model_config
from run.sharding import own_share
from train.check import check_rows
from train.loss import Loss, softmax_cross_entropy
from train.task import Objective, Task


def objective(config: ModelConfig, eps_ls: float, chunk: int = 0, classes: int = 0) -> Objective:
    """Returns the label-smoothed cross-entropy of a masked language model over the chosen tokens, `chunk` at a time.

    With `classes` it is that of a classifier with so many, over texts.
    """
    model = MaskedLM(config, classes)

    def loss(params: dict, batch: Batch, noise: Noise | None) -> Loss:
        x_btd, softmax_vd = model.apply({"params": params}, *tokens(batch), noise, method="hidden")
        chosen_bt = batch.source_bs == EOS if classes else batch.target_out_bt != PAD
        weights_bt = jnp.asarray(chosen_bt, jnp.float32)
        return softmax_cross_entropy(x_btd, softmax_vd, jnp.asarray(batch.target_out_bt), weights_bt, eps_ls, chunk)

    return Objective(partial(init_params, config, classes=classes), loss, tokens)


def tokens(batch: Batch) -> tuple[Tokens]:
    """Returns the model's input, the corrupted text."""
    return (Tokens(batch.source_bs, batch.source_segments_bs, batch.source_positions_bs),)


def task(cfg: ConfigDict, workdir: Path, mesh: Mesh) -> Task:
    """Returns the task of a config; see `restoring`."""
    config = model_config(cfg, cfg.data.vocab_size)
    return restoring(cfg, workdir, mesh, objective(config, cfg.loss.eps_ls, cfg.loss.chunk))


def restoring(cfg: ConfigDict, workdir: Path, mesh: Mesh, objective: Objective) -> Task:
    """Returns the task to restore the corpora of a config from what `config.task` leaves of them.

    Prepares them, and the run's tokenizer, where they do not exist yet. The validation text is always corrupted alike.

    Raises:
      UserError: the config or the corpora are at fault.
    """
    with main_first("data"):
        tokenizer, train_data, valid_data = prepare_all(cfg.data, workdir / "tokenizer.model", sides=1)
    if valid_data.lengths.max() < 2:
        raise UserError(f"data.valid is {cfg.data.valid}, whose lines are all empty: there is nothing to restore")
    corrupt = corruption(cfg.task, cfg.data, tokenizer)
    return of_pairs(cfg, mesh, objective, Corrupted(train_data, corrupt, cfg.seed), Corrupted(valid_data, corrupt))


def of_pairs(
    cfg: ConfigDict, mesh: Mesh, objective: Objective, train: Corrupted | Classified, valid: Corrupted | Classified
) -> Task:
    """Returns the task of an objective over pairs in the form of `data.corrupt`."""
    check_rows(cfg, train, valid)
    share = own_share(mesh, cfg.optim.accumulate)
    return Task(
        objective,
        TrainingBatches(train, cfg.data, seed=cfg.seed, share=share),
        partial(evaluation_batches, valid, cfg.data.tokens_per_batch, cfg.data.buckets, own_share(mesh)),
        lambda params: {},
        {"train": train.manifest, "valid": valid.manifest},
    )
