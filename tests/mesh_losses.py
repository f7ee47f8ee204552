"""Trains a tiny model on every mesh of eight virtual devices, and prints JSON for tests/run/test_sharding.py.

A separate program, because the number of devices is fixed once per process.
"""

import json
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import jax
import numpy as np
from absl import flags
from ml_collections import ConfigDict

from tests import tiny
from vaswani.data.from_config import prepare_all
from vaswani.data.pipeline import TrainingBatches
from vaswani.run.sharding import make_mesh, place_rows, placed_shapes, process_shard, row_parts, shardings
from vaswani.tasks.config import model_config
from vaswani.tasks.translation import objective
from vaswani.train.optim import optimizer
from vaswani.train.step import init_state, make_train_step

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def config(folder: Path) -> ConfigDict:
    """Returns a config whose dimensions can all be sharded in eight; the 13 rows per batch cannot.

    A device's logits are made in chunks: twelve on one device, two on eight.
    """
    cfg = tiny.training_config(folder)
    cfg.steps, cfg.loss.chunk = 20, 64
    cfg.data.update({"vocab_size": 304, "tokens_per_batch": 13 * 48})
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 32, "h": 8, "d_k": 4, "d_v": 4, "P_drop": 0.2})
    return cfg


def train(cfg: ConfigDict, folder: Path, sizes: tuple[int, ...], accumulate: int) -> dict:
    """Does all updates on the mesh of these sizes (data, fsdp, tensor), over as many devices as it needs."""
    cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor = sizes
    mesh = make_mesh(cfg.mesh, jax.devices()[: int(np.prod(sizes))])
    tokenizer, data, _ = prepare_all(cfg.data, folder / f"{cfg.data.vocab_size}.model")
    goal = objective(model_config(cfg, tokenizer.vocab_size), cfg.loss.eps_ls, cfg.loss.chunk)
    tx = optimizer(cfg.optim, cfg.model.d_model, cfg.steps)
    init, keys = partial(init_state, goal.init, tx), jax.random.split(jax.random.key(cfg.seed))
    placed = placed_shapes(jax.eval_shape(init, keys[0]), mesh)
    state = jax.jit(init, out_shardings=shardings(placed))(keys[0])
    step = make_train_step(goal, tx, accumulate, shardings(placed))
    batches = TrainingBatches(data, cfg.data, seed=cfg.seed, shard=process_shard(mesh, accumulate))
    with jax.set_mesh(mesh):
        compiled = step.lower(state, place_rows(mesh, next(batches)), keys[1]).compile()
    batches.set_state({"epoch": 0, "batch": 0})
    losses = []
    for _ in range(cfg.steps):
        batch = place_rows(mesh, next(batches))
        assert {len(shard.data) for shard in batch.source.ids_bt.addressable_shards} == {
            len(batch.source.ids_bt) // row_parts(mesh)
        }
        state, sums = compiled(state, batch, keys[1])
        losses.append(float(sums.loss.loss_sum / sums.loss.tokens))
    batches.close()
    adam = state.opt_state[0]
    return {
        "losses": losses,
        "collectives": Counter(re.findall(rf" ({'|'.join(COLLECTIVES)})(?:-start)?\(", compiled.as_text())),
        "as_planned": jax.tree.leaves(
            jax.tree.map(lambda x, s: x.sharding.is_equivalent_to(s.sharding, x.ndim), state, placed)
        ),
        "moments_as_parameters": jax.tree.leaves(
            jax.tree.map(lambda p, *m: all(x.sharding == p.sharding for x in m), state.params, adam.mu, adam.nu)
        ),
        "bytes_held": sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state)),
        "bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(state)),
    }


def main(folder: Path, cases: list[tuple[tuple[int, ...], int, str, int]]) -> None:
    """Prints {"8x1x1 accumulate 1 hash 304": {...}, ...}; the last is the size of the vocabulary."""
    cfg = config(folder)
    found = {}
    for sizes, accumulate, bits, vocabulary in cases:
        cfg.model.dropout_bits, cfg.data.vocab_size = bits, vocabulary
        found[f"{'x'.join(map(str, sizes))} accumulate {accumulate} {bits} {vocabulary}"] = train(
            cfg, folder, sizes, accumulate
        )
    print(json.dumps(found))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    flags.FLAGS.mark_as_parsed()  # grain reads them
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
