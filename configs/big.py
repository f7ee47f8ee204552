"""The paper's big model on WMT 2014 English-German (Table 2, Table 3 row "big").

Paper: 28.4 BLEU on newstest2014 (tokenised, compound-split), 26.4 on newstest2013, perplexity 4.33, 213e6 parameters.
Ours:  not run (214,171,648 parameters with 37,000 subwords).
Cost:  3.5 days on 8 P100 GPUs in the paper; ours not measured.

    python -m data.prepare --config=configs/big.py    # once: downloads
    python -m train --config=configs/big.py --workdir=runs/big
    python -m infer --workdir=runs/big --split=test

`configs/big.py:en-de:gpu`, or `:tpu`, trains faster on such a device, see configs/accelerator.py.
`configs/big.py:en-fr` is the English-French run with P_drop 0.1 (41.8 BLEU in later versions of the paper, 41.0 in the
proceedings). `configs/big.py:en-de:small` is a scaled-down model on the built-in corpus, see configs/small.py.

Predictions for the scaled-down Table 2, written before its big models were run: with P_drop 0.1 (en-fr) big translates
better than base, as in the paper; with 0.3 (en-de) worse, since that rate hides too much of so narrow a network
(configs/ablations.py, big-drop).

Outcome: the first held, see docs/tables.md. The second was no prediction: scaled down, big of en-de is the row "big"
of configs/ablations.py, whose failure was known by then, so it is one result and not two. The reason given is in doubt,
since one run learned with P_drop 0.3 and another schedule (see there). "average:20" averages checkpoints of the whole
run, its beginning included, since there is one every 120 of 2,400 updates.

    for seed in 0 1 2; do for size in base big; do for pair in en-de en-fr; do
        python -m train --config=configs/$size.py:$pair:small --workdir=runs/$size-$pair-$seed --config.seed=$seed &&
        python -m infer --workdir=runs/$size-$pair-$seed --split=test
    done; done; done
"""

from ml_collections import ConfigDict

from vaswani.configs.base import PAIRS, VARIANTS, varied, wmt14
from vaswani.configs.common import default
from vaswani.configs.small import choose


def get_config(argument: str = "en-de") -> ConfigDict:
    """Returns the config for the language pair "en-de" or "en-fr", or for one of its variants, as configs/base.py."""
    pair, variant = choose(argument, tuple(PAIRS), VARIANTS)
    cfg = wmt14(default(), pair)
    cfg.steps = 300_000
    cfg.model.d_model, cfg.model.d_ff, cfg.model.h = 1024, 4096, 16
    cfg.model.P_drop = 0.3 if pair == "en-de" else 0.1
    cfg.checkpoint.every = 600  # about ten minutes of the paper's big run
    cfg.checkpoint.keep_last = 20
    cfg.decode.checkpoint = "average:20"
    return varied(cfg, pair, variant)
