"""One update in bfloat16 on packed rows, the paper's 25,000 positions a side: ours in several forms, and PyTorch's.

Each form is measured in a process of its own, whose peak of memory is the form's.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from lab.benchmarks.accelerator.device import peak_memory
from lab.benchmarks.accelerator.process import in_fresh_process
from lab.benchmarks.accelerator.record import Options, Part
from lab.benchmarks.contenders import Peer, Step, our_step, torch_step
from vaswani.configs.common import default
from vaswani.data.batching import random_batch
from vaswani.errors import UserError
from vaswani.model.config import ModelConfig
from vaswani.model.mixers import kernels
from vaswani.model.transformer import init_params
from vaswani.train.aot.flops import update_flops
from vaswani.train.optim import learning_rate
from vaswani.train.utilisation import chip_of

POSITIONS, LENGTH = 25_000, 256
BASE = ModelConfig(vocab_size=37_000, dtype="bfloat16", dropout_bits="hash")
BIG = dataclasses.replace(BASE, d_model=1024, d_ff=4096, h=16, P_drop=0.3)
TINY = dataclasses.replace(BASE, vocab_size=500, N=1, d_model=32, d_ff=64, h=2, d_k=16, d_v=16)

CHUNKED = "ours, cudnn, chunks of 8,192"  # loss.chunk, by default 1,024, is for less memory than a GPU has
# Fields of the model, but for `chunk` (loss.chunk), `masked`, and `generator` (jax's, which draws "threefry"'s bits).
# With "rbg" an element's mask depends on the whole batch, which is why no config offers it: it is here for its speed.
# Without a mask, as PyTorch's, packed rows would mix: the difference is what the bias of packed rows costs cuDNN.
FORMS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, cudnn": {"attention_impl": "cudnn"},
    "ours, cudnn, no mask": {"attention_impl": "cudnn", "masked": False},
    "ours, threefry": {"dropout_bits": "threefry"},
    "ours, rbg": {"dropout_bits": "threefry", "generator": "rbg"},
    "ours, scanned": {"scan_layers": True},
    CHUNKED: {"attention_impl": "cudnn", "chunk": 8_192},
    "ours, cudnn, all logits": {"attention_impl": "cudnn", "chunk": 0},
    "no dropout": {"P_drop": 0.0},  # the difference is what dropout costs
    "1,000 subwords": {"vocab_size": 1_000},  # the difference is what the softmax and its loss cost
}
TUNED = "PyTorch, bfloat16, tuned, chunks"
PEERS = {
    "PyTorch": Peer(fast=True, mode="default"),
    "PyTorch, eager": Peer(fast=True),
    "PyTorch, bfloat16": Peer(fast=True, half=True, mode="default"),
    TUNED: Peer(fast=True, half=True, mode="max-autotune-no-cudagraphs", chunk=8_192),
}
# Of both models, in this order, before the other forms of base; the last one's tuning takes minutes.
FIRST = ("ours", "ours, cudnn", CHUNKED, "PyTorch", "PyTorch, bfloat16")
OF_TINY = ("ours, rbg", TUNED)
LOSSES = "losses of both"
UPDATES = 10  # from the same weights, after which the losses must agree
AGREE = 1e-2  # of the loss


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


def ours(config: ModelConfig, form: dict[str, Any], shape: tuple[int, int], tiny: bool) -> dict[str, Any]:
    """Measures a form of our update on so many rows of so many positions; to be run in a fresh process."""
    changes = {name: value for name, value in form.items() if name not in ("chunk", "generator", "masked")}
    config = dataclasses.replace(config, **changes)
    drawn = {name: form[name] for name in ("chunk", "generator") if name in form}
    is_masked = form.get("masked", True)
    kernel = kernels.cudnn if is_masked else _without_mask
    with mock.patch.object(kernels, "cudnn", kernel):
        step = our_step(config, random_batch(*shape, config.vocab_size), **drawn)
        found = _measured(step, tiny)
    return found | {"memory_gib": (peak_memory() or step.memory) / 2**30}


def pytorch(config: ModelConfig, peer: Peer, shape: tuple[int, int], tiny: bool) -> dict[str, Any]:
    """Measures PyTorch's update; to be run in a fresh process. In miniature nothing is compiled."""
    import torch

    device = "cpu" if tiny else "cuda"
    peer = peer._replace(mode="") if tiny else peer
    step = torch_step(config, random_batch(*shape, config.vocab_size), device=device, peer=peer)
    found = _measured(step, tiny)
    peak = 0 if tiny else torch.cuda.max_memory_allocated()
    return found | {"memory_gib": peak / 2**30}


def losses(config: ModelConfig, shape: tuple[int, int], tiny: bool) -> dict[str, Any]:
    """Trains both from the same weights without dropout, with the same rates; returns the losses, which must agree.

    Raises:
      UserError: they differ by more than `AGREE` of the loss.
    """
    config = dataclasses.replace(config, P_drop=0.0)
    cfg = default()
    cfg.optim.warmup = 400  # a rate that moves the loss in ten updates
    batch = random_batch(*shape, config.vocab_size)
    theirs = torch_step(
        config,
        batch,
        device="cpu" if tiny else "cuda",
        peer=Peer(fast=True),
        params=jax.tree.map(np.asarray, init_params(config, jax.random.key(0))),
        rate=lambda update: float(learning_rate(cfg.optim, config.d_model, cfg.steps, update)),
    )
    steps = {"ours": our_step(config, batch, warmup=cfg.optim.warmup), "pytorch": theirs}
    found: dict[str, float] = {}
    for name, step in steps.items():
        for _ in range(UPDATES):
            found[f"loss_{name}"] = float(step.run())  # the last one stays
    difference = abs(found["loss_ours"] / found["loss_pytorch"] - 1)
    if difference > AGREE:
        raise UserError(f"the losses after {UPDATES} updates are {found['loss_ours']} and {found['loss_pytorch']}")
    return found | {"loss_percent": 100 * difference}


def parts(options: Options) -> dict[str, Part]:
    """Returns the matrix peak, then every form of both models, each beside PyTorch's."""
    tiny = options.tiny
    rows, length = (4, 16) if tiny else (POSITIONS // LENGTH, LENGTH)
    models = {"base": TINY} if tiny else {"base": BASE, "big": BIG}
    peak: list[float] = []

    def measure_peak() -> dict[str, Any]:
        found = in_fresh_process(matrix_peak, 256 if tiny else 8_192)
        peak.append(found["tflops"] * 1e12)
        return found

    def one(config: ModelConfig, form: str) -> dict[str, Any]:
        if form in PEERS:
            found = in_fresh_process(pytorch, config, PEERS[form], (rows, length), tiny)
        else:
            found = in_fresh_process(ours, config, FORMS[form], (rows, length), tiny)
        if not peak:
            measure_peak()  # an earlier command has recorded it, and this process starts without it
        fields = FORMS.get(form, {})
        counted = dataclasses.replace(config, vocab_size=fields.get("vocab_size", config.vocab_size))
        flops = update_flops(counted, rows, length, length) / found["seconds_of_update"]
        measured_form = {
            "milliseconds": 1e3 * found["seconds_of_update"],
            "target_tokens_per_second": rows * length / found["seconds_of_update"],  # of rows without padding
            "mfu": 100 * flops / peak[0],
        }
        chip = chip_of(jax.devices()[0].device_kind)
        if chip:
            measured_form["mfu_data_sheet"] = 100 * flops / chip.peak
        return measured_form | {"memory_gib": found["memory_gib"], "loss": found["loss"]}

    if tiny:
        measured = [("base", form) for form in OF_TINY]
    else:
        measured = [(name, form) for name in models for form in FIRST]
        measured += [(name, TUNED) for name in models]
        measured += [("base", form) for form in (*FORMS, *PEERS) if form not in (*FIRST, TUNED)]
    found: dict[str, Part] = {"matrix peak": measure_peak}
    for name, form in measured:
        found[f"{name}: {form}"] = partial(one, models[name], form)
    return found | {f"base: {LOSSES}": partial(in_fresh_process, losses, models["base"], (rows, length), tiny)}


def _measured(step: Step, tiny: bool) -> dict[str, Any]:
    updates, windows = (1, 1) if tiny else (10, 5)
    return {"seconds_of_update": timed(step.run, updates, windows), "loss": float(step.run())}


def _without_mask(q_bhtk: Any, k_bhsk: Any, v_bhse: Any, mask: Any) -> Any:
    """Runs cuDNN's attention without the bias of packed rows."""
    arrays = (x.swapaxes(1, 2) for x in (q_bhtk, k_bhsk, v_bhse))
    heads_bthe = jax.nn.dot_product_attention(*arrays, is_causal=mask.causal, implementation="cudnn")
    return heads_bthe.swapaxes(1, 2)
