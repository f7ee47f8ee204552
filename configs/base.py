"""The paper's base model on WMT 2014 English-German (Table 2, Table 3 row "base").

Paper: 27.3 BLEU on newstest2014 (tokenised, compound-split), 25.8 on newstest2013, perplexity 4.92, 65e6 parameters.
Ours:  not run (63,045,632 parameters with 37,000 subwords).
Cost:  12 hours on 8 P100 GPUs in the paper; ours not measured.

    python -m data.prepare --config=configs/base.py   # once: downloads
    python -m train --config=configs/base.py --workdir=runs/base
    python -m infer --workdir=runs/base --split=test

`configs/base.py:en-de:gpu`, or `:tpu`, trains faster on such a device, see configs/accelerator.py.
`configs/base.py:en-fr` is the English-French run (38.1 BLEU in the paper). `configs/base.py:en-de:small` is a
scaled-down model on the built-in corpus, see configs/small.py; en-fr's translates from German to English.
"""

from ml_collections import ConfigDict

from vaswani.configs.accelerator import ATTENTION, accelerated
from vaswani.configs.common import default
from vaswani.configs.small import choose, small

PAIRS = {"en-de": "{en,de}", "en-fr": "{de,en}"}  # with the direction of the built-in corpus in the scaled-down model
VARIANTS = ("small", *ATTENTION)


def wmt14(cfg: ConfigDict, pair: str) -> ConfigDict:
    """Sets the paper's corpora for `pair`, "en-de" or "en-fr" (with 32,000 subwords), in `cfg`; returns it."""
    language = {"en-de": "de", "en-fr": "fr"}[pair]
    for split in ("train", "valid", "test"):
        part = {"train": "train", "valid": "validation", "test": "test"}[split]
        cfg.data[split] = f"tfds:wmt14_translate/{language}-en:{part}:{{en,{language}}}"
    cfg.data.vocab_size = 37_000 if pair == "en-de" else 32_000
    return cfg


def get_config(argument: str = "en-de") -> ConfigDict:
    """Returns the config for the language pair "en-de" or "en-fr", or for one of its variants.

    These are PAIR:small, its scaled-down model, and PAIR:gpu and PAIR:tpu, for an accelerator.
    """
    pair, variant = choose(argument, tuple(PAIRS), VARIANTS)
    return varied(wmt14(default(), pair), pair, variant)


def varied(cfg: ConfigDict, pair: str, variant: str) -> ConfigDict:
    """Turns the config of a language pair into one of its `VARIANTS`, or leaves it for ""; returns it."""
    if variant == "small":
        return small(cfg, PAIRS[pair])
    return accelerated(cfg, variant) if variant else cfg
