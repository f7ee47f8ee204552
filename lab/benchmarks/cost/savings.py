"""What bfloat16, recomputation, and batches of like lengths bring: a training epoch with each of them and without.

The lengths are those of a corpus, Multi30k. What an epoch takes follows from its plan: an update of each row length is
timed, and counts as often as the plan has it.
"""

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32
from ml_collections import ConfigDict

from lab.benchmarks.contenders import Step, our_step
from vaswani.configs.multi30k import get_config
from vaswani.data.batching import random_batch
from vaswani.data.from_config import prepare_all
from vaswani.data.plans import PlannedBatch, bucket_plan, pack_plan, row_by_row
from vaswani.model.config import ModelConfig
from vaswani.train.cpu_matmuls import BFLOAT16, OPTIONS, is_faster

TOKENS = 2_048  # positions a side of an update, at most
PAIRS = 64  # of an unsorted batch, which has about as many positions
LENGTHS = (10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64)  # of rows, as in configs/common.py
MODEL = ModelConfig(vocab_size=10_000, N=3, d_model=256, d_ff=1_024, h=4, dropout_bits="hash")
Plan = Callable[[Int32[np.ndarray, "n 2"]], list[PlannedBatch]]


def unsorted(lengths_nk: Int32[np.ndarray, "n 2"]) -> list[PlannedBatch]:
    """Plans batches of pairs in random order, each as long as its longest pair, up to the next of `LENGTHS`."""
    shuffled_n = np.random.default_rng(0).permutation(len(lengths_nk)).astype(np.int32)
    batches = row_by_row(shuffled_n, PAIRS, LENGTHS[-1])
    longest = [int(lengths_nk[batch.members].max()) for batch in batches]
    lengths = [LENGTHS[place] for place in np.searchsorted(LENGTHS, longest)]
    return [batch._replace(row_length=length) for batch, length in zip(batches, lengths, strict=True)]


def by_length(lengths_nk: Int32[np.ndarray, "n 2"]) -> list[PlannedBatch]:
    """Plans batches of pairs of like length, the paper's way."""
    return bucket_plan(lengths_nk, tokens=TOKENS, buckets=LENGTHS)


def packed(lengths_nk: Int32[np.ndarray, "n 2"]) -> list[PlannedBatch]:
    """Plans rows of several pairs."""
    return pack_plan(lengths_nk, tokens=TOKENS, pack_length=LENGTHS[-1])


class Row(NamedTuple):
    """A plan, and what differs in the model."""

    plan: Plan
    changes: Mapping[str, Any] = MappingProxyType({})


ROWS = {
    "unsorted": Row(unsorted),
    "by length": Row(by_length),
    "packed": Row(packed),
    "by length, bfloat16": Row(by_length, {"dtype": BFLOAT16}),
    "by length, remat=dots": Row(by_length, {"remat": "dots"}),
    "by length, remat=full": Row(by_length, {"remat": "full"}),
}


def corpus() -> ConfigDict:
    """Returns `config.data` of the corpus whose lengths are taken."""
    cfg_data = get_config().data
    cfg_data.max_length = LENGTHS[-1]
    return cfg_data


def measured(rounds: int) -> dict[str, Any]:
    """Returns, for each row, its shapes: batches of an epoch, seconds of an update in every round, and memory.

    A round times every shape of every row once. bfloat16 is left out where this CPU is not faster with it.
    """
    _, train, _ = prepare_all(corpus(), sides=2)
    lengths_nk = np.asarray(train.lengths)
    names = [name for name, row in ROWS.items() if row.changes.get("dtype") != BFLOAT16 or is_faster(BFLOAT16)]
    shapes = {name: shapes_of(ROWS[name].plan(lengths_nk)) for name in names}
    steps: list[tuple[Step, dict[str, Any]]] = []
    for name, of_row in shapes.items():
        for shape in of_row:
            print(f"compiling {name}, {shape['rows']} x {shape['length']}", file=sys.stderr, flush=True)
            step = update(ROWS[name].changes, shape["rows"], shape["length"])
            shape["memory"] = step.memory
            steps.append((step, shape))
    for _ in range(rounds):
        for step, shape in steps:
            shape["cpu"].append(_seconds(step))
    tokens = [int(total) for total in lengths_nk.sum(axis=0)]
    return {"pairs": len(lengths_nk), "tokens": tokens, "shapes": shapes}


def _seconds(step: Step) -> float:
    """Returns the processor seconds of an update."""
    started = time.process_time()
    float(step.run())
    return time.process_time() - started


def shapes_of(plan: list[PlannedBatch]) -> list[dict[str, Any]]:
    """Returns the shapes of a plan, the shortest rows first, and how many batches of it have each."""
    counts = Counter((batch.row_length, len(batch.rows_bc)) for batch in plan)
    return [
        {"length": length, "rows": rows, "batches": counts[length, rows], "cpu": []} for length, rows in sorted(counts)
    ]


def update(changes: Mapping[str, Any], rows: int, length: int) -> Step:
    """Returns an update of the model with these changes, after one that may load what it needs."""
    config = dataclasses.replace(MODEL, **changes)
    options = OPTIONS if config.dtype == BFLOAT16 else None
    step = our_step(config, random_batch(rows, length, config.vocab_size), options=options)
    float(step.run())
    return step
