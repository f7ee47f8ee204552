"""Beam search of the base model, and CTranslate2's with the same weights: 20 tokens of every sentence."""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from lab.benchmarks.accelerator.device import is_gpu
from lab.benchmarks.accelerator.record import Options, Part
from lab.benchmarks.decoding import TOKENS, ctranslate2_model, our_search, problem, their_search
from vaswani.model.config import ModelConfig

BASE = ModelConfig(vocab_size=37_000)
TINY = ModelConfig(vocab_size=100, N=1, d_model=16, d_ff=32, h=2, d_k=8, d_v=8)
BEAM = 4


def speed(search: Callable[[], Any], sentences: int, rounds: int) -> dict[str, Any]:
    """Returns the median time of a search, after one that compiles, and what it makes a second."""
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        search()
        seconds.append(time.perf_counter() - began)
    median = statistics.median(seconds[1:])
    return {
        "milliseconds": 1e3 * median,
        "sentences_per_second": sentences / median,
        "tokens_per_second": TOKENS * sentences / median,
    }


def parts(options: Options) -> dict[str, Part]:
    """Returns one search for each number type and number of sentences."""
    base = TINY if options.tiny else BASE
    rounds, counts = (1, (1, 3)) if options.tiny else (5, (1, 8, 64, 512))

    def ours(config: ModelConfig, sentences: int) -> dict[str, Any]:
        return speed(our_search(config, *problem(config, sentences), BEAM), sentences, rounds)

    def theirs(sentences: int) -> dict[str, Any]:
        params, source_bs = problem(base, sentences)
        kind = {"device": "cpu"} if options.tiny else {"device": "cuda", "compute_type": "float16"}
        with tempfile.TemporaryDirectory() as folder:
            peer = ctranslate2_model(base, params, folder, **kind)
            return speed(their_search(peer, base, source_bs, BEAM), sentences, rounds)

    found: dict[str, Part] = {}
    for count in counts:
        for dtype in ("float32", "bfloat16"):
            name = "TF32" if dtype == "float32" and is_gpu() else dtype  # what a GPU multiplies float32 in
            found[f"{count}: ours, {name}"] = partial(ours, dataclasses.replace(base, dtype=dtype), count)
        found[f"{count}: CTranslate2, float16"] = partial(theirs, count)
    return found
