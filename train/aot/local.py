"""This machine's own devices, on which a step is not only compiled but also timed."""

import statistics
import sys
import time
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from vaswani.data.batching import random_batch
from vaswani.model.config import ModelConfig
from vaswani.run.sharding import place_rows, shardings
from vaswani.train.aot.flops import update_flops
from vaswani.train.aot.programs import Update
from vaswani.train.utilisation import peak_flops

STEPS = 3  # that are timed

# What the minutes of a run assume.
EXTRAPOLATED = (
    "an estimate: random tokens in full rows, initial parameters, and a machine that does nothing else; no waiting for"
    " data, validation or checkpoints"
)


def time_steps(cfg: ConfigDict, config: ModelConfig, mesh: Mesh, update: Update) -> dict[str, Any]:
    """Returns the seconds of each of `STEPS` steps, and the minutes of a run of such steps, from initial parameters.

    The ids are random and the rows full. One step before them is not timed. `flops_per_second` sums over all devices;
    `utilisation` is its share of their peak in bfloat16 (MFU), where that is known.
    """
    # A batch without padding, and initial parameters, placed as training places them.
    rows, length = update.facts["rows"], update.facts["length"]
    init_key, dropout_key = jax.random.split(jax.random.key(cfg.seed))
    batch = place_rows(mesh, random_batch(rows, length, config.vocab_size))
    seconds = []
    with jax.set_mesh(mesh):
        state = jax.jit(update.init, out_shardings=shardings(update.shapes))(init_key)
        # One more step than is timed: the first also loads the program, and fills caches.
        for number in range(STEPS + 1):
            print(f"step {number} of {STEPS} ..." if number else "a first step ...", file=sys.stderr)
            start = time.perf_counter()
            state, _ = jax.block_until_ready(update.step(state, batch, dropout_key))
            seconds.append(time.perf_counter() - start)
    each = statistics.median(seconds[1:])
    timing = {
        "seconds": seconds[1:],
        "minutes": cfg.steps * each / 60,
        "flops_per_second": update_flops(config, rows, length, length) / each,
    }
    if peak_flops():
        timing["utilisation"] = timing["flops_per_second"] / peak_flops()
    return timing
