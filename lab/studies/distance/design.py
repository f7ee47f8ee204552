"""Do distant words matter more to some layers? Self-attention and four others, with rates tuned alike, by distance.

The paper's section 4: "the shorter these paths between any combination of positions in the input and output sequences,
the easier it is to learn long-range dependencies". It has no numbers. Tang et al. 2018 (arXiv 1808.08946) found
Transformers no better than recurrent translators at a far subject's verb. The study `layers` asked which layer is
better, with one rate for all five and three seeds, and did not settle it.

Ours:  the LSTM and the convolution are better than attention, shown; distance neither shown nor refuted, by the rules
       below. The tables are in lab/docs/tables.md, what they say in README.md.
Cost:  42 runs of three to thirteen minutes on one core of a shared machine, and half a minute for the scores of each.

The design, fixed before the first run (a pilot of attention with seed 99 chose the number of updates):

- Rows: self-attention, and in its place attention to 5 neighbours, linear attention, an LSTM, and a gated convolution
  of width 3, as in `lab/studies/layers/design.py`: two layers in each stack, as many parameters to within 0.1 %.
- Corpus: 40,000 pairs of `grammar:rich`, 4,000 subwords; 500 updates of 2,048 tokens. All rows see the same batches.
- Stage 1: every row runs with each of `RATES`, seed 0. The rate of the lowest loss on the validation split after the
  last update is the row's; a tie goes to the lower. A row whose best is the first or the last is run with the next one
  beyond, half or twice as large, too, once. `CHOSEN` holds the rates, and is committed before stage 2.
- Stage 2: five fresh seeds, 1 to 5, of every row with its rate, each scored once on test.
- Measures: log perplexity and greedy BLEU on 1,000 test sentences; and of pairs of a right German sentence and one with
  a wrong word (`lab/contrast/sentences.py`) how often the right one is more probable, by what is wrong and by the
  distance in words to what decides it. Near are 1 to 4 words, far 8 and more (5 and more for `it`, which is never
  nearer than 4). A row's drop is its accuracy near minus its accuracy far.
- Primary, distance: the drop of agreement (subject and verb). The paper's reason is shown for a layer, of the three
  with longer paths (restricted, recurrent, convolution), if its drop is larger than attention's, by a difference seed
  by seed whose p by Holm is below 0.05; it is shown if it is for all three, and refuted if no mean difference is above
  0. The drop of `it` is reported, without a verdict. Particles are a control: the source has the particle.
- Primary, quality: recurrent and convolution are better than attention, as `layers` found without settling
  it, if the difference in log perplexity is below 0, with p by Holm over the four rows below 0.05; not if its mean is
  above 0.
- Expected: convolution and restricted drop more than attention, since their two layers do not reach eight words; the
  LSTM does not. All have encoder-decoder attention, which helps whatever cannot look back. With rates of their own the
  LSTM and the convolution are still a little better than attention, as there.

The runs read `grammar:rich`, a corpus that training no longer has (`lab/corpora.py`), so a run is repeated with the
code of its time; the records of stage 2 also have what `python -m lab.contrast` measured.

    python -m lab.reproduce distance/recurrent-seed1
    python -m lab distance --plot=distance.svg                             # the rates chosen, and the verdict
"""

from typing import Any

from ml_collections import ConfigDict

from lab.studies.layers.design import D_FF
from lab.studies.layers.design import get_config as layers
from lab.studies.two_stages import STAGES, points, row_and_option

STEPS = 500
RATES = (0.0025, 0.005, 0.01)
BEYOND = (*RATES, 0.02)  # of the rows whose best was the last of RATES
OPTIONS = dict.fromkeys(D_FF, RATES) | dict.fromkeys(("recurrent", "convolution"), BEYOND)
CHOSEN = {
    "attention": 0.005,
    "restricted": 0.005,
    "linear": 0.005,
    "recurrent": 0.01,
    "convolution": 0.01,
}  # by stage 1
SEEDS = (1, 2, 3, 4, 5)  # of stage 2


def get_config(argument: str = "attention") -> ConfigDict:
    """Returns the run of ROW or ROW:RATE, or for the name of a stage the run that its points depart from.

    Raises:
      ValueError: there is no such row or rate.
    """
    row, rate = row_and_option("attention" if argument in STAGES else argument, D_FF, BEYOND)
    cfg = layers(row)
    cfg.steps = STEPS
    cfg.data.train = "grammar:rich:train:40000"
    cfg.data.valid = "grammar:rich:valid:1000"
    cfg.data.test = "grammar:rich:test:1000"
    cfg.data.vocab_size = 4_000
    cfg.optim.warmup = 80
    cfg.optim.lr = rate or CHOSEN.get(row, 0.005)
    cfg.checkpoint.every = cfg.steps
    cfg.eval.every = 100
    return cfg


def sweep(stage: str = "choose") -> list[dict[str, Any]]:
    """Returns the points of a stage: all rows with every rate, or five fresh seeds of each with its own.

    Raises:
      ValueError: there is no such stage, or not every row has chosen yet.
    """
    return points(stage, get_config, OPTIONS, CHOSEN, SEEDS)
