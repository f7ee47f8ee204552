"""Does the best learning rate stay where it is as a model grows? The standard parametrisation and muP, at four widths.

Yang et al. 2022 (arXiv 2203.03466, figure 1): with Adam, the wider a Transformer, the lower its best rate, but not with
muP (`model.parametrisation`, train/mup.py), so that a rate found for a narrow model is right for a wide one.

Ours:  shown, by the rule below; the tables are in lab/docs/tables.md, what they say in README.md.
Cost:  112 runs of a few seconds to four minutes on one core of a shared machine, an hour in all.

The design, fixed before the first run:

- Models: one layer in each stack; d_model 32, 64, 128 or 256, d_ff = 4 d_model, heads of 16 and as many of them as fill
  d_model; untied embeddings. Both parametrisations agree at 64.
- Corpus, subwords and schedule are the quickstart's; 150 updates of 2,048 tokens. All see the same batches of a seed.
- Every row runs with each of `RATES`, a factor of 2 apart, and with seeds 0 and 1. There is no other rate.
- Measure: of each row, the base-2 logarithm of its best rate. Losses are nll on the validation split after the last
  update, the mean over both seeds; a run that is not finite counts as the nll of a uniform guess. The best is where the
  parabola through the lowest point and its two neighbours, over the logarithm of the rate, has its minimum.
- A lowest point at either end of the ladder has no neighbour there: the best is then that end, the table says so, and
  the move of its parametrisation is only known to be as large or larger.
- The move of a parametrisation: the factor between its best rates at 32 and at 256, whichever is the higher.
- Shown if muP's move is at most 1.5, with neither of its two points at an end, and the standard one's is more than 2.
  Refuted if muP's is more than the standard one's. Else neither.
- Expected: shown. Standard's best rate falls by 2 to 4, less than the 8 that its hidden matrices would have, since
  norms and embeddings want no such fall. muP's moves by less than 1.5, most of it between 32 and 64, where updates
  change activations a little more than in wider models (tests/train/test_mup.py).

Amended once: with the first design the softmax's matrix began at 0 with muP, as its paper advises. One seed of that
(commit 9d436b0, widths up to 128) had its lowest perplexities at the rates 0.005 and 0.01, so at nearly one rate; but
they were 18 to 22, where the standard parametrisation has 1.8 to 4.3. More is lost by this beginning than any rate
gains. So it begins at random now, and all runs of muP were made again. The standard ones had been run with seed 0, and
some with seed 1, by then, and are not touched by the change; so what is expected of them was known in part.

    python -m train.sweep --config=lab/studies/mup/design.py --workdir=runs/mup
    python -m train --config=lab/studies/mup/design.py:mup-256 --workdir=runs/mup-256               # one run
    python -m infer --workdir=RUN --split=valid                              # for its record
    python -m lab mup --runs=runs --plot=mup.svg                           # the verdict, and the curves
"""

from typing import Any

from ml_collections import ConfigDict

from lab.studies.two_stages import row_and_option
from vaswani.configs.quickstart import get_config as quickstart
from vaswani.keys import changed_values

KINDS = ("standard", "mup")
WIDTHS = (32, 64, 128, 256)
ROWS = tuple(f"{kind}-{width}" for kind in KINDS for width in WIDTHS)
RATES = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
SEEDS = (0, 1)
BASE = 64
D_K = 16


def get_config(argument: str = "mup-64") -> ConfigDict:
    """Returns the run of ROW or ROW:RATE.

    Raises:
      ValueError: there is no such row or rate.
    """
    row, rate = row_and_option(argument, ROWS, RATES)
    kind, _, width = row.partition("-")
    cfg = quickstart()
    cfg.steps = 150
    cfg.data.valid = "grammar:valid:1000"
    cfg.data.tokens_per_batch = 2_048
    cfg.data.max_length = cfg.data.pack_length = 32
    cfg.data.buckets = (16, 32)
    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 1, int(width), 4 * int(width)
    cfg.model.d_k = cfg.model.d_v = D_K
    cfg.model.h = cfg.model.d_model // D_K
    cfg.model.tie_embeddings = False
    cfg.model.parametrisation = kind
    cfg.model.mup_width = BASE
    cfg.optim.warmup = 30
    cfg.optim.lr = rate or 0.01
    cfg.checkpoint.every = cfg.eval.every = cfg.steps
    cfg.eval.bleu_sentences = 0
    cfg.decode.update({"checkpoint": "latest", "beam": 1, "alpha": 0.0})
    return cfg


def sweep(argument: str = "mup-64") -> list[dict[str, Any]]:
    """Returns the points of the study: every row with each rate and seed, as changes of the config of `argument`."""
    before = get_config(argument).to_dict()
    points = []
    for seed in SEEDS:
        for row in ROWS:
            for rate in RATES:
                changes = changed_values(before, get_config(f"{row}:{rate}").to_dict())
                points.append({"seed": seed, **changes})
    return points
