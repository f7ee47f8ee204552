"""A small Transformer on the built-in corpus, a synchronous English-German grammar: minutes of training on a laptop.

Ours:  see the README's table.
Cost:  about two minutes of training on 2 CPU cores.

    python -m train --config=configs/quickstart.py --workdir=runs/quickstart
    python -m infer --workdir=runs/quickstart --split=test
"""

from ml_collections import ConfigDict

from vaswani.configs.common import default


def get_config() -> ConfigDict:
    """Returns the config."""
    cfg = default()
    cfg.steps = 370

    cfg.data.train = "grammar:train:40000"
    cfg.data.valid = "grammar:valid:500"
    cfg.data.test = "grammar:test:1000"
    cfg.data.vocab_size = 1_800  # nearly one subword per word
    cfg.data.tokens_per_batch = 4_096
    cfg.data.max_length = 64
    cfg.data.batching = "pack"
    cfg.data.pack_length = 64
    cfg.data.buckets = (16, 32, 64)

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 2, 128, 512
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.P_drop = 0.0  # each sentence is trained on some 3 times only, so there is little to overfit
    cfg.model.dropout_bits = "hash"

    cfg.optim.schedule = "cosine"  # a run this short gains much from a rate that decays to zero
    cfg.optim.lr = 5e-3
    cfg.optim.warmup = 80

    cfg.checkpoint.every = 20
    cfg.eval.every = 185
    cfg.eval.bleu_sentences = 200
    return cfg
