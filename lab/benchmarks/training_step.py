"""Times one training step of the base model against PyTorch eager, alternating in one process.

pip install -e '.[bench]'
GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python -m lab.benchmarks.training_step [--rounds=9] [--tokens=2048] [--length=32]

A step is forward, backward and Adam on the CPU: 6+6 layers, d_model 512, d_ff 2048, 8 heads, 16,000 subwords, dropout
0.1, label smoothing 0.1, 2,048 tokens per side in rows of 32 without padding. Ours is the step that `python -m train`
runs, in float32: with each kind of dropout bits, and with hashed ones and oneDNN's matmuls, also in bfloat16
(`train/cpu_matmuls.py`). PyTorch's uses `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer` (whose attention
is SDPA) and `torch.optim.Adam`; it shares one embedding and applies dropout in the same places as ours, which is less
work than the layers' default. `torch-fused` has fused Adam; `torch-bfloat16` that and bfloat16 autocast. Without
PyTorch only ours are timed, and with jax 0.10 not `ours-onednn`, which it cannot run.

Rounds alternate between them. Each runs an untimed step before the timed one, since a step right after PyTorch's
finds memory and processors as PyTorch left them and takes up to half as long again. A step that got less than 90 % of
the processors is dropped, since the machine may be shared. Compilation is excluded. Peak memory is measured in separate
processes. The last lines are ratios of medians.
"""

import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
from absl import flags

from lab.benchmarks.contenders import EAGER, Peer, our_step, torch_step
from lab.benchmarks.decoding import Sample, timed
from vaswani.command import run
from vaswani.data.batching import random_batch
from vaswani.errors import UserError
from vaswani.machine import largest_resident
from vaswani.model.config import ModelConfig
from vaswani.train.cpu_matmuls import OPTIONS
from vaswani.train.step import CompilerOptions

TOKENS = flags.DEFINE_integer("tokens", 2048, "target tokens per step, a multiple of --length", lower_bound=1)
LENGTH = flags.DEFINE_integer("length", 32, "tokens per row", lower_bound=1)
ROUNDS = flags.DEFINE_integer("rounds", 9, "samples of each contender", lower_bound=1)
TINY = flags.DEFINE_bool("tiny", False, "a 1+1 layer model of width 64, to check that this program works")
MEMORY_OF = flags.DEFINE_string("memory_of", None, "internal: two steps of this contender, then its peak memory")

PEERS = {"torch": EAGER, "torch-fused": Peer(fused=True), "torch-bfloat16": Peer(fast=True)}
OURS: dict[str, tuple[dict[str, Any], CompilerOptions | None]] = {
    "ours-threefry": ({"dropout_bits": "threefry"}, None),
    "ours-hash": ({"dropout_bits": "hash"}, None),
    "ours-onednn": ({"dropout_bits": "hash"}, OPTIONS),
    "ours-bfloat16": ({"dropout_bits": "hash", "dtype": "bfloat16"}, OPTIONS),
}


def sample(run: Callable[[], Any]) -> Sample:
    """Returns the times of the second of two steps."""
    float(run())
    return timed(lambda: float(run()))


def peak_memory(name: str) -> int:
    """Returns the peak resident memory, in MiB, of a separate process that runs two steps of one contender."""
    command = [sys.executable, "-m", "lab.benchmarks.training_step", *sys.argv[1:], f"--memory_of={name}"]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def contenders() -> list[str]:
    """Returns the names of those that can run here; a line on stderr names each other one."""
    reasons = {}
    if jax.__version_info__ < (0, 12):
        reasons["ours-onednn"] = f"jax {jax.__version__} cannot run it"
    if find_spec("torch") is None:
        reasons |= dict.fromkeys(PEERS, "it needs PyTorch: pip install -e '.[bench]'")
    for name, reason in reasons.items():
        print(f"{name}: not run; {reason}", file=sys.stderr)
    return [name for name in (*OURS, *PEERS) if name not in reasons]


def check(options: Any) -> None:
    """Raises a `UserError` unless rows of this length make up the tokens."""
    if options.tokens % options.length:
        raise UserError(f"--tokens={options.tokens}: it must be a multiple of --length={options.length}")


def main(_: list[str]) -> None:
    config = ModelConfig(vocab_size=16_000)
    if TINY.value:
        config = dataclasses.replace(config, vocab_size=500, N=1, d_model=64, d_ff=128, h=2, d_k=32, d_v=32)
    batch = random_batch(TOKENS.value // LENGTH.value, LENGTH.value, config.vocab_size)

    def build(name: str) -> Callable[[], Any]:
        if name in PEERS:
            return torch_step(config, batch, peer=PEERS[name]).run
        changes, options = OURS[name]
        return our_step(dataclasses.replace(config, **changes), batch, options=options).run

    if MEMORY_OF.value:
        print_peak_memory(build(MEMORY_OF.value))
        return

    names = contenders()
    memory = {name: peak_memory(name) for name in names}
    runs = {name: build(name) for name in names}
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for name in names:
        print(f"{name}: loss {float(runs[name]()):.3f} nats", file=sys.stderr)
    for number in range(ROUNDS.value):
        for name in names:
            samples[name].append(sample(runs[name]))
            print(f"{number + 1}/{ROUNDS.value} {name} {samples[name][-1].seconds:.3f} s", file=sys.stderr)
    medians = report(samples, memory)
    for name, other in itertools.product(OURS, ("ours-hash", *PEERS)):
        if name in medians and other in medians and name != other:
            print(f"{name} / {other}: {medians[other] / medians[name]:.2f} x the tokens per second")


def print_peak_memory(run: Callable[[], Any]) -> None:
    """Prints the most memory, in MiB, that this process had after two updates."""
    for _ in range(2):
        float(run())
    print(largest_resident() // 2**20)


def report(samples: dict[str, list[Sample]], memory: dict[str, int]) -> dict[str, float]:
    """Prints a line of JSON for each contender; returns the medians, in seconds.

    Where some samples had all processors, the median is of those alone.
    """
    cpus = len(os.sched_getaffinity(0))
    medians = {}
    for name, all_samples in samples.items():
        fast = [wall for wall, share in all_samples if share >= 0.9 * cpus]
        medians[name] = statistics.median(fast or [wall for wall, _ in all_samples])
        record = {
            "name": name,
            "seconds": round(medians[name], 4),
            "cpu_seconds": round(statistics.median(wall * share for wall, share in all_samples), 4),
            "tokens_per_second": round(TOKENS.value / medians[name], 1),
            "samples": len(all_samples),
            "samples_with_all_cpus": len(fast),
            "cpus": round(statistics.median(share for _, share in all_samples), 2),
            "peak_rss_mib": memory[name],
        }
        print(json.dumps(record))
        if not fast:
            print(f"{name}: no sample had {0.9 * cpus:.1f} cpus; its median is of slow ones", file=sys.stderr)
    return medians


if __name__ == "__main__":
    run(main, hint="the size is given as --tokens=N", check=check)
