"""Compiles an update of every family with FSDP on four virtual devices; prints JSON for tests/run/test_sharding.py.

A separate program, because the number of devices is fixed once per process.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from vaswani.configs.common import default
from vaswani.data.batching import Batch, TextBatch
from vaswani.data.images import ImageBatch
from vaswani.model.config import ModelConfig
from vaswani.model.vision import ImageConfig
from vaswani.run.sharding import ROWS, make_mesh, placed_shapes, shardings
from vaswani.tasks import language_model, masked_lm, translation, vision
from vaswani.tasks.task import Objective
from vaswani.tokens import Tokens
from vaswani.train.aot.hlo import collectives
from vaswani.train.optim import optimizer
from vaswani.train.step import init_state, make_train_step

DEVICES, LENGTH = 4, 16
CONFIG = ModelConfig(64, N=1, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, max_positions=32, dropout_bits="hash")
IMAGE = ImageConfig(height=8, width=8, patch_height=2, patch_width=2, classes=4)
ROWS_OF = 16, 32  # two batches
MIXERS = ("attention", "restricted", "strided", "linear", "recurrent", "convolution")


def families() -> Iterator[tuple[str, Objective, Any]]:
    """Yields the name, the objective, and a batch without its rows: shapes of one row."""
    row = jax.ShapeDtypeStruct((LENGTH,), jnp.int32)
    side = Tokens(row, row, row)
    for mixer in MIXERS:
        yield mixer, translation.objective(replace(CONFIG, mixer=mixer), 0.1), Batch(side, side, row)
    yield "scanned", translation.objective(replace(CONFIG, scan_layers=True), 0.1), Batch(side, side, row)
    yield "language model", language_model.objective(CONFIG, 0.0), TextBatch(side, row)
    yield "masked", masked_lm.objective(replace(CONFIG, positions="learned"), 0.0), Batch(side, side, row)
    pixels = jax.ShapeDtypeStruct((IMAGE.height, IMAGE.width), jnp.float32)
    one = jax.ShapeDtypeStruct((), jnp.int32)
    yield "vision", vision.objective(CONFIG, IMAGE, 0.1), ImageBatch(pixels, one, one)


def sent(goal: Objective, one: Any, rows: int) -> int:
    """Returns the bytes of an update's collectives on this many rows; those in a loop count once."""
    cfg = default()
    cfg.mesh.data, cfg.mesh.fsdp = 1, DEVICES
    mesh = make_mesh(cfg.mesh, jax.devices()[:DEVICES])
    tx = optimizer(cfg.optim, CONFIG.d_model, 10)
    placed = placed_shapes(jax.eval_shape(partial(init_state, goal.init, tx), jax.random.key(0)), mesh)
    by_rows = NamedSharding(mesh, ROWS)
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((rows, *x.shape), x.dtype, sharding=by_rows), one)
    step = make_train_step(goal, tx, 1, shardings(placed))
    with jax.set_mesh(mesh):
        text = step.lower(placed, batch, jax.eval_shape(lambda: jax.random.key(0))).compile().as_text()
    return sum(one.bytes for one in collectives(text, DEVICES))


def main() -> None:
    """Prints {family: [bytes with 16 rows, with 32]}."""
    print(json.dumps({name: [sent(goal, one, rows) for rows in ROWS_OF] for name, goal, one in families()}))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    main()
