"""How an update and a search grow with each size: their programs, how long they take and what they hold."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from lab.benchmarks.contenders import our_step
from lab.benchmarks.cost.sizes import Growth, Size
from lab.benchmarks.decoding import problem
from vaswani.data.batching import TextBatch, random_batch
from vaswani.model.transformer import Transformer
from vaswani.search.options import Decoding
from vaswani.search.searches import run_search
from vaswani.tasks import language_model
from vaswani.train.aot.flops import update_flops

LEAST = 0.2  # seconds that one measurement takes


class Program(NamedTuple):
    """`run` executes it and waits for the end; memory is in bytes; FLOPs are those of a translator's update."""

    run: Callable[[], Any]
    memory: int
    flops: int = 0


def update(size: Size) -> Program:
    """Returns an update of the model on rows that are full on both sides; of the language model, on its one side."""
    batch = random_batch(size.rows, size.length, size.vocabulary)
    if size.stacks == 1:
        step = our_step(size.config, TextBatch(batch.target, batch.labels_bt), objective=language_model.objective)
        return Program(lambda: float(step.run()), step.memory)
    step = our_step(size.config, batch)
    flops = update_flops(size.config, size.rows, size.length, size.length)
    return Program(lambda: float(step.run()), step.memory, flops)


def search(size: Size) -> Program:
    """Returns a beam search for sentences that never end by themselves: it writes `size.length` tokens and an EOS."""
    params, source_bs = problem(size.config, size.rows, size.length)
    jitted = jax.jit(partial(run_search, Transformer(size.config), Decoding(size.beam, extra_length=1)))
    compiled = jitted.lower(params, source_bs).compile()
    needs: Any = compiled.memory_analysis()
    memory = needs.argument_size_in_bytes + needs.output_size_in_bytes + needs.temp_size_in_bytes
    return Program(lambda: jax.block_until_ready(compiled(params, source_bs)), memory)


def grown(growths: Sequence[Growth], make: Callable[[Size], Program], rounds: int) -> dict[str, Any]:
    """Returns the record of these growths."""
    return {"growths": [measured(growth, make, rounds) for growth in growths]}


def measured(growth: Growth, make: Callable[[Size], Program], rounds: int) -> dict[str, Any]:
    """Returns what each size needs: seconds of every round, of the processors and of the clock, bytes and FLOPs.

    A round times every size once, one after the other, so that a busy minute of the machine meets them all.
    """
    print(f"{make.__name__}: {growth.name} {growth.values}, {growth.base.mixer}", file=sys.stderr, flush=True)
    programs = [make(size) for size in growth.sizes]
    repeats = [_repeats(program.run) for program in programs]
    taken: list[list[tuple[float, float]]] = []
    for _ in range(rounds):
        taken.append([_timed(program.run, times) for program, times in zip(programs, repeats, strict=True)])
    return {
        "grows": growth.name,
        "base": growth.base._asdict(),
        "values": growth.values,
        "cpu": [[cpu for cpu, _ in one] for one in taken],
        "wall": [[wall for _, wall in one] for one in taken],
        "memory": [program.memory for program in programs],
        "flops": [program.flops for program in programs if program.flops],
    }


def _repeats(run: Callable[[], Any]) -> int:
    """Returns how often to run a program in a measurement, after one run that may load what it needs."""
    run()
    _, wall = _timed(run, 1)
    return max(1, round(LEAST / wall))


def _timed(run: Callable[[], Any], times: int) -> tuple[float, float]:
    """Returns the processor seconds and the wall seconds of one run."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        run()
    return (time.process_time() - cpu) / times, (time.perf_counter() - wall) / times


def slopes(values: Sequence[int], rounds: Sequence[Sequence[float]], last: int = 3) -> list[float]:
    """Returns the exponent of each round: a line fitted to the logarithms of the `last` sizes, by least squares."""
    sizes = np.log(values[-last:])
    return [float(np.polyfit(sizes, np.log(one[-last:]), 1)[0]) for one in rounds]
