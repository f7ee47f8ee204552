"""Times one training step of the base model against PyTorch eager, alternating in one process.

pip install -e '.[bench]'
GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python -m benchmarks.training_step [--rounds=9] [--tokens=2048] [--length=32]

A step is forward, backward and Adam in float32 on the CPU: 6+6 layers, d_model 512, d_ff 2048, 8 heads, 16,000
subwords, dropout 0.1, label smoothing 0.1, 2,048 tokens per side in rows of 32 without padding. Ours is the step that
`python -m train` runs, with each kind of dropout bits. PyTorch's uses `nn.TransformerEncoderLayer` and
`nn.TransformerDecoderLayer` (whose attention is SDPA) and `torch.optim.Adam`; it shares one embedding and applies
dropout in the same places as ours, which is less work than the layers' default.

Rounds alternate between the three. Each runs an untimed step before the timed one, since a step right after PyTorch's
finds memory and processors as PyTorch left them and takes up to half as long again. A step that got less than 90 % of
the processors is dropped, since the machine may be shared. Compilation is excluded. Peak memory is measured in separate
processes. The last lines are ratios of medians.
"""

import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
from absl import app, flags
from torch import nn

from base.ids import BOS
from configs.common import default
from data.batching import Batch
from model.config import ModelConfig
from model.positions import sinusoids
from train.optim import optimizer
from train.step import init_state, make_train_step
from train.tasks.translation import objective

TOKENS = flags.DEFINE_integer("tokens", 2048, "target tokens per step")
LENGTH = flags.DEFINE_integer("length", 32, "tokens per row")
ROUNDS = flags.DEFINE_integer("rounds", 9, "samples of each contender")
TINY = flags.DEFINE_bool("tiny", False, "a 1+1 layer model of width 64, to check that this program works")
MEMORY_OF = flags.DEFINE_string("memory_of", None, "internal: two steps of this contender, then its peak memory")

CONTENDERS = ("ours-threefry", "ours-hash", "torch")


def random_batch(rows: int, length: int, vocab_size: int) -> Batch:
    """Returns a batch of full rows: one sentence each, without padding."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(4, vocab_size, (2, rows, length), dtype=np.int32)
    target_in = np.concatenate([np.full((rows, 1), BOS, np.int32), target[:, :-1]], axis=1)
    ones, positions = np.ones_like(source), np.tile(np.arange(length, dtype=np.int32), (rows, 1))
    return Batch(source, target_in, target, ones, positions, ones, positions)


def our_step(config: ModelConfig, batch: Batch) -> Callable[[], float]:
    """Returns a function that does one update and returns its loss in nats per token."""
    cfg = default()
    tx = optimizer(cfg.optim, config.d_model, cfg.steps)
    goal = objective(config, cfg.loss.eps_ls, cfg.loss.chunk)
    state = init_state(goal.init, tx, jax.random.key(0))
    step = make_train_step(goal, tx, 1)
    key, on_device = jax.random.key(1), jax.tree.map(jnp.asarray, batch)

    def run() -> float:
        nonlocal state
        state, sums = step(state, on_device, key)
        return float(sums.loss.loss_sum) / int(sums.loss.tokens)

    return run


def torch_step(config: ModelConfig, batch: Batch) -> Callable[[], float]:
    """Returns the same for PyTorch, in idiomatic PyTorch."""
    sizes = {
        "d_model": config.d_model,
        "nhead": config.h,
        "dim_feedforward": config.d_ff,
        "dropout": config.P_drop,
        "batch_first": True,
    }
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), config.N, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), config.N)
    embed = nn.Embedding(config.vocab_size, config.d_model)
    nn.init.normal_(embed.weight, std=config.d_model**-0.5)
    for layer in (*encoder.layers, *decoder.layers):
        layer.dropout.p = 0.0  # the one after the ReLU
        layer.self_attn.dropout = 0.0
    for layer in decoder.layers:
        layer.multihead_attn.dropout = 0.0
    positions = torch.tensor(np.asarray(sinusoids(jnp.asarray(batch.source_positions_bs), config.d_model)))
    model = nn.ModuleList([encoder, decoder, embed])
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    causal = nn.Transformer.generate_square_subsequent_mask(batch.target_in_bt.shape[1])
    source, target_in, target_out = (torch.tensor(x).long() for x in batch[:3])
    drop = nn.Dropout(config.P_drop)

    def run() -> float:
        adam.zero_grad(set_to_none=True)
        memory = encoder(drop(embed(source) * config.d_model**0.5 + positions))
        x = drop(embed(target_in) * config.d_model**0.5 + positions)
        x = decoder(x, memory, tgt_mask=causal, tgt_is_causal=True)
        logits = x.flatten(0, 1) @ embed.weight.T
        loss = nn.functional.cross_entropy(logits, target_out.flatten(), label_smoothing=0.1)
        loss.backward()
        adam.step()
        return float(loss.detach())

    return run


def sample(run: Callable[[], float]) -> tuple[float, float]:
    """Returns the wall seconds of the second of two steps, and the number of processors that it used."""
    run()
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall, cpu / wall


def peak_memory(name: str) -> int:
    """Returns the peak resident memory, in MiB, of a separate process that runs two steps of one contender."""
    command = [sys.executable, "-m", "benchmarks.training_step", *sys.argv[1:], f"--memory_of={name}"]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def main(_: list[str]) -> None:
    config = ModelConfig(vocab_size=16_000)
    if TINY.value:
        config = dataclasses.replace(config, vocab_size=500, N=1, d_model=64, d_ff=128, h=2, d_k=32, d_v=32)
    batch = random_batch(TOKENS.value // LENGTH.value, LENGTH.value, config.vocab_size)

    def build(name: str) -> Callable[[], float]:
        if name == "torch":
            return torch_step(config, batch)
        return our_step(dataclasses.replace(config, dropout_bits=name.removeprefix("ours-")), batch)

    if MEMORY_OF.value:
        run = build(MEMORY_OF.value)
        for _ in range(2):
            run()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return

    memory = {name: peak_memory(name) for name in CONTENDERS}
    cpus = len(os.sched_getaffinity(0))
    runs = {name: build(name) for name in CONTENDERS}
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    for name in CONTENDERS:
        print(f"{name}: loss {runs[name]():.3f} nats", file=sys.stderr)
    for number in range(ROUNDS.value):
        for name in CONTENDERS:
            samples[name].append(sample(runs[name]))
            print(f"{number + 1}/{ROUNDS.value} {name} {samples[name][-1][0]:.3f} s", file=sys.stderr)
    medians = {}
    for name, all_samples in samples.items():
        fast = [wall for wall, share in all_samples if share >= 0.9 * cpus]
        medians[name] = statistics.median(fast or [wall for wall, _ in all_samples])
        record = {
            "name": name,
            "seconds": round(medians[name], 4),
            "tokens_per_second": round(TOKENS.value / medians[name], 1),
            "samples": len(all_samples),
            "samples_with_all_cpus": len(fast),
            "cpus": round(statistics.median(share for _, share in all_samples), 2),
            "peak_rss_mib": memory[name],
        }
        print(json.dumps(record))
        if not fast:
            print(f"{name}: no sample had {0.9 * cpus:.1f} cpus; its median is of slow ones", file=sys.stderr)
    for name in CONTENDERS[:2]:
        print(f"{name} / torch eager: {medians['torch'] / medians[name]:.2f} x the tokens per second")


if __name__ == "__main__":
    app.run(main)
