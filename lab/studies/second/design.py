"""Table 3 scaled down, second design: every row chooses between the same two schedules before it is compared.

In the first design (configs/small.py) all rows had the schedule that suited base, and C3 and big learned badly with it.
Here every row has the same choice. Both schedules may still be bad for a row, as they seem to be for big.

Ours:  neither shown nor refuted. 8 of the 12 primary rows have the paper's sign and exceed two standard errors. Their
       rank correlation with the paper is 0.22, with an interval from -0.45 to 0.82; given the number of parameters it
       is 0.29, from -0.30 to 0.82. big is the worst row of all, +0.36 where the paper has -0.13, and failed by half-way
       with every seed, as C3 did with two. C2 and C5 have the wrong sign, and C6 the right one within two standard
       errors. Of the equivalent rows A3 is shown, E is not, and C3 and D2 are worse than base by more than the margin.
       C3, C5 and big have the gentle schedule, all others the steep one.
Cost:  100 runs of 2 to 17 minutes on one AMD EPYC core with AVX-512, which other work kept busy at times. Four were
       paused besides, for 5 or 25 minutes, which their records count: 11 hours in all with these.

The design, fixed before the first run:

- Models: every width a quarter of the row's, half of the layers, post-norm: base has d_model 128, h 8, d_k 16, so that
  A4 and B1 keep a d_k of 4. All rows make the same 1,000 updates of 2,048 tokens, big too, which makes 3 times as many
  in the paper. Dropout and smoothing are the row's own.
- Corpus: 12,000 pairs of `grammar:rich`, 4,000 subwords.
- Schedules: "steep" is a factor r of 0.7 on the paper's schedule with a warm-up of 20 % of the updates, "gentle" r / 2
  with 40 %. The r is the first design's and is not tuned.
- Stage 1: every row, base included, runs once with each schedule, seed 0. The one with the lower perplexity on the
  validation split after the last update is the row's; a tie goes to "steep". `CHOSEN` holds them, and is committed
  before stage 2.
- Stage 2: three fresh seeds, 1 to 3, of every row with its schedule, each scored once on the test split.
- Measure: log perplexity on test minus that of base with the same seed.
- `PRIMARY` rows, where the paper's difference in log perplexity is at least 0.03. `EQUIVALENT` rows are predicted to
  differ from base by less than 0.03: two one-sided t-tests with that margin, each at 5 %. A2, A4 and B2 are reported
  without a verdict.
- A run that has not started by half-way (validation perplexity after 500 updates above four times base's of the same
  seed) counts as failed; it stays in the table and in every figure below.
- Shown if all three hold: at least 10 of the 12 primary rows have the paper's sign and a mean beyond 2 standard errors;
  Spearman's rank correlation with the paper over these rows is at least 0.6, and the lower end of its 95 % bootstrap
  interval (rows and seeds redrawn) above 0.3; and the 95 % bootstrap interval of their partial rank correlation, given
  the logarithm of the number of parameters, excludes 0, since "more parameters are better" alone correlates with the
  paper by 0.68 over these rows, 0.77 over all 20.
- Refuted if the upper end of the interval of Spearman's correlation is below 0.6. Else neither.
- Power, simulated (by a script that is not kept here) for the case that the true differences are the paper's: the first
  condition holds with probability 1.00, 1.00 and 0.83 if paired differences have a standard deviation over seeds of
  0.012, 0.02 and 0.03 (the first design's rows: 0.007 to 0.044, median 0.019, C3 0.22), and the correlation itself is
  then always at least 0.6. The bootstrap conditions were not simulated. With smaller true differences than the paper's
  it is lower. An equivalence row has little: with three seeds its standard error must be below 0.01.
- Simulated later, when 48 runs of stage 2 were known (by another script that is not kept): the bootstrap conditions
  cost no power; big turned round alone makes the verdict "neither"; with no differences at all it is "refuted" in 28 %
  of cases. The rule was not changed.

The runs read `grammar:rich`, a corpus that training no longer has (`lab/corpora.py`), so a run is repeated with the
code of its time, as C3's with seed 1 here.

    python -m lab.reproduce second/C3-seed1
    python -m lab second                                                   # the schedules chosen, and the verdict
"""

from typing import Any

from ml_collections import ConfigDict

from lab.studies.two_stages import STAGES, points, row_and_option
from vaswani.configs.ablations import ROWS
from vaswani.configs.common import default

PRIMARY = ("A1", "B1", "C1", "C2", "C4", "C5", "C6", "C7", "D1", "D3", "D4", "big")
EQUIVALENT = ("A3", "C3", "D2", "E")
MARGIN = 0.03  # nats: how far a primary row of the paper is from base at least, and an equivalent one at most

STEPS = 1_000
SCHEDULES = {"steep": (0.7, STEPS // 5), "gentle": (0.35, STEPS * 2 // 5)}  # factor and warm-up
NARROWER = 4
CHOSEN = dict.fromkeys(ROWS, "steep") | dict.fromkeys(("C3", "C5", "big"), "gentle")  # by stage 1


def get_config(argument: str = "base") -> ConfigDict:
    """Returns the run of ROW or ROW:SCHEDULE, or for the name of a stage the run that its points depart from.

    ROW alone has the schedule that it chose.

    Raises:
      ValueError: there is no such row or schedule.
    """
    row, chosen = row_and_option("base" if argument in STAGES else argument, ROWS, SCHEDULES)
    schedule = chosen or CHOSEN.get(row, "steep")
    cfg = default()
    cfg.update_from_flattened_dict(ROWS[row])

    for split, count in (("train", 12_000), ("valid", 1_000), ("test", 1_000)):
        cfg.data[split] = f"grammar:rich:{split}:{count}:{{en,de}}"
    cfg.data.vocab_size = 4_000
    cfg.data.tokens_per_batch = 2_048
    cfg.data.max_length = 64
    cfg.data.batching = "pack"
    cfg.data.pack_length = 64

    cfg.model.N //= 2
    for width in ("d_model", "d_ff", "d_k", "d_v"):
        cfg.model[width] //= NARROWER
    cfg.model.dropout_bits = "hash"

    cfg.steps = STEPS
    cfg.optim.lr, cfg.optim.warmup = SCHEDULES[schedule]
    cfg.checkpoint.every = STEPS // 10
    cfg.eval.every = STEPS // 2
    cfg.eval.bleu_sentences = 0
    cfg.decode.checkpoint = "latest"
    return cfg


def sweep(stage: str = "choose") -> list[dict[str, Any]]:
    """Returns the points of a stage: all rows with both schedules, or three fresh seeds of each with its own.

    Raises:
      ValueError: there is no such stage, or not every row has chosen yet.
    """
    return points(stage, get_config, dict.fromkeys(ROWS, SCHEDULES), CHOSEN)
