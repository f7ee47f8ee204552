"""The paper's base recipe on real text, as far as the minutes go: 31,000 and 163,000 pairs, not WMT14's 4.5 million."""

import time
from functools import partial
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from lab.benchmarks.accelerator.record import Options, Part
from lab.benchmarks.accelerator.training import miniature, on_grammar, trained
from vaswani.configs import base

SCORING = 0.2  # of the time, for translating the test split


def recipe() -> ConfigDict:
    """Returns configs/base.py in bfloat16, with a schedule and checkpoints for a few thousand updates."""
    cfg = base.get_config()
    cfg.model.dtype = "bfloat16"
    cfg.model.dropout_bits = "hash"
    cfg.model.attention_impl = "cudnn"
    cfg.loss.chunk = 8_192  # a GPU has the memory
    cfg.data.update({"batching": "pack", "max_length": 256, "pack_length": 256, "buckets": (64, 256)})
    cfg.steps = 6_000
    cfg.optim.warmup = 1_000
    cfg.checkpoint.every = 1_000  # 780 MB each
    cfg.eval.every = 1_000
    cfg.eval.bleu_sentences = 0
    # So little text is soon known by heart: the checkpoints of the lowest validation loss are averaged.
    cfg.checkpoint.keep_best = 5
    cfg.decode.checkpoint = "average-best:5"
    return cfg


def corpora(folder: Path | None) -> dict[str, ConfigDict]:
    """Returns the config of each corpus in the folder; without one, of the built-in grammar."""
    if folder is None:
        return {"grammar": on_grammar(recipe(), 200_000)}
    news = recipe()
    tatoeba = recipe()
    for split, name in (("train", "news_mini_train.en-de"), ("valid", "newstest2013"), ("test", "newstest2014")):
        news.data[split] = f"text:{folder}/wmt/en-de/{name}.{{en,de}}.gz"
        tatoeba.data[split] = f"text:{folder}/tatoeba/split.en-de.{split}.{{en,de}}.gz"
    # What so little text supports.
    news.data.vocab_size = 16_000
    tatoeba.data.vocab_size = 8_000
    return {"news": news, "tatoeba": tatoeba}


def parts(options: Options) -> dict[str, Part]:
    """Returns a training run for each corpus; they share the time equally."""
    configs = corpora(None if options.tiny else options.corpora)
    end = time.monotonic() + options.seconds
    left = len(configs)

    def one(name: str, cfg: ConfigDict) -> dict[str, Any]:
        nonlocal left
        seconds = (end - time.monotonic()) / left  # an equal share of what is left
        left -= 1
        return trained(cfg, options.runs / f"corpus-{name}", seconds * (1 - SCORING), whole=False)

    found: dict[str, Part] = {}
    for name, cfg in configs.items():
        if options.tiny:
            miniature(cfg)
        found[name] = partial(one, name, cfg)
    return found
