"""Which optimiser is the fastest? Adam, Muon, schedule-free AdamW, AdEMAMix and Adafactor, tuned alike, on Tatoeba.

AdamW, and Adam with longer warm-ups, were added later.

The paper trains with Adam (section 5.3). New optimisers are mostly published against an Adam that was tuned less than
they were (Choi et al. 2019, arXiv 1910.05446; Dahl et al. 2023, arXiv 2306.07179); here every one has the same twenty
points.

Ours:  Muon needs 147 updates, 81 fewer than Adam's 228; schedule-free AdamW 215, 13 fewer: both shown. AdEMAMix and
       Adafactor do not get there in 300: refuted. Warm-ups of 10 and 20 % need 20 and 27 updates fewer than 4 %: shown.
Cost:  180 runs of half a minute to three, beside other work up to nine, on one CPU core or thread, 2.5 hours in all.

The design, fixed before the first run:

- Model: two layers in each stack, d_model 64, h 4, d_ff 256, no dropout, 4,000 subwords; 300 updates of 1,024 tokens
  of Tatoeba English-German, a sixth of an epoch. It is the beginning of training that is compared, no more.
- The rate falls as half a cosine, but for schedule-free AdamW, whose rate stays (`optim.schedule=constant`).
- Stage 1: every optimiser runs with each of its twenty `OPTIONS`, seed 0: five rates, a factor of 2 apart, a warm-up of
  10 or of 30 % of the updates, and gradients clipped at a global norm of 1 or not at all. The ladder of rates is Adam's
  for AdEMAMix and for Muon, whose updates are made as large as Adam's; twice that for schedule-free AdamW, as its
  authors advise; and 16 times that for Adafactor, whose rate is relative to the size of the parameters. The option of
  the lowest loss on the validation split after the last update is the optimiser's. There is none beyond these; where
  the best rate is an end of its ladder, the table says so. `CHOSEN` holds them, and is committed before stage 2.
- The target: the nll that Adam's best run of stage 1 had on validation after 80 % of its updates, 240.
- Stage 2: five fresh seeds, 1 to 5, of every optimiser with its option. All see the same batches of a seed.
- Primary measure: updates to the target, where the line through the validations, of which there is one every 20
  updates, first comes down to it. A run that does not get there counts as all of its updates, 300.
- Secondary measure, without a verdict: nll after the last update.
- An optimiser is shown to be faster than Adam if it needs fewer updates, by a difference seed by seed whose two-sided p
  by Holm over the four is below 0.05; refuted if its mean is not lower; else neither.
- Expected: Muon is faster, shown, by 10 to 30 %. Schedule-free AdamW gets to the target earlier than Adam, since Adam's
  rate is still high then, and ends no lower; it may go either way. AdEMAMix is not faster: its slow mean has no time
  to help in 300 updates. Adafactor, which has no momentum, is slower.

Two comparisons were added on 29 November 2026, when all of the above had run, and each was committed before its own
first run. They change no verdict above: each is a separate Holm family.

- AdamW: Adam's twenty options, with a decoupled weight decay of 0.01, PyTorch's default, not tuned; matrices decay,
  biases and norms do not. Stages, seeds, target and rule are as above. What it is compared with is `undecayed`, AdamW
  with a decay of 0, which is Adam, with Adam's option and on AdamW's machine. (First these were the five's runs of
  Adam, from another CPU. The difference was shown, with a p just below 0.05, and gone when Adam was trained on AdamW's
  machine by hand. So this base was put in its place, and then run.)
- Expected: no difference. With Adam's choice, the decay takes 1.5 % off the weights in 300 updates: 0.01 times the sum
  of the rates. So the verdict is neither, or refuted if the small difference happens to be on the slow side.
- Warm-up: the paper warms up for 4,000 of 100,000 updates, 4 %; readers who miss its BLEU try 10 or 20 thousand. Here
  Adam, clipped at 1, warms up for 4, 10 or 20 % of its updates. Each of the three chooses among Adam's five rates in
  stage 1 (with 10 % they are five of Adam's runs above), then has the five fresh seeds.
- The target is what 4 % reached: the nll of its best run of stage 1 after 240 updates. Adam's above would not do: the
  best run with 10 % ended stage 1 at 4.562 without reaching it, and two rows that count as 300 cannot differ.
- Two claims: 10 % and 20 % each need fewer updates than 4 %, by the rule above, with Holm over the two.
- Expected, with stage 1 of 10 % and 30 % known, where the longer was better: both are shown, by about 20 updates with
  10 % and 40 with 20 %, since after a longer warm-up a post-norm model stands a higher rate.

    python -m train.sweep --config=lab/studies/optimisers/design.py:choose --workdir=runs/optimisers-choose  # stage 1
    python -m train.sweep --config=lab/studies/optimisers/design.py:test --workdir=runs/optimisers  # stage 2
    python -m train --config=lab/studies/optimisers/design.py:muon --workdir=runs/muon              # one run
    python -m infer --workdir=RUN --split=valid                              # for its record
    python -m lab optimisers --runs=runs --plot=optimisers.svg             # the options chosen, and the verdicts
"""

import itertools
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from lab.studies.two_stages import STAGES, points, row_and_option
from vaswani.configs.tatoeba import get_config as tatoeba

STEPS = 300
EVERY = 20  # updates from one validation to the next
BASE = "adam"
LADDER = (0.00125, 0.0025, 0.005, 0.01, 0.02)  # Adam's rates
LARGER = {"adam": 1, "muon": 1, "schedule_free_adamw": 2, "ademamix": 1, "adafactor": 16, "adamw": 1}  # than Adam's
WARMUPS = (4, 10, 20)  # per cent, with Adam
DECAY = 0.01  # AdamW's


class Option(NamedTuple):
    """What is tuned: the rate, how many per cent of the updates warm up, and the gradient norm clipped to, or 0."""

    lr: float
    warmup: int
    clip_norm: int

    def __str__(self) -> str:
        return f"{self.lr}-{self.warmup}-{self.clip_norm}"


def options_of(row: str) -> tuple[Option, ...]:
    """Returns the twenty options of an optimiser: each of five rates with either warm-up, clipped or not."""
    rates = [LARGER[row] * rate for rate in LADDER]
    combinations = itertools.product(rates, (10, 30), (0, 1))
    return tuple(Option(*combination) for combination in combinations)


OPTIONS = {row: options_of(row) for row in LARGER}
OPTIONS |= {f"warmup-{share}": tuple(Option(rate, share, 1) for rate in LADDER) for share in WARMUPS}
UNDECAYED = "undecayed"  # which has no stage 1: it takes Adam's choice
ROWS = (*OPTIONS, UNDECAYED)
CHOSEN = {  # by stage 1
    "adam": Option(0.01, 30, 1),
    "muon": Option(0.01, 30, 1),
    "schedule_free_adamw": Option(0.01, 30, 0),
    "ademamix": Option(0.005, 30, 1),
    "adafactor": Option(0.04, 30, 1),
    "adamw": Option(0.01, 30, 1),
    UNDECAYED: Option(0.01, 30, 1),
    "warmup-4": Option(0.005, 4, 1),
    "warmup-10": Option(0.005, 10, 1),
    "warmup-20": Option(0.01, 20, 1),
}
SEEDS = (1, 2, 3, 4, 5)  # of stage 2


class Comparison(NamedTuple):
    """Rows of which each is compared with the first, the base, and p is by Holm over the others.

    `row` is what its rows are, `base` what its base is called, and `committed` says when the design was. `target` is
    the row whose best run of stage 1 defines the target.
    """

    name: str
    title: str
    row: str
    base: str
    target: str
    rows: tuple[str, ...]
    committed: str


FIVE = Comparison(
    "optimisers",
    f"Optimisers, tuned alike, in the first {STEPS} updates",
    "optimiser",
    "Adam",
    "adam",
    ("adam", "muon", "schedule_free_adamw", "ademamix", "adafactor"),
    "committed before the first run",
)
DECAYED = Comparison(
    "optimisers-adamw",
    f"AdamW, tuned like Adam, in the first {STEPS} updates",
    "optimiser",
    "Adam",
    "adam",
    (UNDECAYED, "adamw"),
    "committed when the five optimisers had run, before the first run of AdamW; its base was replaced afterwards",
)
WARMED_UP = Comparison(
    "optimisers-warmup",
    f"Adam by warm-up, in the first {STEPS} updates",
    "warm-up",
    "warmup-4",
    "warmup-4",
    tuple(f"warmup-{share}" for share in WARMUPS),
    "committed when the five optimisers had run, before the first run of these but stage 1 of 10 %, Adam's",
)
COMPARISONS = (FIVE, DECAYED, WARMED_UP)


def get_config(argument: str = BASE) -> ConfigDict:
    """Returns the run of ROW or ROW:RATE-WARMUP-CLIP, or for a stage's name the run that its points depart from.

    Raises:
      ValueError: there is no such row or option.
    """
    name = BASE if argument in STAGES else argument
    options = OPTIONS.get(name.partition(":")[0], OPTIONS[BASE])  # for the error of a wrong row, those of Adam
    row, option = row_and_option(name, ROWS, options)
    option = option or CHOSEN.get(row, options[0])
    cfg = tatoeba()
    cfg.steps = STEPS
    cfg.data.vocab_size = 4_000
    cfg.data.tokens_per_batch = 1_024
    cfg.data.max_length = cfg.data.pack_length = 32
    cfg.data.buckets = (16, 32)
    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 2, 64, 256
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 16, 16
    cfg.model.P_drop = 0.0
    if row in LARGER:
        cfg.optim.name = row
    elif row == UNDECAYED:
        cfg.optim.name = "adamw"
    cfg.optim.weight_decay = DECAY if row == "adamw" else 0.0
    cfg.optim.schedule = "constant" if row == "schedule_free_adamw" else "cosine"
    cfg.optim.lr = option.lr
    cfg.optim.warmup = option.warmup * STEPS // 100
    cfg.optim.clip_norm = float(option.clip_norm)
    cfg.checkpoint.every = STEPS
    cfg.eval.every = EVERY
    cfg.eval.bleu_sentences = 0
    cfg.decode.update({"checkpoint": "latest", "beam": 1, "alpha": 0.0})
    return cfg


def sweep(stage: str = "choose") -> list[dict[str, Any]]:
    """Returns the points of a stage: every row with each option, or five fresh seeds of each with its own.

    Raises:
      ValueError: there is no such stage, or not every row has chosen yet.
    """
    found = points(stage, get_config, OPTIONS | {UNDECAYED: ()}, CHOSEN, SEEDS)
    return [point for place, point in enumerate(found) if point not in found[:place]]  # five are of two rows
