"""A small Transformer on Multi30k English-German (29,000 image captions), scored on test_2016_flickr.

Published: 41.02 BLEU, tokenised and lower-cased (Wu et al. 2021, "Good for Misconceived Reasons", the "tiny" model).
Ours:      see the README's table.
Cost:      see the README's table; 2 CPU cores are enough.

    python -m train --config=configs/multi30k.py:FOLDER --workdir=runs/multi30k
    python -m infer --workdir=runs/multi30k --split=test

FOLDER holds {train,val,test_2016_flickr}.{en,de}.gz, one raw sentence a line; by default ../shared/data/multi30k.
The model is the published one (4+4 layers, d_model 128, shared embeddings, label smoothing 0.1). Its training is far
shorter, for a laptop: 14 epochs (2,000 updates of 4,096 positions; published 8,000 of 8,192), a cosine schedule that
falls to zero within them, dropout 0.1 (published 0.3), cased text and fewer subwords.
"""

from ml_collections import ConfigDict

from configs.common import default


def get_config(folder: str = "../shared/data/multi30k") -> ConfigDict:
    """Returns the run on the corpus in `folder`."""
    cfg = default()
    cfg.steps = 2_000

    cfg.data.train = f"text:{folder}/train.{{en,de}}.gz"
    cfg.data.valid = f"text:{folder}/val.{{en,de}}.gz"
    cfg.data.test = f"text:{folder}/test_2016_flickr.{{en,de}}.gz"
    cfg.data.vocab_size = 4_000
    cfg.data.max_length = 64
    cfg.data.tokens_per_batch = 4_096
    cfg.data.buckets = (12, 15, 18, 21, 25, 31, 40, 64)

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 4, 128, 256
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.P_drop = 0.1
    cfg.model.dropout_bits = "hash"

    cfg.optim.schedule = "cosine"
    cfg.optim.lr = 4e-3
    cfg.optim.warmup = 300

    cfg.checkpoint.every = 50
    cfg.checkpoint.keep_last = 10
    cfg.eval.every = 500
    cfg.decode.beam = 5
    return cfg
