"""A small Transformer on Tatoeba English-German (163,000 short sentences).

Ours:  27.64 sacreBLEU on the test split after 1,500 updates; the rest is in the README's table.
Cost:  29 minutes on 2 shared CPU cores. The learning rate is then still near its peak: more updates would help.

    python -m train --config=configs/tatoeba.py:FOLDER --workdir=runs/tatoeba
    python -m infer --workdir=runs/tatoeba --split=test

FOLDER holds split.en-de.{train,valid,test}.{en,de}.gz; by default ../shared/data/tatoeba. The splits share no sentence
in either language.
"""

from ml_collections import ConfigDict

from configs.common import default


def get_config(folder: str = "../shared/data/tatoeba") -> ConfigDict:
    """Returns the config for the corpus in `folder`."""
    cfg = default()
    cfg.steps = 1_500
    for split in ("train", "valid", "test"):
        cfg.data[split] = f"text:{folder}/split.en-de.{split}.{{en,de}}.gz"
    cfg.data.vocab_size = 8_000
    cfg.data.max_length = 64
    cfg.data.tokens_per_batch = 4_096
    cfg.data.buckets = (8, 10, 12, 15, 18, 24, 64)
    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 3, 128, 512
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.dropout_bits = "hash"
    cfg.optim.lr = 2.0  # a peak of 5.6e-3
    cfg.optim.warmup = 1_000
    cfg.checkpoint.every = 100
    cfg.eval.every = 250
    return cfg
