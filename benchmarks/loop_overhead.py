"""Measures the overhead of the training loop: target tokens/s of `train` divided by those of `train_step` alone.

    python -m benchmarks.loop_overhead [--config=FILE] [--rounds=5] [--updates=20]

Both train the same model on the same batches: those of a config, or else a small model (N 3, d_model 256) and packed
batches of the built-in grammar. The loop reads, packs and prefetches them, logs and writes metrics; the bare update
takes them from memory. Neither includes compilation, validation or checkpoints, of which the last lines say how long
the loop waits for each. Loop and bare update alternate; the ratio is that of the medians. `cpus` is process time over
wall time: compare only rounds that had the machine to themselves.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags, logging
from ml_collections import ConfigDict, config_flags

from base.command import run
from configs.common import default
from data.cache import prepare_all
from data.pipeline import TrainingBatches
from run.checkpoint import Checkpoints
from run.folder import model_config
from tasks.translation import objective
from train import loop
from train.optim import optimizer
from train.step import init_state, make_train_step

_CONFIG = config_flags.DEFINE_config_file("config", None, "what both train: a translation config; default: see above")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "pairs of measurements")
_UPDATES = flags.DEFINE_integer("updates", 20, "updates in one measurement")


def small() -> ConfigDict:
    """Returns a small model on the grammar."""
    cfg = default()
    cfg.data.update({"train": "grammar:train:5000", "valid": "grammar:valid:8", "vocab_size": 1_000})
    cfg.data.update({"batching": "pack", "pack_length": 64, "max_length": 64, "tokens_per_batch": 2_048})
    cfg.model.update({"N": 3, "d_model": 256, "d_ff": 1_024, "h": 4})
    cfg.eval.bleu_sentences = 0
    return cfg


def config(updates: int) -> ConfigDict:
    """Returns the config with a metrics record every `updates` updates, and one validation and one save a launch."""
    cfg = _CONFIG.value or small()
    cfg.eval.update({"every": 1 << 30, "every_epochs": 0})
    cfg.checkpoint.update({"every": 1 << 30, "every_epochs": 0})
    cfg.log_every = updates
    return cfg


def timed(work: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Returns `work`, which adds to `seconds` how long each call takes."""

    @wraps(work)
    def run_timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        result = work(*args, **kwargs)
        seconds.append(time.perf_counter() - began)
        return result

    return run_timed


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
    waits: dict[str, list[float]] = {"validation": [], "saving": []}
    loop.validate = timed(loop.validate, waits["validation"])
    Checkpoints.save = timed(Checkpoints.save, waits["saving"])  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, prepared, _ = prepare_all(cfg.data, None)
        logging.set_verbosity(logging.WARNING)
        goal = objective(model_config(cfg, tokenizer.vocab_size), cfg.loss.eps_ls, cfg.loss.chunk)
        tx = optimizer(cfg.optim, cfg.model.d_model, 1 << 20)
        train_step = make_train_step(goal, tx, cfg.optim.accumulate)
        stream = TrainingBatches(prepared, cfg.data, seed=cfg.seed)
        batches = [next(stream) for _ in range(_UPDATES.value)]
        stream.close()
        key = jax.random.key(cfg.seed)
        state = jax.jit(init_state, static_argnums=(0, 1))(goal.init, tx, key)
        for batch in batches:  # of every shape
            state, _ = train_step(state, batch, key)
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
    for name, seconds in waits.items():
        print(f"{name}: median {statistics.median(seconds):.2f} s")


if __name__ == "__main__":
    run(main)
