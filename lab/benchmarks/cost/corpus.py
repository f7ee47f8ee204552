"""What a corpus costs: preparing it, on one processor and on two, and making batches of it."""

import itertools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.benchmarks.pipeline import in_new_process, measure, prepared_on, write_corpus
from vaswani.data.prepared import Prepared
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError

PAIRS = (10_000, 100_000, 1_000_000, 4_500_000)  # the last as many as WMT14's English-German
TOKENIZER_LINES, VOCABULARY = 20_000, 8_000
SECONDS = 5.0  # of making batches


def measured(pairs: Sequence[int] = PAIRS, seconds: float = SECONDS) -> dict[str, Any]:
    """Returns seconds and peak memory of preparing so many synthetic pairs, and of making batches of them.

    Raises:
      UserError: this process may use one processor only; or two of them prepare another cache than one.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise UserError("--only=corpus: it needs two processors, and this process may use one")
    found: dict[str, Any] = {"pairs": list(pairs), "prepare": {"1": [], "2": []}, "bucket": [], "pack": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = folder / "tokenizer.model"
        for count in pairs:
            corpus = folder / f"{count}.tsv"
            write_corpus(corpus, count)
            if not tokenizer.exists():
                with corpus.open(encoding="utf-8") as file:
                    Tokenizer.train(list(itertools.islice(file, TOKENIZER_LINES)), VOCABULARY, tokenizer)
            caches = []
            for processors in (1, 2):
                arguments = (set(cpus[:processors]), corpus, tokenizer, folder / str(processors))
                (cache, wall, cpu), peak = in_new_process(prepared_on, *arguments)
                found["prepare"][str(processors)].append({"wall": wall, "cpu": cpu, "peak": peak})
                caches.append(cache)
            one, two = (Prepared(cache).manifest["sha256"] for cache in caches)
            if one != two:
                raise UserError(f"{count:,} pairs: two processors prepare other files than one")
            for batching in ("bucket", "pack"):
                (first, rate, rate_cpu), peak = in_new_process(measure, caches[0], batching, seconds)
                found[batching].append({"first": first, "rate": rate, "rate_cpu": rate_cpu, "peak": peak})
            corpus.unlink()
    return found
