"""Table 3: variations of the base model, English-German, on the development set newstest2013.

Paper: perplexity, BLEU and parameters of each row in `TABLE3` of paper/published.py; base 4.92 and 25.8.
Ours:  no row has been run.
Cost:  the paper's base row took 12 hours on 8 P100 GPUs, its big row 3.5 days; ours not measured.

    python -m data.prepare --config=configs/ablations.py     # once: downloads
    python -m train --config=configs/ablations.py:A1 --workdir=runs/A1
    python -m infer --workdir=runs/A1 --split=valid          # Table 3 averages no checkpoints: the row's config says so
    python -m train.sweep --config=configs/ablations.py --workdir=runs/table3    # all rows, one after the other

Scaled-down models (configs/small.py), for which two CPU cores are enough; three seeds of every row, five of base:

    python -m train --config=configs/ablations.py:A1:small --workdir=runs/A1-small
    python -m train.sweep --config=configs/ablations.py:base:small --workdir=runs/table3-small

The labels A1 to D4 are ours; a row changes what it lists and nothing else.

Among the scaled-down models, C3 (more layers) and big are worse than base. In the paper big is better, and C3 has a
lower perplexity (4.88, base 4.92) but also a lower BLEU (25.5, base 25.8). `WHY` holds the experiments that look for
the reason, with predictions made before they were run. Depth: if C3 fails because deep post-norm networks start badly,
then with pre-norm it is not worse than base with pre-norm. Size: if big fails because dropping 0.3 of 128 units hides
too much of so small a corpus, then with base's P_drop of 0.1 it is better than base.

Outcome: both predictions came true (lab/docs/tables.md; big's by Holm in BLEU, not in perplexity). But in the
second design, lab/studies/second, big learns with the same P_drop, half the rate and twice the warm-up. So with this
schedule it seems to start badly, not to drop too much.

    for seed in 0 1 2; do for row in base-pre C3-pre big-drop; do
        run=runs/table3-why/$row-$seed
        python -m train --config=configs/ablations.py:$row:small --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=valid
    done; done
    for seed in 0 1 2; do for row in base-pre C3-pre big-drop; do
        python -m paper.results --workdir=runs/table3-why/$row-$seed --split=valid --name=table3-why/$row-$seed
    done; done
"""

from typing import Any

from ml_collections import ConfigDict

from vaswani.configs.base import wmt14
from vaswani.configs.common import default
from vaswani.configs.small import choose, small
from vaswani.keys import changed_values

ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    # (A) heads, at constant computation
    "A1": {"model.h": 1, "model.d_k": 512, "model.d_v": 512},
    "A2": {"model.h": 4, "model.d_k": 128, "model.d_v": 128},
    "A3": {"model.h": 16, "model.d_k": 32, "model.d_v": 32},
    "A4": {"model.h": 32, "model.d_k": 16, "model.d_v": 16},
    # (B) key size
    "B1": {"model.d_k": 16},
    "B2": {"model.d_k": 32},
    # (C) size
    "C1": {"model.N": 2},
    "C2": {"model.N": 4},
    "C3": {"model.N": 8},
    "C4": {"model.d_model": 256, "model.d_k": 32, "model.d_v": 32},
    "C5": {"model.d_model": 1024, "model.d_k": 128, "model.d_v": 128},
    "C6": {"model.d_ff": 1024},
    "C7": {"model.d_ff": 4096},
    # (D) dropout and label smoothing
    "D1": {"model.P_drop": 0.0},
    "D2": {"model.P_drop": 0.2},
    "D3": {"loss.eps_ls": 0.0},
    "D4": {"loss.eps_ls": 0.2},
    # (E) learned positions
    "E": {"model.positions": "learned"},
    "big": {"model.d_model": 1024, "model.d_ff": 4096, "model.h": 16, "model.P_drop": 0.3, "steps": 300_000},
}

WHY: dict[str, dict[str, Any]] = {
    "base-pre": {"model.norm": "pre"},
    "C3-pre": {**ROWS["C3"], "model.norm": "pre"},
    "big-drop": {**ROWS["big"], "model.P_drop": 0.1},
}
ALL = ROWS | WHY


def get_config(argument: str = "base") -> ConfigDict:
    """Returns the config of a row, or for ROW:small of its scaled-down model."""
    row, variant = choose(argument, tuple(ALL))
    cfg = wmt14(default(), "en-de")
    cfg.decode.checkpoint = "latest"
    cfg.update_from_flattened_dict(ALL[row])
    return small(cfg) if variant else cfg


def sweep(argument: str = "base") -> list[dict[str, Any]]:
    """Returns the rows as points of one sweep; for base:small, with three seeds each, base with five, big last.

    Raises:
      ValueError: the points of another argument would not be the rows.
    """
    if argument == "base":
        return list(ROWS.values())
    if argument != "base:small":
        raise ValueError(f"there is no sweep of {argument!r}; all rows are swept from base or from base:small")
    base = get_config("base:small").to_dict()
    changes = {row: changed_values(base, get_config(f"{row}:small").to_dict()) for row in ROWS}
    rows = [row for row in ROWS if row != "big"]
    launches = [(seed, row) for seed in (0, 1, 2) for row in rows] + [(seed, "base") for seed in (3, 4)]
    launches += [(seed, "big") for seed in (0, 1, 2)]
    return [{"seed": seed, **changes[row]} for seed, row in launches]
