"""One update in bfloat16 on packed rows, the paper's 25,000 positions a side: ours in several forms, and PyTorch's."""

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.accelerator.record import Options, Part
from benchmarks.contenders import Step, our_step, random_batch, torch_step
from model.config import ModelConfig
from train.aot.flops import update_flops

POSITIONS, LENGTH = 25_000, 256
BASE = ModelConfig(vocab_size=37_000, dtype="bfloat16", dropout_bits="hash")
BIG = dataclasses.replace(BASE, d_model=1024, d_ff=4096, h=16, P_drop=0.3)
TINY = dataclasses.replace(BASE, vocab_size=500, N=1, d_model=32, d_ff=64, h=2, d_k=16, d_v=16)

# Fields of the model, but for `chunk` (loss.chunk) and `generator` (jax's, which draws the bits of "threefry"). With
# "rbg" an element's mask depends on the whole batch, which is why no config offers it: it is here for its speed.
FORMS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, cudnn": {"attention_impl": "cudnn"},
    "ours, threefry": {"dropout_bits": "threefry"},
    "ours, rbg": {"dropout_bits": "threefry", "generator": "rbg"},
    "ours, scanned": {"scan_layers": True},
    "ours, chunks of 4,096": {"chunk": 4_096},
    "ours, chunks of 8,192": {"chunk": 8_192},
    "ours, all logits": {"chunk": 0},
    "no dropout": {"P_drop": 0.0},  # the difference is what dropout costs
    "1,000 subwords": {"vocab_size": 1_000},  # the difference is what the softmax and its loss cost
}
FIRST = ("ours", "ours, cudnn", "PyTorch", "PyTorch, eager")  # of both models, before the other forms of base
OF_TINY = ("ours", "ours, rbg", "PyTorch")


def timed(run: Callable[[], Any], updates: int, windows: int) -> float:
    """Returns the seconds of one update, the median of windows of several updates, after a window of warming up."""
    seconds = []
    for _ in range(windows + 1):
        began = time.perf_counter()
        for _ in range(updates):
            loss = run()
        float(loss)
        seconds.append((time.perf_counter() - began) / updates)
    return statistics.median(seconds[1:])


def matrix_peak(size: int) -> dict[str, Any]:
    """Returns the operations per second of a chain of bfloat16 matrix products."""
    a, b = (jax.random.normal(jax.random.key(n), (size, size), jnp.bfloat16) for n in range(2))
    product = jax.jit(lambda a, b: (a @ b) * jnp.bfloat16(size**-0.5))

    def run() -> Any:
        nonlocal a
        a = product(a, b)
        return a[0, 0]

    return {"tflops": 2 * size**3 / timed(run, 10, 5) / 1e12}


def parts(options: Options) -> dict[str, Part]:
    """Returns the matrix peak, then every form of both models, each beside PyTorch's."""
    length, rows = (16, 4) if options.tiny else (LENGTH, POSITIONS // LENGTH)
    updates, windows = (1, 1) if options.tiny else (10, 5)
    models = {"base": TINY} if options.tiny else {"base": BASE, "big": BIG}
    peak: list[float] = []

    def measure_peak() -> dict[str, Any]:
        found = matrix_peak(256 if options.tiny else 8_192)
        peak.append(found["tflops"] * 1e12)
        return found

    def result(config: ModelConfig, step: Step) -> dict[str, Any]:
        seconds = timed(step.run, updates, windows)
        flops = update_flops(config, rows, length, length) / seconds
        if not peak:
            measure_peak()  # it was measured by an earlier call
        return {
            "milliseconds": 1e3 * seconds,
            "tokens_per_second": rows * length / seconds,
            "mfu": 100 * flops / peak[0],
            "memory_gib": step.memory / 2**30,
            "loss": float(step.run()),
        }

    def ours(config: ModelConfig, chunk: int | None = None, generator: str = "threefry2x32", **changes: Any) -> Any:
        gc.collect()  # arrays of the form before
        config = dataclasses.replace(config, **changes)
        step = our_step(config, random_batch(rows, length, config.vocab_size), chunk=chunk, generator=generator)
        return result(config, step)

    def pytorch(config: ModelConfig, compiled: bool) -> dict[str, Any]:
        import torch

        gc.collect()
        device, compiled = ("cpu", False) if options.tiny else ("cuda", compiled)
        batch = random_batch(rows, length, config.vocab_size)
        found = result(config, torch_step(config, batch, device=device, fast=True, compiled=compiled))
        if device == "cuda":
            found["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
            torch.cuda.empty_cache()
        return found

    if options.tiny:
        measured = [("base", form) for form in OF_TINY]
    else:
        measured = [(name, form) for name in models for form in FIRST]
        measured += [("base", form) for form in FORMS if form not in FIRST]
    found: dict[str, Part] = {"matrix peak": measure_peak}
    for name, form in measured:
        one = partial(ours, **FORMS[form]) if form in FORMS else partial(pytorch, compiled=form == "PyTorch")
        found[f"{name}: {form}"] = partial(one, models[name])
    return found
