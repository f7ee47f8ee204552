"""One training step, ours and PyTorch's, on the same batch: what the benchmarks of training compare."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from base.ids import BOS
from base.tokens import Tokens
from configs.common import default
from data.batching import Batch
from model.config import ModelConfig
from model.positions import sinusoids
from tasks.translation import objective
from train.optim import optimizer
from train.step import init_state, make_train_step


class Step(NamedTuple):
    """`run` does one update and returns its loss in nats per token, which is only computed once it is read.

    `memory` is, in bytes, what the compiled update needs in all; 0 where nobody says.
    """

    run: Callable[[], Any]
    memory: int = 0


def random_batch(rows: int, length: int, vocab_size: int) -> Batch:
    """Returns a batch of full rows: one sentence each, without padding."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(4, vocab_size, (2, rows, length), dtype=np.int32)
    target_in = np.concatenate([np.full((rows, 1), BOS, np.int32), target[:, :-1]], axis=1)
    ones, positions = np.ones_like(source), np.tile(np.arange(length, dtype=np.int32), (rows, 1))
    return Batch(Tokens(source, ones, positions), Tokens(target_in, ones, positions), target)


def our_step(config: ModelConfig, batch: Batch, *, chunk: int | None = None, generator: str = "threefry2x32") -> Step:
    """Returns the step that `python -m train` runs, with `loss.chunk` and jax's generator of random numbers."""
    cfg = default()
    tx = optimizer(cfg.optim, config.d_model, cfg.steps)
    goal = objective(config, cfg.loss.eps_ls, cfg.loss.chunk if chunk is None else chunk)
    state = init_state(goal.init, tx, jax.random.key(0))
    key, on_device = jax.random.key(1, impl=generator), jax.tree.map(jnp.asarray, batch)
    step = make_train_step(goal, tx, 1).lower(state, on_device, key).compile()
    needs = step.memory_analysis()

    def run() -> Any:
        nonlocal state
        state, sums = step(state, on_device, key)
        return sums.loss.loss_sum / sums.loss.tokens

    used = needs.argument_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes
    return Step(run, used + needs.temp_size_in_bytes)


def torch_step(
    config: ModelConfig, batch: Batch, *, device: str = "cpu", fast: bool = False, compiled: bool = False
) -> Step:
    """Returns the same in idiomatic PyTorch: `nn.Transformer*Layer`, whose attention is SDPA, and Adam.

    It shares one embedding and applies dropout in the same places as ours, which is less work than the layers' default.
    Its best users add bfloat16 autocast and fused Adam (`fast`), and `torch.compile` (`compiled`). Its rows of one
    sentence each need no mask; ours are masked as packed rows are.
    """
    import torch
    from torch import nn

    sizes = {
        "d_model": config.d_model,
        "nhead": config.h,
        "dim_feedforward": config.d_ff,
        "dropout": config.P_drop,
        "batch_first": True,
        "device": device,
    }
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), config.N, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), config.N)
    embed = nn.Embedding(config.vocab_size, config.d_model, device=device)
    nn.init.normal_(embed.weight, std=config.d_model**-0.5)
    for layer in (*encoder.layers, *decoder.layers):
        layer.dropout.p = 0.0  # the one after the ReLU
        layer.self_attn.dropout = 0.0
    for layer in decoder.layers:
        layer.multihead_attn.dropout = 0.0
    positions = torch.tensor(
        np.asarray(sinusoids(jnp.asarray(batch.source.positions_bt), config.d_model)), device=device
    )
    model = nn.ModuleList([encoder, decoder, embed])
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=fast or None)
    causal = nn.Transformer.generate_square_subsequent_mask(batch.target.ids_bt.shape[1], device=device)
    ids = (batch.source.ids_bt, batch.target.ids_bt, batch.labels_bt)
    source, target_in, target_out = (torch.tensor(x, device=device).long() for x in ids)
    drop = nn.Dropout(config.P_drop)

    def loss_of() -> Any:
        memory = encoder(drop(embed(source) * config.d_model**0.5 + positions))
        x = drop(embed(target_in) * config.d_model**0.5 + positions)
        x = decoder(x, memory, tgt_mask=causal, tgt_is_causal=True)
        logits = x.flatten(0, 1) @ embed.weight.T
        return nn.functional.cross_entropy(logits, target_out.flatten(), label_smoothing=0.1)

    if fast:
        torch.set_float32_matmul_precision("high")
    forward = torch.compile(loss_of) if compiled else loss_of
    compute = torch.autocast(device, torch.bfloat16) if fast else contextlib.nullcontext()

    def run() -> Any:
        adam.zero_grad(set_to_none=True)
        with compute:
            loss = forward()
        loss.backward()
        adam.step()
        return loss.detach()

    return Step(run)
