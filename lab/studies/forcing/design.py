"""What does label smoothing do under the model's own prefixes? Their loss and that under forced ones, by position.

In training a decoder reads the reference's words before a position, whatever it would have written (teacher forcing);
in use it reads its own. Section 5.4 of the paper says of label smoothing: "This hurts perplexity, as the model learns
to be more unsure, but improves accuracy and BLEU score." Perplexity is the loss under forced prefixes. A model that is
unsure should lose less where its own words have left the reference.

The argument is smoothed (eps_ls is 0.1), base of the scaled-down Table 3 (configs/small.py), or unsmoothed (0.0), its
row D3. (The runs were started when the arguments were still 0.1 and 0.0.)

Ours:  the tables are in lab/docs/tables.md, what they say in README.md.
Cost:  5 runs of 1.5 minutes on a CPU core of their own; beside other work, up to 25. The others are 8-8 of
       lab/studies/heads.

The design, fixed before the first run (a pilot of smoothed with seed 98 tried the commands):

- Runs: as Table 3 in small, 800 updates, seeds 0 to 4 of both; nothing is chosen.
- Measured on the 1,000 pairs of the test text (`python -m lab.studies.forcing.measure`): the loss of the reference's
  token, -log p(y_t | prefix), at each position t from 1 to 12, once with the reference's first t - 1 tokens as prefix,
  once with those of the greedy translation, over the pairs whose reference and translation both have a token there.
  The gap of a run is own minus forced, mean over positions 2 to 12.
- Three claims, each of unsmoothed minus smoothed, by seed: the forced loss, mean over positions 1 to 12, is lower; the
  own loss of prefixes that have left the reference, over all of them at positions 2 to 12, is higher; the gap is
  larger.
- Each is shown or refuted by the sign of its mean difference if p of a two-sided t-test over the seeds is below 5 %, by
  Holm for the three; else neither.
- Expected: the second and the third are shown; the first neither, for in Table 3 in small the perplexities of the two
  do not differ.

A translation that has left the reference need not be wrong, so the gap is no cost of errors alone. And each model has
its own prefixes: one that leaves the reference more often has a larger gap for that reason, too.

    for seed in 0 1 2 3 4; do
        run=runs/forcing/unsmoothed-$seed
        python -m train --config=lab/studies/forcing/design.py:unsmoothed --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=test && python -m lab.studies.forcing.measure --workdir=$run
    done
    for seed in 0 1 2 3 4; do
        python -m lab.results --workdir=runs/forcing/unsmoothed-$seed --name=forcing/unsmoothed-seed$seed
    done
    python -m lab forcing --plot=forcing.svg
"""

from ml_collections import ConfigDict

from vaswani.configs.ablations import get_config as ablation

ROWS = {"smoothed": "base", "unsmoothed": "D3"}  # those of Table 3
SEEDS = (0, 1, 2, 3, 4)
POSITIONS = 12


def get_config(row: str = "unsmoothed") -> ConfigDict:
    """Returns the run of a row; raises `ValueError` if it is none of `ROWS`."""
    if row not in ROWS:
        raise ValueError(f"there is no row {row!r}; the rows are {', '.join(ROWS)}")
    return ablation(f"{ROWS[row]}:small")
