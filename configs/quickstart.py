"""The built-in corpus: a synchronous English-German grammar, learnt from nothing in a few minutes on a laptop.

Ours: see the README. Cost: about three minutes on 2 CPU cores.

    python -m train --config=configs/quickstart.py --workdir=runs/quickstart
    python -m infer --workdir=runs/quickstart --split=test
"""

from ml_collections import ConfigDict

from configs.common import default


def get_config() -> ConfigDict:
    """Returns the run."""
    cfg = default()
    cfg.steps = 1_500

    cfg.data.train = "grammar:train:60000"
    cfg.data.valid = "grammar:valid:500"
    cfg.data.test = "grammar:test:1000"
    cfg.data.vocab_size = 1_000
    cfg.data.tokens_per_batch = 4_096
    cfg.data.max_length = 64
    cfg.data.batching = "pack"
    cfg.data.pack_length = 64
    cfg.data.buckets = (16, 32, 64)

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 2, 128, 512
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.dropout_bits = "hash"

    cfg.optim.lr = 2.0
    cfg.optim.warmup = 400

    cfg.checkpoint.every = 100
    cfg.eval.every = 500
    cfg.eval.bleu_sentences = 200
    return cfg
