"""Multi30k with the published recipe and batch: 41.02 BLEU, tokenised and lower-cased (configs/multi30k.py)."""

import time
from functools import partial
from typing import Any

from ml_collections import ConfigDict

from lab.benchmarks.accelerator.record import Options, Part
from lab.benchmarks.accelerator.training import miniature, trained
from vaswani.configs import multi30k
from vaswani.errors import UserError

SEEDS = (0, 1, 2)


def recipe(options: Options, seed: int) -> ConfigDict:
    """Returns configs/multi30k.py with the published batch, number of updates and schedule."""
    cfg = multi30k.get_config(f"{options.corpora}/multi30k")
    cfg.seed = seed
    cfg.steps = 8_000
    cfg.data.update({"tokens_per_batch": 8_192, "pack_length": 64})
    cfg.optim.update({"schedule": "paper", "lr": 2.5, "warmup": 2_000})  # a peak of 5e-3
    cfg.model.dtype = "bfloat16"
    cfg.checkpoint.every = 200
    cfg.eval.every = 2_000
    cfg.eval.bleu_sentences = 0
    return miniature(cfg) if options.tiny else cfg


def parts(options: Options) -> dict[str, Part]:
    """Returns a training run for each seed; in miniature one, on the built-in grammar."""
    seeds = SEEDS[:1] if options.tiny else SEEDS
    end = time.monotonic() + options.seconds

    def one(seed: int) -> dict[str, Any]:
        if options.corpora is None and not options.tiny:
            raise UserError("not run: it needs --corpora")
        return trained(recipe(options, seed), options.runs / f"multi30k-{seed}", end - time.monotonic())

    return {f"seed {seed}": partial(one, seed) for seed in seeds}
