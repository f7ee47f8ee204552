"""Do several heads average less than one? The entropy of attention weights by the number of heads, after training.

Section 2 of the paper: a constant number of operations "at the cost of reduced effective resolution due to averaging
attention-weighted positions, an effect we counteract with Multi-Head Attention". If so, a head that is alone has to
average over more positions than one of eight, which can each look at a few.

The argument is h-d_k: a head of 1-64 is alone, with keys of 64 numbers. 8-8 is base of the scaled-down Table 3
(configs/small.py), 1-64, 4-16 and 16-4 its rows A1, A2 and A3.

Ours:  the tables are in lab/docs/tables.md, what they say in README.md.
Cost:  17 runs of 1 to 1.5 minutes on a CPU core of their own; beside other work, up to 15.

The design, fixed before the first run (a pilot of 8-8 with seed 98 tried the commands):

- Runs: as Table 3 in small, 800 updates; nothing is chosen. h times d_v is 64 everywhere.
- The confound: in the rows of Table 3, d_k falls as h grows, and scores of few numbers may not be able to be sharp,
  whatever there is to look at. Hence 1-8, which differs from base in the number of heads and in d_v alone.
- Seeds: 0 to 4 of base, 0 to 2 of every other row.
- Measured: of the first 200 pairs of the test text, with the reference as target, the mean entropy -sum a log2 a, in
  bits, of the attention weights a over queries, heads and layers, by place: self-attention of the encoder, of the
  decoder, and attention to the encoder (`python -m lab.studies.heads.measure`). Beside it that of uniform weights over
  the same positions. 2 to the power of it is the number of positions that a head averages.
- In a place, the entropies of 1-64 and of 1-8 are compared with base's by Dunnett's test, two-sided, with the variance
  that the three rows share, for both comparisons together; p is multiplied by three, for there are three places.
- Two claims for each place: "one head averages more" of 1-64, and, with keys as wide as base's, of 1-8. Each is shown
  if its mean entropy is higher and p below 5 %, refuted if it is lower and p below 5 %, else neither; open until the
  three rows have all their seeds. 4-16 and 16-4, which run last, show what is between and beyond, without a claim.
- Expected: shown of 1-8 in all places. Of 1-64 neither in the encoder, where its wide keys can be sharp, shown in the
  attention to the encoder. From 8-8 to 16-4 the entropy rises again.

h=32 (A4) is not run: its runs for Table 3 took up to ten minutes each, five times as long as the others. What the mean
over heads cannot show: whether one head is sharp while others are idle, and nearly uniform.

    for of in 8-8/{0,1,2,3,4} {1-64,1-8,4-16,16-4}/{0,1,2}; do
        run=runs/heads/$of
        python -m train --config=lab/studies/heads/design.py:${of%/*} --workdir=$run --config.seed=${of#*/} &&
        python -m infer --workdir=$run --split=test && python -m lab.studies.heads.measure --workdir=$run
    done
    # What lab/studies/forcing measures of the same runs of base.
    for seed in 0 1 2 3 4; do python -m lab.studies.forcing.measure --workdir=runs/heads/8-8/$seed; done
    for of in 8-8/{0,1,2,3,4} {1-64,1-8,4-16,16-4}/{0,1,2}; do
        python -m lab.results --workdir=runs/heads/$of --name=heads/${of%/*}-seed${of#*/}
    done
    python -m lab heads --plot=heads.svg
"""

from ml_collections import ConfigDict

from vaswani.configs.ablations import get_config as ablation

ROWS = ("8-8", "1-64", "1-8", "4-16", "16-4")
BASE = "8-8"
PLACES = ("encoder", "decoder", "cross")
PAIRS = 200
SEEDS = (0, 1, 2, 3, 4)  # of base
OTHERS_SEEDS = SEEDS[:3]


def get_config(row: str = BASE) -> ConfigDict:
    """Returns the run of a row; raises `ValueError` if it is none of `ROWS`."""
    if row not in ROWS:
        raise ValueError(f"there is no row {row!r}; the rows are {', '.join(ROWS)}")
    heads, d_k = map(int, row.split("-"))
    cfg = ablation("base:small")
    width = cfg.model.h * cfg.model.d_v
    cfg.model.h = heads
    cfg.model.d_k = d_k
    cfg.model.d_v = width // heads
    return cfg
