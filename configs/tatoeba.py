"""A small Transformer on Tatoeba English-German (163,000 short sentences).

Ours: not run yet. Cost: not measured.

    python -m train --config=configs/tatoeba.py:FOLDER --workdir=runs/tatoeba
    python -m infer --workdir=runs/tatoeba --split=test

FOLDER holds split.en-de.{train,valid,test}.{en,de}.gz; by default ../shared/data/tatoeba. Parts share no sentence of
either language.
"""

from ml_collections import ConfigDict

from configs.common import default


def get_config(folder: str = "../shared/data/tatoeba") -> ConfigDict:
    """Returns the run on the corpus in `folder`."""
    cfg = default()
    cfg.steps = 12_000
    for split in ("train", "valid", "test"):
        cfg.data[split] = f"text:{folder}/split.en-de.{split}.{{en,de}}.gz"
    cfg.data.vocab_size = 8_000
    cfg.data.max_length = 64
    cfg.data.tokens_per_batch = 4_096
    cfg.data.buckets = (8, 10, 12, 15, 18, 24, 64)
    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 3, 256, 1024
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 64, 64
    cfg.model.dropout_bits = "hash"
    cfg.optim.warmup = 2_000
    cfg.checkpoint.every = 300
    cfg.eval.every = 1_200
    return cfg
