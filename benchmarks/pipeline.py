"""Measures the data pipeline on synthetic text: preparing a corpus, and making batches from it.

    python -m benchmarks.pipeline [--pairs=500000] [--seconds=10]

Prints how long preparation takes on one and on two processors (checking that both give the same files), then the
positions per second of bucketed and packed batches at the paper's sizes (`configs/common.py`). Positions are those of
one side, padding included, as in `data.tokens_per_batch`. Processor time of all threads is printed with wall time:
compare that on a busy machine. `peak` is the process's largest resident memory so far.
"""

import itertools
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import app, flags

from configs.common import default
from data.pipeline import TrainingBatches
from data.prepare import Prepared, prepare
from data.tokenizer import Tokenizer

_PAIRS = flags.DEFINE_integer("pairs", 500_000, "sentence pairs")
_SECONDS = flags.DEFINE_float("seconds", 10.0, "how long to measure each kind of batches")


def write_corpus(path: Path, pairs: int) -> None:
    """Writes tab-separated pairs of 4 to 45 words, whose frequencies follow Zipf's law."""
    choice = np.random.default_rng(0)
    letters = np.array(list("aaabcdeeeefghiiijklmnnnooprrssttuvwz"))
    words = np.array(["".join(choice.choice(letters, choice.integers(2, 10))) for _ in range(20_000)])
    with path.open("w", encoding="utf-8") as file:
        for _ in range(pairs):
            count = int(choice.integers(4, 38))
            ranks = np.exp(choice.random(2 * count + 7) * np.log(len(words))).astype(int) - 1
            split = count + int(choice.integers(0, 8))
            file.write(f"{' '.join(words[ranks[:count]])}\t{' '.join(words[ranks[count : count + split]])}\n")


def prepared_on(cpus: set[int], spec: str, tokenizer: Tokenizer, cache: Path) -> tuple[Prepared, float]:
    """Prepares the corpus on these processors; returns it and the wall time in seconds."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    wall, cpu = time.perf_counter(), time.process_time()
    prepared = prepare(spec, tokenizer, cache=cache, max_length=256, max_ratio=9.0, clean=True, progress=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    os.sched_setaffinity(0, everywhere)
    print(f"preparing {len(prepared):,} pairs on {len(cpus)} processors: {wall:.1f} s, {cpu:.1f} s of processor time")
    return prepared, wall


def measure(prepared: Prepared, batching: str, seconds: float) -> None:
    """Prints the positions per second of one kind of batches."""
    cfg = default().data
    cfg.batching = batching
    batches = TrainingBatches(prepared, cfg, seed=0)
    start = time.process_time()
    next(batches)
    print(f"{batching}: the first batch after {time.process_time() - start:.2f} s of processor time; ", end="")
    wall, cpu, positions = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - wall < seconds:
        positions += next(batches).target_out_bt.size
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    batches.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{positions / wall:,.0f} positions/s, {positions / cpu:,.0f} per processor second; peak {peak:,.0f} MiB")


def main(argv: list[str]) -> None:
    """Prepares the corpus twice, then measures both kinds of batches."""
    del argv
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.tsv"
        write_corpus(path, _PAIRS.value)
        with path.open(encoding="utf-8") as file:
            lines = list(itertools.islice(file, 20_000))
        tokenizer = Tokenizer.train(lines, 8_000, Path(folder) / "tokenizer.model")
        cpus = sorted(os.sched_getaffinity(0))
        found = [prepared_on(set(cpus[:n]), f"tsv:{path}", tokenizer, Path(folder) / str(n)) for n in (1, 2)]
        if len({str(prepared.manifest["sha256"]) for prepared, _ in found}) > 1:
            raise SystemExit("the two preparations differ")
        print(f"two processors are {found[0][1] / found[1][1]:.2f} times as fast; the files are the same")
        for batching in ("bucket", "pack"):
            measure(found[0][0], batching, _SECONDS.value)


if __name__ == "__main__":
    app.run(main)
