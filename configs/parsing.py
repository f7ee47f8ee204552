"""English constituency parsing as translation of sentences into trees (section 6.3, Table 4).

| row | training | paper, F1 on WSJ section 23 | ours |
|---|---|---|---|
| wsj | Wall Street Journal only, about 40,000 sentences | 91.3 | not run |
| semi | with the high-confidence and BerkeleyParser corpora, about 17 million sentences | 92.7 | not run |
| small | the built-in grammar and its trees, 90,000 sentences | - | 99.7 on held-out sentences of the grammar |

Cost:  not given in the paper; small trains in 5 minutes on 2 CPU cores.

    python -m train --config=configs/parsing.py:small --workdir=runs/parsing
    python -m infer.parse --workdir=runs/parsing --split=test

    python -m train --config=configs/parsing.py:wsj --workdir=runs/wsj
    python -m infer.parse --workdir=runs/wsj --split=test

The treebanks need a licence, and no command downloads them. wsj reads 02-21.mrg, 22.mrg and 23.mrg in the folder
~/.cache/vaswani/corpora/wsj, or in the folder wsj of $VASWANI_CORPORA: the concatenated files of the sections
(`cat 0[2-9]/*.mrg 1?/*.mrg 2[01]/*.mrg`), with traces and function tags. semi also reads semi.mrg.gz there, all of its
training trees. For other places set `--config.data.train=trees:FILE`, and likewise `valid` and `test`.

The paper gives 4 layers, d_model 1024, vocabularies of 16,000 and 32,000, beam 21, alpha 0.3, and outputs of up to 300
symbols beyond the input. All else is as in the base model except dropout and learning rate, which were chosen on
section 22 and are not given. Here they are tensor2tensor's (`transformer_parsing_base_dr6`, v1.0.3): 0.2 on residuals
and attention weights, five times the learning rate of translation, 16,000 updates of warm-up, 512 symbols per side.
The paper does not give d_k and d_v: d_model / h here, as in tensor2tensor and row C5 of Table 3. Nor does it give the
number of updates, here the base model's, or the treatment of outputs that are not trees: see `data/trees/linearise.py`.
"""

from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.data.corpora import corpus_folder

VOCABULARY = {"wsj": 16_000, "semi": 32_000}


def get_config(row: str = "wsj") -> ConfigDict:
    """Returns the config of the row "wsj", "semi" or "small"; raises `ValueError` if there is no such row."""
    if row not in (*VOCABULARY, "small"):
        raise ValueError(f"there is no row {row!r}; the rows are {', '.join(VOCABULARY)} and small")
    cfg = default()
    cfg.decode.beam = 21
    cfg.decode.alpha = 0.3
    return _small(cfg) if row == "small" else _published(cfg, row)


def _published(cfg: ConfigDict, row: str) -> ConfigDict:
    cfg.data.vocab_size = VOCABULARY[row]
    wsj = corpus_folder("wsj")
    cfg.data.train = f"trees:{wsj}/02-21.mrg" if row == "wsj" else f"trees:{wsj}/semi.mrg.gz"
    cfg.data.valid = f"trees:{wsj}/22.mrg"
    cfg.data.test = f"trees:{wsj}/23.mrg"
    cfg.data.max_length = 512
    cfg.data.buckets = (*cfg.data.buckets, 384, 512)

    cfg.model.N, cfg.model.d_model = 4, 1024
    cfg.model.d_k = cfg.model.d_v = 128
    cfg.model.P_drop = cfg.model.P_drop_attention = 0.2

    cfg.optim.lr = 5.0
    cfg.optim.warmup = 16_000
    cfg.decode.extra_length = 300
    return cfg


def _small(cfg: ConfigDict) -> ConfigDict:
    cfg.steps = 700

    cfg.data.train = "trees:grammar:train:90000"
    cfg.data.valid = "trees:grammar:valid:500"
    cfg.data.test = "trees:grammar:test:1000"
    cfg.data.vocab_size = 1_000  # one subword per word
    cfg.data.tokens_per_batch = 4_096
    cfg.data.max_length = 96
    cfg.data.batching = "pack"
    cfg.data.pack_length = 96
    cfg.data.buckets = (16, 32, 48, 64, 96)

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 2, 128, 512
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.P_drop = 0.0  # no sentence is trained on twice, so there is nothing to overfit
    cfg.model.dropout_bits = "hash"

    cfg.optim.schedule = "cosine"
    cfg.optim.lr = 5e-3
    cfg.optim.warmup = 80

    cfg.checkpoint.every = 20
    cfg.eval.every = 350
    cfg.eval.bleu_sentences = 200
    cfg.decode.extra_length = 60  # the grammar's longest tree has 72 symbols, its shortest sentence 4 words
    return cfg
