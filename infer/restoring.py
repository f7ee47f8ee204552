"""How well a masked language model or span denoising restores a text, and a classifier names its class."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from base.errors import UserError
from base.ids import EOS, PAD
from base.numbers import from_nll
from data.batching import Batch
from data.classes import Classified, classes_of
from data.corrupt import Corrupted, corruption
from data.pipeline import evaluation_batches
from infer.language_model import open_text, provenance
from infer.runs import Run, corpus_named
from model.masked_lm import MaskedLM
from model.tokens import Tokens
from model.transformer import Transformer
from run.sharding import data_mesh, own_share, place_params, place_rows


def evaluate(model_run: Run, split: str, task: str | None = None) -> dict[str, Any]:
    """Returns the result record, of JSON values, of `split`: one of the run's config, or a corpus.

    `nll` is in nats a hidden token, `perplexity` its exponential, and `accuracy` the share that the likeliest token
    gets right. What is hidden is the same each time. Of spans, each token is predicted given those before it; their
    sentinels and EOS count as tokens. A classifier predicts the classes of texts instead. `task` is the run's by
    default.

    Raises:
      UserError: there is no such text, the vocabulary lacks what the task needs, or a line is longer than the learned
        positions.
    """
    cfg, task = model_run.config.data, task or model_run.config.task
    mesh, started = data_mesh(), time.perf_counter()
    model, pairs, unit = _what(model_run, split, task)

    @jax.jit
    def sums(params: Any, batch: Batch) -> Float[Array, "3"]:
        """Returns minus the log-probability of the hidden tokens, how many are right, and how many there are."""
        inputs = [Tokens(batch.source_bs, batch.source_segments_bs, batch.source_positions_bs)]
        if task == "denoising":
            inputs.append(Tokens(batch.target_in_bt, batch.target_segments_bt, batch.target_positions_bt))
        log_probs_btv = jax.nn.log_softmax(model.apply({"params": params}, *inputs))
        hidden_bt = batch.target_out_bt
        chosen_bt = batch.source_bs == EOS if task == "classification" else hidden_bt != PAD
        nll_bt = -jnp.take_along_axis(log_probs_btv, hidden_bt[..., None], axis=-1)[..., 0]
        of_bt3 = jnp.stack([nll_bt, log_probs_btv.argmax(axis=-1) == hidden_bt, jnp.ones_like(nll_bt)], axis=-1)
        return jnp.sum(of_bt3, axis=(0, 1), where=chosen_bt[..., None])

    params, total_3 = place_params(mesh, model_run.params), np.zeros(3)
    try:
        with jax.set_mesh(mesh):
            for batch in evaluation_batches(pairs, cfg.tokens_per_batch, cfg.buckets, own_share(mesh)):
                total_3 += jax.device_get(sums(params, place_rows(mesh, batch)))
    except ValueError as error:
        raise UserError(f"a sentence is too long for this model: {error}") from error
    nll, right, tokens = total_3.tolist()
    if not tokens:
        raise UserError(f"{corpus_named(model_run.config, split)} has no token to hide; its lines are empty")
    return {
        "nll": nll / tokens,
        "perplexity": from_nll(nll / tokens),
        "accuracy": right / tokens,
        "signatures": {"perplexity": f"{unit}|task:{task}"},
        "texts" if task == "classification" else "tokens": int(tokens),
        "seconds": time.perf_counter() - started,
        **provenance(model_run, split),
    }


def _what(model_run: Run, split: str, task: str) -> tuple[MaskedLM | Transformer, Corrupted | Classified, str]:
    """Returns the model, what it is to predict, and the unit of its perplexity."""
    data, tokenizer = model_run.config.data, model_run.tokenizer
    if task == "classification":
        classes = classes_of(data.classes)
        pairs = Classified(open_text(model_run, split, sides=2)[1], tokenizer, classes)
        return MaskedLM(model_run.model_config, len(classes)), pairs, f"unit:text|classes:{len(classes)}"
    corrupted = Corrupted(open_text(model_run, split)[1], corruption(task, data, tokenizer))
    family = MaskedLM if task == "masked_lm" else Transformer
    return family(model_run.model_config), corrupted, f"unit:hidden subword|vocabulary:{tokenizer.vocab_size}"
