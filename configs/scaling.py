"""Scaling laws at small scale: language models of the grammar's English, of several sizes and on several amounts of it.

The argument is WIDTH-UPDATES, such as 64-200; an update reads 2,048 tokens, none twice. The learning rate decays to
zero at the end of every run, however short.

Ours:  three seeds of each, in docs/tables.md; what they show is in docs/studies.md.
Cost:  from a few seconds to a minute each on one CPU core.

    for seed in 0 1 2; do for width in 16 32 64 128; do for updates in 50 100 200 400; do
        run=runs/scaling/$width-$updates-$seed
        python -m train --config=configs/scaling.py:$width-$updates --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=test
    done; done; done
    for seed in 0 1 2; do for width in 16 32 64 128; do for updates in 50 100 200 400; do
        name=$width-$updates-$seed
        python -m paper.results --workdir=runs/scaling/$name --name=scaling/$name
    done; done; done
    python -m paper scaling --runs=results --plot=scaling.svg

    python -m train --config=configs/scaling.py:64-200 --workdir=runs/scaling/64-200-0    # a single run
"""

from ml_collections import ConfigDict

from configs.language_model import get_config as language_model

WIDTHS, UPDATES = (16, 32, 64, 128), (50, 100, 200, 400)
ROWS = tuple(f"{width}-{updates}" for width in WIDTHS for updates in UPDATES)


def get_config(row: str = "64-200") -> ConfigDict:
    """Returns the run of a row; raises `ValueError` if it is none of `ROWS`."""
    if row not in ROWS:
        raise ValueError(f"there is no row {row!r}; the rows are {', '.join(ROWS)}")
    cfg = language_model()
    width, cfg.steps = map(int, row.split("-"))
    cfg.data.train = "lines:grammar:train:70000"
    cfg.data.test = "lines:grammar:test:4000"
    cfg.data.tokens_per_batch = 2_048
    cfg.data.batching = "window"
    cfg.model.d_model, cfg.model.d_ff = width, 4 * width
    cfg.model.d_k = cfg.model.d_v = width // 4
    cfg.model.norm = "pre"
    cfg.optim.warmup = cfg.steps // 10
    cfg.checkpoint.every = cfg.eval.every = cfg.steps
    cfg.decode.checkpoint = "latest"
    return cfg
