"""A small Transformer on Tatoeba English-German (163,000 short sentences).

Ours:  41.26 sacreBLEU on the test split (validation: 41.72), one seed. The recipe is `configs/multi30k.py`'s with the
       paper's dropout, since there is five times as much text, and the paper's beam search; nothing was tuned here.
Cost:  108 minutes on one busy CPU core with AMX, in bfloat16, as `configs/multi30k.py` says.
More:  43.15 (validation: 43.36), which `builtin:tatoeba` is, after two and a half more hours of one core; the tries are
       in its card, run/models/tatoeba/README.md.

    python -m train --config=configs/tatoeba.py:FOLDER --workdir=runs/tatoeba
    python -m infer --workdir=runs/tatoeba --split=test

FOLDER holds split.en-de.{train,valid,test}.{en,de}.gz, which no command downloads (data/corpora.py); by default it is
~/.cache/vaswani/corpora/tatoeba. The splits share no sentence in either language.
"""

from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.data.corpora import corpus_folder


def get_config(folder: str = "") -> ConfigDict:
    """Returns the config for the corpus in `folder`."""
    folder = folder or corpus_folder("tatoeba")
    cfg = default()
    cfg.steps = 6_000

    for split in ("train", "valid", "test"):
        cfg.data[split] = f"text:{folder}/split.en-de.{split}.{{en,de}}.gz"
    cfg.data.vocab_size = 8_000
    cfg.data.max_length = 64
    cfg.data.tokens_per_batch = 4_096
    cfg.data.batching = "pack"
    cfg.data.pack_length = 128

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 3, 128, 512
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.dropout_bits = "hash"

    cfg.optim.schedule = "cosine"
    cfg.optim.lr = 5e-3
    cfg.optim.warmup = 1_000

    cfg.checkpoint.every = 200
    cfg.checkpoint.keep_last = 10
    cfg.eval.every = 1_000
    cfg.decode.checkpoint = "average:10"
    return cfg
