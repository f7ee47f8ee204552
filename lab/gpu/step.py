"""One update in bfloat16 on packed rows, the paper's 25,000 positions a side: ours in several forms, and PyTorch's.

Each form is a part, and so a process of its own, whose peak of memory is the form's.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from lab.benchmarks.contenders import Peer, Step, our_step, torch_step
from lab.gpu.machine import peak_memory, state
from lab.gpu.sitting import Context
from vaswani.configs.common import default
from vaswani.data.batching import random_batch
from vaswani.errors import UserError
from vaswani.model.config import ModelConfig
from vaswani.model.mixers import kernels
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.train.aot.flops import update_flops
from vaswani.train.optim import learning_rate
from vaswani.train.utilisation import chip_of

POSITIONS, LENGTH = 25_000, 256
BASE = ModelConfig(vocab_size=37_000, dtype="bfloat16", dropout_bits="hash")
BIG = dataclasses.replace(BASE, d_model=1024, d_ff=4096, h=16, P_drop=0.3)
TINY = dataclasses.replace(BASE, vocab_size=500, N=1, d_model=32, d_ff=64, h=2, d_k=16, d_v=16)

# Fields of the model, but for `chunk` (loss.chunk, by default 1,024, for less memory than a GPU has) and `masked`.
# Without a mask, as PyTorch's, packed rows would mix: the difference is what the bias of packed rows costs cuDNN.
OURS = "ours, cudnn, chunks of 8,192"
_BEST = {"attention_impl": "cudnn", "chunk": 8_192}
FORMS: dict[str, dict[str, Any]] = {
    OURS: _BEST,
    "ours, no mask": _BEST | {"masked": False},
    "ours, 1,000 subwords": _BEST | {"vocab_size": 1_000},  # the difference is what the softmax and its loss cost
    "ours, no dropout": _BEST | {"P_drop": 0.0},
    "ours, threefry": _BEST | {"dropout_bits": "threefry"},
    "ours, einsum": _BEST | {"attention_impl": "einsum"},
}
TUNED = "PyTorch, bfloat16, tuned, chunks"
PEERS = {
    "PyTorch": Peer(fast=True, mode="default"),
    "PyTorch, bfloat16": Peer(fast=True, half=True, mode="default"),
    # Its tuning takes minutes.
    TUNED: Peer(fast=True, half=True, mode="max-autotune-no-cudagraphs", chunk=8_192),
}
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


def matrix_peak(context: Context) -> dict[str, Any]:
    """Returns the operations per second of a chain of bfloat16 matrix products."""
    size = 256 if context.tiny else 8_192
    a, b = (jax.random.normal(jax.random.key(n), (size, size), jnp.bfloat16) for n in range(2))
    product = jax.jit(lambda a, b: (a @ b) * jnp.bfloat16(size**-0.5))

    def run() -> Any:
        nonlocal a
        a = product(a, b)
        return a[0, 0]

    return {"tflops": 2 * size**3 / timed(run, 10, 5) / 1e12}


def problem(context: Context, model: str) -> tuple[ModelConfig, tuple[int, int]]:
    """Returns the model of a step, and its rows and their length."""
    if context.tiny:
        return TINY, (4, 16)
    return {"base": BASE, "big": BIG}[model], (POSITIONS // LENGTH, LENGTH)


def update(context: Context, model: str, form: str) -> dict[str, Any]:
    """Measures an update of a form of ours, or of PyTorch's."""
    config, shape = problem(context, model)
    if form in PEERS:
        seconds, loss, memory = _of_pytorch(config, PEERS[form], shape, context.tiny)
    else:
        fields = {name: value for name, value in FORMS[form].items() if name not in ("chunk", "masked")}
        if context.tiny:
            fields["attention_impl"] = "einsum"
        config = dataclasses.replace(config, **fields)
        seconds, loss, memory = _of_ours(config, FORMS[form], shape, context.tiny)
    rows, length = shape
    flops = update_flops(config, rows, length, length) / seconds
    chip = chip_of(jax.devices()[0].device_kind)
    return {
        "milliseconds": 1e3 * seconds,
        "target_tokens_per_second": rows * length / seconds,  # of rows without padding
        "mfu_data_sheet": 100 * flops / chip.peak if chip else None,
        "memory_gib": memory / 2**30,
        "loss": loss,
        "after": state(),
    }


def _of_ours(
    config: ModelConfig, form: dict[str, Any], shape: tuple[int, int], tiny: bool
) -> tuple[float, float, float]:
    """Returns seconds, loss and bytes of our update on so many rows of so many positions."""
    kernel = kernels.cudnn if form.get("masked", True) else _without_mask
    with mock.patch.object(kernels, "cudnn", kernel):
        step = our_step(config, random_batch(*shape, config.vocab_size), chunk=form["chunk"])
        seconds, loss = _measured(step, tiny)
    return seconds, loss, peak_memory() or step.memory


def _of_pytorch(config: ModelConfig, peer: Peer, shape: tuple[int, int], tiny: bool) -> tuple[float, float, float]:
    """Returns the same of PyTorch's update. In miniature nothing is compiled."""
    import torch

    device = "cpu" if tiny else "cuda"
    peer = peer._replace(mode="") if tiny else peer
    step = torch_step(config, random_batch(*shape, config.vocab_size), device=device, peer=peer)
    seconds, loss = _measured(step, tiny)
    return seconds, loss, 0 if tiny else torch.cuda.max_memory_allocated()


def losses(context: Context) -> dict[str, Any]:
    """Trains both from the same weights without dropout, with the same rates; returns the losses, which must agree.

    Raises:
      UserError: they differ by more than `AGREE` of the loss.
    """
    config, shape = problem(context, "base")
    config = dataclasses.replace(config, P_drop=0.0)
    cfg = default()
    cfg.optim.warmup = 400  # a rate that moves the loss in ten updates
    batch = random_batch(*shape, config.vocab_size)
    theirs = torch_step(
        config,
        batch,
        device="cpu" if context.tiny else "cuda",
        peer=Peer(fast=True),
        params=jax.tree.map(np.asarray, init_params(Transformer(config), jax.random.key(0))),
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


def _measured(step: Step, tiny: bool) -> tuple[float, float]:
    """Returns the seconds of an update, and its loss."""
    updates, windows = (1, 1) if tiny else (10, 5)
    return timed(step.run, updates, windows), float(step.run())


def _without_mask(q_bhtk: Any, k_bhsk: Any, v_bhse: Any, mask: Any) -> Any:
    """Runs cuDNN's attention without the bias of packed rows."""
    arrays = (x.swapaxes(1, 2) for x in (q_bhtk, k_bhsk, v_bhse))
    heads_bthe = jax.nn.dot_product_attention(*arrays, is_causal=mask.causal, implementation="cudnn")
    return heads_bthe.swapaxes(1, 2)
