"""Does one fixed vector hold a long sentence? BLEU against the length of the source, with attention and without.

Ours:  shown, by the rule below; the tables are in lab/docs/tables.md, what they say in README.md.
Cost:  28 runs of three to seven minutes each on one core of a shared machine.

The design, fixed before the first run:

- Kinds: "fixed", "additive" and "dot" of configs/recurrent.py, LSTMs with as many parameters as the quickstart's
  Transformer to within 1 %; and "transformer", that model itself.
- Corpus, subwords, batches and number of updates are the quickstart's. All kinds see the same batches.
- Stage 1: every kind runs with each of `RATES`, seed 0; the others of the quickstart's settings stay. The rate of the
  lowest loss on the validation split after the last update is the kind's; a tie goes to the lower. If it is the first
  or the last of `RATES`, the next one beyond, half or twice as large, is run for every kind, until it is neither.
  `CHOSEN` holds them, and is committed before stage 2.
- Stage 2: three fresh seeds, 1 to 3, of every kind with its rate, each scored once on 4,000 test sentences.
- Measure: a run's drop, its BLEU on sources of 6 to 10 words minus that on 16 to 20 words. Nearly half of the
  sentences are in the first band, 7 % in the second.
- Shown if "fixed" drops more than "additive" and more than "dot", by differences, seed by seed, whose 95 % t intervals
  exclude 0. Refuted if neither mean difference is above 0. Else neither.
- Expected: shown, as Bahdanau et al. 2015 saw (figure 2), though they read far longer sentences. The Transformer drops
  no more than the two with attention.

    python -m train.sweep --config=lab/studies/bottleneck/design.py:choose --workdir=runs/bottleneck-choose  # stage 1
    python -m train.sweep --config=lab/studies/bottleneck/design.py:test --workdir=runs/bottleneck  # stage 2
    python -m train --config=lab/studies/bottleneck/design.py:fixed --workdir=runs/fixed            # one run
    python -m infer --workdir=RUN --split=valid                              # each of stage 1, for its record
    python -m infer --workdir=RUN --split=test                               # once for each run of stage 2
    python -m lab bottleneck --runs=runs --plot=bottleneck.svg             # the rates chosen, and the verdict
"""

from typing import Any

from ml_collections import ConfigDict

from lab.studies.two_stages import STAGES, points, row_and_option
from vaswani.configs.quickstart import get_config as quickstart
from vaswani.configs.recurrent import WIDTHS
from vaswani.configs.recurrent import get_config as recurrent

KINDS = ("transformer", *WIDTHS)
RATES = (0.0025, 0.005, 0.01, 0.02)  # of which 0.005 is the quickstart's; the last since 0.01 was the best of three
CHOSEN = {"transformer": 0.005, "fixed": 0.01, "additive": 0.01, "dot": 0.01}  # the rate of each kind, by stage 1


def get_config(argument: str = "transformer") -> ConfigDict:
    """Returns the run of KIND or KIND:RATE, or for the name of a stage the run that its points depart from.

    Raises:
      ValueError: there is no such kind or rate.
    """
    kind, rate = row_and_option("transformer" if argument in STAGES else argument, KINDS, RATES)
    cfg = quickstart() if kind == "transformer" else recurrent(kind)
    cfg.data.valid, cfg.data.test = "grammar:valid:1000", "grammar:test:4000"
    cfg.optim.lr = rate or CHOSEN.get(kind, quickstart().optim.lr)
    cfg.checkpoint.every = cfg.eval.every = cfg.steps
    cfg.eval.bleu_sentences = 0
    cfg.decode.checkpoint = "latest"
    return cfg


def sweep(stage: str = "choose") -> list[dict[str, Any]]:
    """Returns the points of a stage: all kinds with every rate, or three fresh seeds of each with its own.

    Raises:
      ValueError: there is no such stage, or not every row has chosen yet.
    """
    return points(stage, get_config, dict.fromkeys(KINDS, RATES), CHOSEN)
