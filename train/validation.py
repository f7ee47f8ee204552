"""Validation during training: loss, unsmoothed perplexity and greedy BLEU."""

import itertools
from collections.abc import Callable

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from data.batching import Batch
from data.pipeline import evaluation_batches
from data.prepare import Prepared
from data.sources import open_corpus
from data.tokenizer import Tokenizer
from infer.decoding import Decoding
from infer.scores.bleu import corpus_bleu
from infer.translator import Translator
from model.config import ModelConfig
from run.sharding import own_share, place_rows
from train.loss import Loss
from train.metrics import perplexity


class Validation:
    """`data.valid`: all of it for the loss, its first `eval.bleu_sentences` for BLEU."""

    def __init__(
        self,
        cfg: ConfigDict,
        model_config: ModelConfig,
        tokenizer: Tokenizer,
        prepared: Prepared,
        eval_step: Callable[[dict, Batch], Loss],
        mesh: Mesh,
    ) -> None:
        self._cfg, self._prepared, self._eval_step, self._mesh = cfg, prepared, eval_step, mesh
        pairs = list(itertools.islice(open_corpus(cfg.data.valid).pairs(), cfg.eval.bleu_sentences))
        self._sources, self._references = [source for source, _ in pairs], [target for _, target in pairs]
        greedy = Decoding(beam=1, alpha=0.0, extra_length=cfg.decode.extra_length)
        self._translator = Translator(model_config, tokenizer, greedy, mesh=mesh)

    def __call__(self, params: dict) -> dict[str, float]:
        """Returns {"loss", "nll", "perplexity"} in nats a target token, and "bleu" unless that is off."""
        loss_sum = nll_sum = tokens = 0.0
        data, share = self._cfg.data, own_share(self._mesh)
        for batch in evaluation_batches(self._prepared, data.tokens_per_batch, data.buckets, share):
            loss = jax.device_get(self._eval_step(params, place_rows(self._mesh, batch)))
            loss_sum, nll_sum, tokens = loss_sum + loss.loss_sum, nll_sum + loss.nll_sum, tokens + loss.tokens
        nll = float(nll_sum / tokens)
        metrics = {"loss": float(loss_sum / tokens), "nll": nll, "perplexity": perplexity(nll)}
        if self._sources:
            translations = self._translator.translate(params, self._sources)
            metrics["bleu"] = corpus_bleu([translation.text for translation in translations], self._references)
        return metrics
