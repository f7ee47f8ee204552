"""Where does post-norm fail to start? Norm x depth x warm-up, with the paper's recipe marked.

The paper puts its layer norm behind the sum, LN(x + f(x)), and warms the rate up for 4 % of its updates. Xiong et al.
2020 (arXiv 2002.04745) found that post-norm needs this warm-up and pre-norm does not; Wang et al. 2022 (DeepNorm, arXiv
2203.00555) scale the sum so that post-norm can be deep. C3 and big of `configs/small.py` seemed to start badly.

Ours:  neither shown nor refuted, by the rule below; the map is in README.md.
Cost:  81 runs of a quarter of a minute to four on one core of a shared machine, 1.5 hours in all.

The design, fixed before the first run (two pilots with seed 99, of 300 updates of 2,048 tokens and a warm-up of 50,
showed what does not start: post-norm with 12 layers ended at a perplexity of 200, about that of the frequencies of
subwords, and with 2 layers at 1.8):

- Models: d_model 64, h 4, d_k 16, d_ff 256; 2, 6 or 12 layers in each stack; post-norm, pre-norm or DeepNorm.
- Corpus, subwords and the cosine schedule are the quickstart's; 200 updates of 1,024 tokens.
- The rate after warm-up is 0.005 for all, the quickstart's. The paper's is 0.0007 with a d_model of 512, which would be
  about as high at this width if it grew as the inverse of the width. The warm-up takes 4 % of the updates as in the
  paper, 13 % or 40 %.
- Seeds 0, 1, 2. Nothing is chosen, so there is one stage, and the loss on validation after the last update is what is
  measured. The test split is not used.
- A run has not started if its validation perplexity is above 50, a quarter of about 200.
- That post-norm needs warm-up where it is deep, and the other two do not, is shown if no seed of post-norm starts with
  12 layers and 4 % of warm-up, all seeds of pre-norm and of DeepNorm start there, and with 2 layers and 40 % all start.
  Refuted if all seeds of post-norm start there. Else neither.
- Expected: shown; more warm-up helps post-norm with 6 layers, and with 12 does not suffice.

    python -m train.sweep --config=lab/studies/norms/design.py:post-6-4 --workdir=runs/norms
    python -m train --config=lab/studies/norms/design.py:post-6-4 --workdir=runs/post               # one run
    python -m infer --workdir=RUN --split=valid                              # for its record
    python -m lab norms --runs=runs --plot=norms.svg                       # the verdict, and the map
"""

import itertools
from typing import Any

from ml_collections import ConfigDict

from vaswani.configs.quickstart import get_config as quickstart
from vaswani.keys import changed_values

NORMS = ("post", "pre", "deep")
LAYERS = (2, 6, 12)
WARMUPS = (4, 13, 40)  # per cent of all updates
PAPER = ("post", 6, 4)
SEEDS = (0, 1, 2)
STARTED = 50  # the highest perplexity of a run that has started


def name_of(norm: str, layers: int, warmup: int) -> str:
    """Returns the argument of a run."""
    return f"{norm}-{layers}-{warmup}"


ROWS = {name_of(*row): row for row in itertools.product(NORMS, LAYERS, WARMUPS)}


def get_config(argument: str = name_of(*PAPER)) -> ConfigDict:
    """Returns the run NORM-LAYERS-WARMUP, by default the paper's; raises `ValueError` if there is no such run."""
    if argument not in ROWS:
        raise ValueError(f"there is no run {argument!r}; the runs are {', '.join(ROWS)}")
    norm, layers, warmup = ROWS[argument]
    cfg = quickstart()
    cfg.steps = 200
    cfg.data.valid = "grammar:valid:300"
    cfg.data.tokens_per_batch = 1_024
    cfg.data.max_length = cfg.data.pack_length = 32
    cfg.data.buckets = (16, 32)
    cfg.model.norm, cfg.model.N = norm, layers
    cfg.model.d_model, cfg.model.d_ff = 64, 256
    cfg.model.d_k = cfg.model.d_v = 16
    cfg.optim.warmup = warmup * cfg.steps // 100
    cfg.checkpoint.every = cfg.eval.every = cfg.steps
    cfg.eval.bleu_sentences = 0
    cfg.decode.update({"checkpoint": "latest", "beam": 1, "alpha": 0.0})
    return cfg


def sweep(argument: str = name_of(*PAPER)) -> list[dict[str, Any]]:
    """Returns the points: every run with every seed."""
    before = get_config(argument).to_dict()
    return [
        {"seed": seed, **changed_values(before, get_config(row).to_dict())}
        for seed, row in itertools.product(SEEDS, ROWS)
    ]
