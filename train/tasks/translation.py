"""Translation: predicts the next target token from the source sentence and the target so far."""

import itertools
from functools import partial
from pathlib import Path

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from data.batching import Batch
from data.pipeline import TrainingBatches, evaluation_batches
from data.prepare import prepare_all
from data.sources import open_corpus
from infer.scores.bleu import corpus_bleu
from infer.translate.options import Decoding
from infer.translate.translator import Translator
from model.config import ModelConfig
from model.noise import Noise
from model.prefix_lm import init_params, translation_model
from model.tokens import Tokens
from run.distributed import main_first
from run.folder import model_config
from run.sharding import own_share
from train.check import check_rows
from train.loss import Loss, softmax_cross_entropy
from train.task import Objective, Task


def objective(config: ModelConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the paper's model with label-smoothed cross-entropy over target tokens, `chunk` at a time (0: all)."""
    model = translation_model(config)

    def loss(params: dict, batch: Batch, noise: Noise | None) -> Loss:
        x_btd, softmax_vd = model.apply({"params": params}, *tokens(batch), noise, method="hidden")
        target_bt = jnp.asarray(batch.target_out_bt)
        weights_bt = jnp.asarray(batch.target_segments_bt != 0, jnp.float32)
        return softmax_cross_entropy(x_btd, softmax_vd, target_bt, weights_bt, eps_ls, chunk)

    return Objective(partial(init_params, config), loss, tokens)


def tokens(batch: Batch) -> tuple[Tokens, Tokens]:
    """Returns the source and the decoder's input."""
    source = Tokens(batch.source_bs, batch.source_segments_bs, batch.source_positions_bs)
    return source, Tokens(batch.target_in_bt, batch.target_segments_bt, batch.target_positions_bt)


def task(cfg: ConfigDict, workdir: Path, mesh: Mesh) -> Task:
    """Returns the task of a config; prepares its corpora and the run's tokenizer if they do not exist yet.

    `measure` returns {"bleu"}, of greedy translations of the first `eval.bleu_sentences` of `data.valid`; {} if 0.

    Raises:
      UserError: the config or the corpora are at fault.
    """
    config = model_config(cfg, cfg.data.vocab_size)
    with main_first("data"):
        tokenizer, train_data, valid_data = prepare_all(cfg.data, workdir / "tokenizer.model", sides=2)
    check_rows(cfg, train_data, valid_data)
    pairs = list(itertools.islice(open_corpus(cfg.data.valid).pairs(), cfg.eval.bleu_sentences))
    references = [tokenizer.joined(target) for _, target in pairs]
    greedy = Decoding(beam=1, alpha=0.0, extra_length=cfg.decode.extra_length)
    translator = Translator(config, tokenizer, greedy, mesh=mesh)

    def measure(params: dict) -> dict[str, float]:
        if not pairs:
            return {}
        translations = translator.translate(params, [source for source, _ in pairs])
        return {"bleu": corpus_bleu([one.text for one in translations], references)}

    share = own_share(mesh, cfg.optim.accumulate)
    return Task(
        objective(config, cfg.loss.eps_ls, cfg.loss.chunk),
        TrainingBatches(train_data, cfg.data, seed=cfg.seed, share=share),
        partial(evaluation_batches, valid_data, cfg.data.tokens_per_batch, cfg.data.buckets, own_share(mesh)),
        measure,
        {"train": train_data.manifest, "valid": valid_data.manifest},
    )
