"""A small Transformer on a small news corpus, English-German: the paper's test set, newstest2014, from 31,000 pairs.

The paper trains on 4.5 million pairs (27.3 BLEU); this corpus is 145 times smaller, and its score is no reproduction of
Table 2. The recipe is that of `configs/multi30k.py`, a corpus of the same size, with cased text and with the paper's
beam search; nothing was tuned on this corpus.

    python -m train --config=configs/news.py:FOLDER --workdir=runs/news
    python -m infer --workdir=runs/news --split=test

FOLDER holds news_mini_train.en-de, newstest2013 and newstest2014, each as .en.gz and .de.gz, one raw sentence per line;
by default ../shared/data/wmt/en-de.
"""

from ml_collections import ConfigDict

from configs.common import default


def get_config(folder: str = "../shared/data/wmt/en-de") -> ConfigDict:
    """Returns the config for the corpus in `folder`."""
    cfg = default()
    cfg.steps = 4_500

    cfg.data.train = f"text:{folder}/news_mini_train.en-de.{{en,de}}.gz"
    cfg.data.valid = f"text:{folder}/newstest2013.{{en,de}}.gz"
    cfg.data.test = f"text:{folder}/newstest2014.{{en,de}}.gz"
    cfg.data.vocab_size = 10_000
    cfg.data.max_length = 100
    cfg.data.tokens_per_batch = 4_096
    cfg.data.batching = "pack"
    cfg.data.pack_length = 128

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 4, 128, 256
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.P_drop = 0.3
    cfg.model.dropout_bits = "hash"

    cfg.optim.schedule = "cosine"
    cfg.optim.lr = 5e-3
    cfg.optim.warmup = 1_000

    cfg.checkpoint.every = 140
    cfg.checkpoint.keep_last = 10
    cfg.eval.every = 560
    cfg.decode.checkpoint = "average:10"
    return cfg
