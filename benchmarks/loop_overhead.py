"""Measures the overhead of the training loop: target tokens/s of `train` divided by those of `train_step` alone.

    python -m benchmarks.loop_overhead [--rounds=5] [--updates=20]

Both train the same small model (N 3, d_model 256) on the same packed batches of the built-in grammar, of one shape. The
loop reads, packs and prefetches them, logs and writes metrics; the bare update takes them from memory. Neither includes
compilation, validation or checkpoints. Loop and bare update alternate; the ratio is that of the medians. `cpus` is
process time over wall time: compare only rounds that had the machine to themselves.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from absl import flags, logging
from ml_collections import ConfigDict

from base.command import run
from configs.common import default
from data.cache import prepare_all
from data.pipeline import TrainingBatches
from run.folder import model_config
from tasks.translation import objective
from train import loop
from train.optim import optimizer
from train.step import init_state, make_train_step

_ROUNDS = flags.DEFINE_integer("rounds", 5, "pairs of measurements")
_UPDATES = flags.DEFINE_integer("updates", 20, "updates in one measurement")


def config(updates: int) -> ConfigDict:
    """Returns a small model on the grammar, with a metrics record every `updates` updates and nothing else."""
    cfg = default()
    cfg.data.update({"train": "grammar:train:5000", "valid": "grammar:valid:8", "vocab_size": 1_000})
    cfg.data.update({"batching": "pack", "pack_length": 64, "max_length": 64, "tokens_per_batch": 2_048})
    cfg.model.update({"N": 3, "d_model": 256, "d_ff": 1_024, "h": 4})
    cfg.eval.update({"every": 1 << 30, "bleu_sentences": 0})
    cfg.checkpoint.every, cfg.log_every = 1 << 30, updates
    return cfg


def looped(cfg: ConfigDict, workdir: Path) -> float:
    """Continues the run for three windows, the first of which compiles; returns the tokens/s of the last."""
    cfg.steps = cfg.steps + 3 * cfg.log_every
    if status := loop.train(cfg, workdir):
        raise SystemExit(status)
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [record["tokens_per_second"] for record in records if record["kind"] == "train"][-1]


def main(argv: list[str]) -> None:
    """Prints one line per round, and the ratio of the medians."""
    cfg = config(_UPDATES.value)
    cfg.steps = 0
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, prepared, _ = prepare_all(cfg.data, None)
        logging.set_verbosity(logging.WARNING)
        goal = objective(model_config(cfg, tokenizer.vocab_size), cfg.loss.eps_ls, cfg.loss.chunk)
        tx = optimizer(cfg.optim, cfg.model.d_model, 1 << 20)
        train_step = make_train_step(goal, tx, 1)
        stream = TrainingBatches(prepared, cfg.data, seed=cfg.seed)
        batches = [next(stream) for _ in range(_UPDATES.value)]
        stream.close()
        key = jax.random.key(cfg.seed)
        state, _ = train_step(jax.jit(init_state, static_argnums=(0, 1))(goal.init, tx, key), batches[0], key)
        tokens = sum(int(np.count_nonzero(batch.labels_bt)) for batch in batches)

        rates: dict[str, list[float]] = {"bare": [], "loop": []}
        for number in range(_ROUNDS.value):
            jax.block_until_ready(state)
            wall, process = time.perf_counter(), time.process_time()
            for batch in batches:
                state, _ = train_step(state, batch, key)
            jax.block_until_ready(state)
            wall, process = time.perf_counter() - wall, time.process_time() - process
            rates["bare"].append(tokens / wall)
            rates["loop"].append(looped(cfg, Path(folder)))
            print(
                f"round {number + 1}: bare {rates['bare'][-1]:,.0f}, loop {rates['loop'][-1]:,.0f} target tokens/s; "
                f"bare ran on {process / wall:.2f} cpus"
            )
    ratio = statistics.median(rates["loop"]) / statistics.median(rates["bare"])
    print(f"loop / bare = {ratio:.3f} (ratio of medians of {_ROUNDS.value})")


if __name__ == "__main__":
    run(main)
