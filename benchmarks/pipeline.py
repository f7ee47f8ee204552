"""Measures the data pipeline on synthetic text: preparing a corpus, and making batches from it.

    python -m benchmarks.pipeline [--pairs=500000] [--seconds=10]

Prints how long preparation takes on one and on two processors (checking that both give the same files), then the
positions per second of bucketed and packed batches at the paper's sizes (`configs/common.py`). Positions are those of
one side, padding included, as in `data.tokens_per_batch`. Processor time of all threads is printed with wall time:
compare that on a busy machine; the ratio of the wall times means something on an idle one only.

Each measurement is a process of its own, made of a tenth of the pairs too: `peak` is its largest resident memory, and
the growth from the one to the other, per pair, is what a larger corpus costs. That is 7 to 23 bytes in preparation, and
about 31 in bucketed and 49 in packed batches, or 140 and 220 MB for 4.5 million pairs. Of these 8 are the lengths, a
mapped file that the system may drop from memory, 4 are where pairs end, and the rest is the plans of this epoch and,
while it is made in the background, of the next. Ids are read as they are needed.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from base.command import run
from base.memory import largest_resident
from configs.common import default
from data.cache import Prepared, prepare
from data.pipeline import TrainingBatches
from data.tokenizer import Tokenizer


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


def in_new_process(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Returns the function's result, and the largest resident memory in bytes of a process that does nothing else."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_with_peak, function, *arguments).result()


def _with_peak(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    return function(*arguments), float(largest_resident())


def prepared_on(cpus: set[int], path: Path, tokenizer: Path, cache: Path) -> tuple[Path, float, float]:
    """Prepares the corpus on these processors; returns the folder, and wall and processor time in seconds."""
    os.sched_setaffinity(0, cpus)
    model = Tokenizer.from_file(tokenizer)
    wall, cpu = time.perf_counter(), time.process_time()
    prepared = prepare(f"tsv:{path}", model, cache=cache, max_length=256, max_ratio=9.0, clean=True, progress=False)
    return prepared.folder, time.perf_counter() - wall, time.process_time() - cpu


def measure(folder: Path, batching: str, seconds: float) -> tuple[float, float, float]:
    """Returns the processor time of the first batch, then positions per second and per processor second."""
    cfg = default().data
    cfg.batching = batching
    batches = TrainingBatches(Prepared(folder), cfg, seed=0)
    start = time.process_time()
    next(batches)
    first = time.process_time() - start
    wall, cpu, positions = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - wall < seconds:
        positions += next(batches).labels_bt.size
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    batches.close()
    return first, positions / wall, positions / cpu


def main(argv: list[str]) -> None:
    """Prepares both corpora on one and on two processors, then measures both kinds of batches."""
    options = flags.FLAGS
    with tempfile.TemporaryDirectory() as name:
        folder, tokenizer, cpus = Path(name), Path(name) / "tokenizer.model", sorted(os.sched_getaffinity(0))
        sizes = options.pairs // 10, options.pairs
        for pairs in sizes:
            write_corpus(folder / f"{pairs}.tsv", pairs)
        with (folder / f"{sizes[1]}.tsv").open(encoding="utf-8") as file:
            Tokenizer.train(list(itertools.islice(file, 20_000)), 8_000, tokenizer)

        def growth(peaks: list[float]) -> str:
            return f"peak {peaks[1] / 2**20:,.0f} MiB, {(peaks[1] - peaks[0]) / (sizes[1] - sizes[0]):.1f} bytes a pair"

        found = {}
        for count in (1, 2):
            runs = [
                in_new_process(prepared_on, set(cpus[:count]), folder / f"{pairs}.tsv", tokenizer, folder / str(count))
                for pairs in sizes
            ]
            found[count] = [run for run, _ in runs]
            _, wall, cpu = found[count][1]
            print(f"preparing {sizes[1]:,} pairs on {count} processors: {wall:.1f} s, {cpu:.1f} s of processor time; "
                  f"{growth([peak for _, peak in runs])}", flush=True)  # fmt: skip
        for (one, *_), (two, *_) in zip(found[1], found[2], strict=True):
            if Prepared(one).manifest["sha256"] != Prepared(two).manifest["sha256"]:
                raise SystemExit("the two preparations differ")
        (_, wall, cpu), (_, wall_two, cpu_two) = found[1][1], found[2][1]
        print(f"two processors are {wall / wall_two:.2f} times as fast as one and use {cpu_two / cpu:.2f} times its "
              "processor time; the files are the same", flush=True)  # fmt: skip
        for batching in ("bucket", "pack"):
            results = [in_new_process(measure, prepared, batching, options.seconds) for prepared, *_ in found[1]]
            first, per_second, per_cpu = results[1][0]
            print(f"{batching}: the first batch after {first:.2f} s of processor time; {per_second:,.0f} positions/s, "
                  f"{per_cpu:,.0f} per processor second; {growth([peak for _, peak in results])}",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    flags.DEFINE_integer("pairs", 500_000, "sentence pairs", lower_bound=10)
    flags.DEFINE_float("seconds", 10.0, "how long to measure each kind of batches")
    run(main)
