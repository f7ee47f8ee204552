"""Measures the data pipeline on synthetic text: preparing a corpus, and making batches from it.

    python -m lab.benchmarks.pipeline [--pairs=500000] [--seconds=10]

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
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from lab.benchmarks.process import in_fresh_process
from vaswani.command import run
from vaswani.configs.common import default
from vaswani.data.cache import prepare
from vaswani.data.imported import open_tokenizer
from vaswani.data.pipeline import TrainingBatches
from vaswani.data.prepared import Prepared
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.machine import largest_resident


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
    return in_fresh_process(_with_peak, function, *arguments)


def _with_peak(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    return function(*arguments), float(largest_resident())


def prepared_on(cpus: set[int], path: Path, tokenizer: Path, cache: Path) -> tuple[Path, float, float]:
    """Prepares the corpus on these processors; returns the folder, and wall and processor time in seconds."""
    os.sched_setaffinity(0, cpus)
    model = open_tokenizer(tokenizer)
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


def check(options: Any) -> None:
    """Raises a `UserError` if this process may use one processor only."""
    if len(os.sched_getaffinity(0)) < 2:
        raise UserError("this compares one processor with two, and this process may use one")


def main(argv: list[str]) -> None:
    """Prepares both corpora on one and on two processors, then measures both kinds of batches."""
    options = flags.FLAGS
    sizes = (options.pairs // 10, options.pairs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = folder / "tokenizer.model"
        for pairs in sizes:
            write_corpus(folder / f"{pairs}.tsv", pairs)
        with (folder / f"{options.pairs}.tsv").open(encoding="utf-8") as file:
            Tokenizer.train(list(itertools.islice(file, 20_000)), 8_000, tokenizer)
        caches = _time_preparation(folder, tokenizer, sizes)
        for batching in ("bucket", "pack"):
            _time_batches(caches, batching, options.seconds, sizes)


def _time_preparation(folder: Path, tokenizer: Path, sizes: tuple[int, int]) -> list[Path]:
    """Prints how long both corpora take on one and on two processors; returns the folders that one has prepared.

    Raises:
      SystemExit: two prepare other files than one.
    """
    cpus = sorted(os.sched_getaffinity(0))
    caches: dict[int, list[Path]] = {}
    times: dict[int, tuple[float, float]] = {}  # of the larger corpus: wall and processor seconds
    for count in (1, 2):
        caches[count] = []
        peaks: list[float] = []
        for pairs in sizes:
            arguments = (set(cpus[:count]), folder / f"{pairs}.tsv", tokenizer, folder / str(count))
            (cache, wall, cpu), peak = in_new_process(prepared_on, *arguments)
            caches[count].append(cache)
            peaks.append(peak)
            times[count] = (wall, cpu)
        wall, cpu = times[count]
        print(
            f"preparing {sizes[1]:,} pairs on {count} processors: {wall:.1f} s, {cpu:.1f} s of processor time; "
            f"{_growth(peaks, sizes)}",
            flush=True,
        )
    for one, two in zip(caches[1], caches[2], strict=True):
        if Prepared(one).manifest["sha256"] != Prepared(two).manifest["sha256"]:
            raise SystemExit("the two preparations differ")
    wall_of_one, cpu_of_one = times[1]
    wall_of_two, cpu_of_two = times[2]
    print(
        f"two processors are {wall_of_one / wall_of_two:.2f} times as fast as one and use "
        f"{cpu_of_two / cpu_of_one:.2f} times its processor time; the files are the same",
        flush=True,
    )
    return caches[1]


def _time_batches(caches: list[Path], batching: str, seconds: float, sizes: tuple[int, int]) -> None:
    """Prints how fast batches of the larger corpus are made, and what memory a pair takes."""
    results = [in_new_process(measure, cache, batching, seconds) for cache in caches]
    peaks = [peak for _, peak in results]
    (first, per_second, per_cpu), _ = results[-1]
    print(
        f"{batching}: the first batch after {first:.2f} s of processor time; {per_second:,.0f} positions/s, "
        f"{per_cpu:,.0f} per processor second; {_growth(peaks, sizes)}",
        flush=True,
    )


def _growth(peaks: list[float], sizes: tuple[int, int]) -> str:
    """Returns the larger corpus's peak of memory, and what each further pair adds to that of the smaller."""
    small, large = peaks
    per_pair = (large - small) / (sizes[1] - sizes[0])
    return f"peak {large / 2**20:,.0f} MiB, {per_pair:.1f} bytes a pair"


if __name__ == "__main__":
    flags.DEFINE_integer("pairs", 500_000, "sentence pairs", lower_bound=1_000)  # fewer have too few subwords
    flags.DEFINE_float("seconds", 10.0, "how long to measure each kind of batches", lower_bound=0.1)
    run(main, hint="the size is given as --pairs=N", check=check)
