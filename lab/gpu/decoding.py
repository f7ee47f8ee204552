"""Beam search of the base model, and CTranslate2's with the same weights: 20 tokens of every sentence."""

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from lab.benchmarks.decoding import TOKENS, ctranslate2_model, our_search, problem, their_search
from lab.gpu.sitting import Context
from vaswani.model.config import ModelConfig

BASE = ModelConfig(vocab_size=37_000, dtype="bfloat16")
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


def ours(context: Context, sentences: int) -> dict[str, Any]:
    """Measures our search of a batch of so many sentences."""
    config = TINY if context.tiny else BASE
    return speed(our_search(config, *problem(config, sentences), BEAM), sentences, 1 if context.tiny else 5)


def ctranslate2(context: Context, sentences: int) -> dict[str, Any]:
    """Measures CTranslate2's search with the same weights."""
    config = TINY if context.tiny else BASE
    params, source_bs = problem(config, sentences)
    kind = {"device": "cpu"} if context.tiny else {"device": "cuda", "compute_type": "float16"}
    with tempfile.TemporaryDirectory() as folder:
        peer = ctranslate2_model(config, params, folder, **kind)
        return speed(their_search(peer, config, source_bs, BEAM), sentences, 1 if context.tiny else 5)
