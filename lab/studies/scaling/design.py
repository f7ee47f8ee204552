"""Scaling laws at small scale: language models of the grammar's English, of several sizes and on several amounts of it.

The argument is WIDTH-UPDATES, such as 64-200, or long:WIDTH-UPDATES of the second design; an update reads 2,048 tokens,
none twice. The learning rate decays to zero at the end of every run, however short.

Ours:  three seeds of each cell of both designs, in lab/docs/tables.md; what they show is in README.md.
Cost:  from a few seconds to two minutes each on one CPU core.

    for width in 16 32 64 128; do for updates in 50 100 200 400; do for seed in 0 1 2; do
        run=runs/scaling/$width-$updates-$seed
        python -m train --config=lab/studies/scaling/design.py:$width-$updates --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=test
    done; done; done
    for run in runs/scaling/*; do python -m lab.results --workdir=$run --name=scaling/$(basename $run); done
    python -m lab scaling --plot=scaling.svg

    python -m train --config=lab/studies/scaling/design.py:64-200 --workdir=runs/scaling/64-200-0   # a single run

The second design, fixed before its first run. In the first the loss still fell steeply in nearly every cell, and the
law was fitted without a floor. Does it find one where the curve flattens?

- The models and the recipe are those of the first; updates go up to 1,600. The text has four times as many sentences.
  All cells are trained anew, seeds 0 to 2, since their subwords are learned from the longer text.
- The law is fitted to all cells but 128-1600, which it predicts. Met, if the mean of its seeds lies within the 95 %
  interval of the prediction; else not met.
- The grammar's own entropy bounds E from above: at most `MOST_NATS` a sentence (`python -m lab.entropy`), divided by
  the subwords of a sentence. The law is shown to find the floor if E's 95 % interval excludes 0 and reaches at least
  nine tenths of the bound; else refuted. No verdict before all 72 runs are there.
- Expected: met, and shown. With the subwords of the first design the bound is 1.99 nats a token, and its best model is
  at 2.22, so the longest runs should be near the bound, and E between 1.6 and the bound.

Outcome: not met, and refuted. Noticed after the runs: the bound is of a text that is read from its beginning, while
each row of 64 tokens is scored without what is before it, which costs about 0.07 nats a token. No verdict depends on
it.

    python -m lab.entropy
    for width in 16 32 64 128; do for updates in 50 100 200 400 800 1600; do for seed in 0 1 2; do
        row=long:$width-$updates
        run=runs/scaling_long/$width-$updates-$seed
        python -m train --config=lab/studies/scaling/design.py:$row --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=test
    done; done; done
    for run in runs/scaling_long/*; do python -m lab.results --workdir=$run --name=scaling_long/$(basename $run); done
"""

from ml_collections import ConfigDict

from vaswani.configs.language_model import get_config as language_model

WIDTHS, UPDATES = (16, 32, 64, 128), (50, 100, 200, 400)
ROWS = tuple(f"{width}-{updates}" for width in WIDTHS for updates in UPDATES)
LONG_ROWS = tuple(f"long:{width}-{updates}" for width in WIDTHS for updates in (*UPDATES, 800, 1_600))
TEST_SENTENCES = 4_000
MOST_NATS = 24.47  # of information in a sentence of the test split, at most


def get_config(row: str = "64-200") -> ConfigDict:
    """Returns the run of a row; raises `ValueError` if it is none of `ROWS` and `LONG_ROWS`."""
    rows = (*ROWS, *LONG_ROWS)
    if row not in rows:
        raise ValueError(f"there is no row {row!r}; the rows are {', '.join(rows)}")
    cfg = language_model()
    is_long = row.startswith("long:")
    width, cfg.steps = map(int, row.removeprefix("long:").split("-"))
    cfg.data.train = f"lines:grammar:train:{280_000 if is_long else 70_000}"
    cfg.data.test = f"lines:grammar:test:{TEST_SENTENCES}"
    cfg.data.tokens_per_batch = 2_048
    cfg.data.batching = "window"
    cfg.model.d_model, cfg.model.d_ff = width, 4 * width
    cfg.model.d_k = cfg.model.d_v = width // 4
    cfg.model.norm = "pre"
    cfg.optim.warmup = cfg.steps // 10
    cfg.checkpoint.every = cfg.eval.every = cfg.steps
    cfg.decode.checkpoint = "latest"
    return cfg
