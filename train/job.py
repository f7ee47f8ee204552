"""What the training loop trains: a task's model and data, and what else validation measures."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from jax.sharding import Mesh
from ml_collections import ConfigDict

from vaswani.data.imported import open_tokenizer
from vaswani.data.pipeline import OnePass
from vaswani.data.sources import open_corpus
from vaswani.infer.evaluate.predictions import summing, total
from vaswani.infer.scores.bleu import sacrebleu
from vaswani.infer.translate.translator import Translator
from vaswani.model.config import ModelConfig
from vaswani.progress import Progress
from vaswani.run.distributed import is_main
from vaswani.search.options import Decoding
from vaswani.tasks import TRANSLATION, task_of
from vaswani.tasks.task import Batch, Batches, Objective
from vaswani.train import cpu_matmuls

Measure = Callable[[dict], dict[str, float]]


class Job(NamedTuple):
    """An objective with its training and validation data, as numpy arrays of this process's rows."""

    objective: Objective
    batches: Batches
    validation_batches: Callable[[], OnePass[Batch]]  # returns every validation record once
    measure: Measure  # returns further metrics of the parameters, such as BLEU
    manifests: dict[str, dict]  # of the data, recorded in the run's `run.json`


def open_job(cfg: ConfigDict, workdir: Path, mesh: Mesh) -> Job:
    """Returns the job of a config; prepares its corpora and the run's tokenizer if they do not exist yet.

    Translation also measures "bleu", sacreBLEU in percent, of greedy translations of the first `eval.bleu_sentences` of
    `data.valid`, if any, without case where the text has none; vision "accuracy", in [0, 1].

    Raises:
      UserError: the config or the corpora are at fault.
    """
    task = task_of(cfg.task)
    data = task.data(cfg, workdir, mesh)
    vocab_size = cfg.data.vocab_size
    source_vocab_size = None
    if vocab_size == 0 and not task.images:
        # With vocab_size 0 the training text decides the size, which the tokenizer knows now.
        tokenizer = open_tokenizer(workdir / "tokenizer.model")
        vocab_size = tokenizer.vocab_size
        source_vocab_size = tokenizer.source_vocab_size
    config = task.config(cfg, vocab_size, source_vocab_size)
    objective = task.objective(cfg, cpu_matmuls.compute_config(cfg, config))
    if cfg.task in TRANSLATION and cfg.eval.bleu_sentences:
        measure = _bleu(cfg, config, workdir, mesh)
    elif task.images:
        # As `infer` computes it, even where the CPU trains in bfloat16.
        measure = _accuracy(task.objective(cfg, config), data.validation_batches, mesh)
    else:
        measure = _nothing
    return Job(objective, data.batches, data.validation_batches, measure, data.manifests)


def _bleu(cfg: ConfigDict, config: ModelConfig, workdir: Path, mesh: Mesh) -> Measure:
    tokenizer = open_tokenizer(workdir / "tokenizer.model")
    corpus = open_corpus(cfg.data.valid)
    pairs = list(itertools.islice(corpus.pairs(), cfg.eval.bleu_sentences))
    sources = [source for source, _ in pairs]
    references = [tokenizer.joined(target) for _, target in pairs]
    greedy = Decoding(beam=1, alpha=0.0, extra_length=cfg.decode.extra_length)
    translator = Translator(config, tokenizer, greedy, mesh=mesh)

    def measure(params: dict) -> dict[str, float]:
        shown = Progress("translating", "lines", total=len(sources), is_summarised=False, enabled=is_main())
        with shown as progress:
            translations = translator.translate(params, sources, progress=progress.update)
        hypotheses = [translation.text for translation in translations]
        lowercase = cfg.data.lowercase
        return {"bleu": sacrebleu(hypotheses, references, lowercase=lowercase, language=corpus.target_language).value}

    return measure


def _accuracy(objective: Objective, batches: Callable[[], OnePass[Batch]], mesh: Mesh) -> Measure:
    sums = summing(objective)

    def measure(params: dict) -> dict[str, float]:
        all_sums = total(sums, mesh, params, batches())
        return {"accuracy": all_sums.right / all_sums.predictions}

    return measure


def _nothing(params: dict) -> dict[str, float]:
    return {}
