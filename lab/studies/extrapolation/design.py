"""Do positions extrapolate (section 3.5)? Language models trained on rows of 32 tokens, and tested on rows of 128.

The argument is sinusoidal, learned, rope, alibi, t5 or none. Rows are cut out of the grammar's English and begin
anywhere. The table of learned positions has 32 entries, so longer rows cannot be read. T5 has biases for distances
of up to 128, of which rows of 32 train none for more than 34.

Ours:  three seeds of each, in lab/docs/tables.md; what they show is in README.md.
Cost:  half a minute to three each on one CPU core.

    for seed in 0 1 2; do for positions in sinusoidal learned rope alibi t5 none; do
        run=runs/extrapolation/$positions-$seed length=128
        [ $positions = learned ] && length=32
        python -m train --config=lab/studies/extrapolation/design.py:$positions --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=test --row_length=$length
    done; done
    for seed in 0 1 2; do for positions in sinusoidal learned rope alibi t5 none; do
        python -m lab.results --workdir=runs/extrapolation/$positions-$seed --name=extrapolation/$positions-seed$seed
    done; done
    python -m lab extrapolation --plot=extrapolation.svg
"""

from ml_collections import ConfigDict

from vaswani.configs.language_model import get_config as language_model

POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "t5", "none")
LENGTH = 32


def get_config(positions: str = "sinusoidal") -> ConfigDict:
    """Returns the run of a kind of positions; raises `ValueError` if it is none of `POSITIONS`."""
    if positions not in POSITIONS:
        raise ValueError(f"there is no row {positions!r}; the rows are {', '.join(POSITIONS)}")
    cfg = language_model()
    cfg.steps = 300
    cfg.data.test = "lines:grammar:test:4000"
    cfg.data.tokens_per_batch = 2_048
    cfg.data.batching = "window"
    cfg.data.pack_length = LENGTH
    cfg.model.positions, cfg.model.max_positions = positions, LENGTH
    cfg.model.norm = "pre"
    cfg.optim.warmup = 50
    cfg.checkpoint.every = 300
    cfg.eval.every = 100
    cfg.decode.checkpoint = "latest"
    return cfg
