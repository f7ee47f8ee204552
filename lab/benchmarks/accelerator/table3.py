"""Table 3 in small: the models of configs/small.py, on the built-in corpus, seed after seed while minutes are left."""

import time
from functools import partial
from typing import Any

from lab.benchmarks.accelerator.record import Options, Part
from lab.benchmarks.accelerator.training import miniature, trained
from vaswani.configs import ablations

SEEDS = (0, 1, 2)


def parts(options: Options) -> dict[str, Part]:
    """Returns a training run for each row and seed, all rows with the first seed first; in miniature one."""
    rows = ["A1"] if options.tiny else [row for row in ablations.ROWS if row != "big"]
    end = time.monotonic() + options.seconds

    def one(row: str, seed: int) -> dict[str, Any]:
        cfg = ablations.get_config(f"{row}:small")
        cfg.seed = seed
        if options.tiny:
            miniature(cfg)
        return trained(cfg, options.runs / f"table3-{row}-{seed}", end - time.monotonic(), split="valid")

    return {f"{row} seed {seed}": partial(one, row, seed) for seed in SEEDS[: 1 if options.tiny else 3] for row in rows}
