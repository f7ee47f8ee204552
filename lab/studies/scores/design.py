"""Why divide by sqrt(d_k)? Scaled and unscaled dot products and additive scores, with heads of 8, 32 and 128.

Section 3.2.1: additive attention and dot products "perform similarly" for small d_k, and "additive attention
outperforms dot product attention without scaling for larger values of d_k", presumably because large dot products push
"the softmax function into regions where it has extremely small gradients". The paper cites Britz et al. 2017 and has no
numbers.

Ours:  what the rule below judges, at a d_k of 128, is shown twice; "perform similarly" at 8 does not hold. The tables
       are in lab/docs/tables.md, what they say in README.md.
Cost:  48 runs of about a minute on one CPU core, additive ones up to two.

The design, fixed before the first run:

- Models: one layer in each stack, d_model 128, and h d_k = h d_v = 128 throughout, so that queries and keys begin with
  a variance of 1 (footnote 4), and all have as many parameters, but for the 128 of v in each additive attention.
- All attention of a model is of its kind: "scaled", "unscaled" or "additive". Additive scores, which are slow, have a
  d_k of 8 or 128 alone. Larger d_k need a larger d_model, which is too slow here.
- Corpus, subwords and schedule are the quickstart's; 250 updates of 2,048 tokens, which the time that two pilots took
  allows. All see the same batches.
- Stage 1: every kind and d_k runs with each of `RATES`, seed 0. The rate of the lowest loss on the validation split
  after the last update is the row's; a tie goes to the lower. There is no rate beyond these three; a row that chooses
  the first or the last may have a better one, which the table then says by showing all three. `CHOSEN` holds them, and
  is committed before stage 2.
- Stage 2: three fresh seeds, 1 to 3, of every row with its rate, each scored once on 1,000 test sentences.
- Measure: log perplexity on test, compared seed by seed.
- Shown if, by 95 % t intervals that exclude 0, "unscaled" is worse than "scaled" with a d_k of 128, and by more than
  with a d_k of 8. Refuted if with a d_k of 128 its mean is not worse. Else neither.
- The other sentence, that additive scores outperform unscaled products, is judged alike: shown if "unscaled" is worse
  than "additive" with a d_k of 128, refuted if its mean is not, else neither.
- Expected: both shown, and hardly a difference with a d_k of 8.

    python -m train.sweep --config=lab/studies/scores/design.py:choose --workdir=runs/scores-choose  # stage 1
    python -m train.sweep --config=lab/studies/scores/design.py:test --workdir=runs/scores          # stage 2
    python -m train --config=lab/studies/scores/design.py:unscaled-128 --workdir=runs/unscaled      # one run
    python -m infer --workdir=RUN --split=valid                              # each of stage 1, for its record
    python -m infer --workdir=RUN --split=test                               # once for each run of stage 2
    python -m lab scores --runs=runs --plot=scores.svg                     # the rates chosen, and the verdict
"""

from typing import Any

from ml_collections import ConfigDict

from lab.studies.two_stages import STAGES, points, row_and_option
from vaswani.configs.quickstart import get_config as quickstart

# The kind of scores, and d_k.
ROWS = (
    "scaled-8",
    "unscaled-8",
    "additive-8",
    "scaled-32",
    "unscaled-32",
    "scaled-128",
    "unscaled-128",
    "additive-128",
)
RATES = (0.00125, 0.0025, 0.005)
CHOSEN = dict.fromkeys(ROWS, 0.005)  # the rate of each row: by stage 1 the last for all, so none is bracketed


def get_config(argument: str = "scaled-32") -> ConfigDict:
    """Returns the run of ROW or ROW:RATE, or for the name of a stage the run that its points depart from.

    Raises:
      ValueError: there is no such row or rate.
    """
    row, rate = row_and_option("scaled-32" if argument in STAGES else argument, ROWS, RATES)
    kind, _, width = row.partition("-")
    cfg = quickstart()
    cfg.steps = 250
    cfg.data.valid = "grammar:valid:1000"
    cfg.data.tokens_per_batch = 2_048
    cfg.data.max_length = cfg.data.pack_length = 32
    cfg.data.buckets = (16, 32)
    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 1, 128, 512
    cfg.model.d_k = cfg.model.d_v = int(width)
    cfg.model.h = cfg.model.d_model // cfg.model.d_k
    cfg.model.scale_attention = kind != "unscaled"
    cfg.model.scores = "additive" if kind == "additive" else "dot"
    cfg.optim.warmup = 50
    cfg.optim.lr = rate or CHOSEN.get(row, 0.0025)
    cfg.checkpoint.every = cfg.eval.every = cfg.steps
    cfg.eval.bleu_sentences = 0
    cfg.decode.update({"checkpoint": "latest", "beam": 1, "alpha": 0.0})
    return cfg


def sweep(stage: str = "choose") -> list[dict[str, Any]]:
    """Returns the points of a stage: all rows with every rate, or three fresh seeds of each with its own.

    Raises:
      ValueError: there is no such stage, or not every row has chosen yet.
    """
    return points(stage, get_config, dict.fromkeys(ROWS, RATES), CHOSEN)
