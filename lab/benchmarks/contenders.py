"""One training step, ours and PyTorch's, on the same batch: what the benchmarks of training compare."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vaswani.configs.common import default
from vaswani.data.batching import Batch, TextBatch
from vaswani.model.config import ModelConfig
from vaswani.model.positions import sinusoids
from vaswani.tasks import translation
from vaswani.tasks.task import Objective
from vaswani.train.optim import optimizer
from vaswani.train.step import CompilerOptions, init_state, make_train_step


class Step(NamedTuple):
    """`run` does one update and returns its loss in nats per token, which is only computed once it is read.

    `memory` is, in bytes, what the compiled update needs in all; 0 where nobody says.
    """

    run: Callable[[], Any]
    memory: int = 0


def our_step(
    config: ModelConfig,
    batch: Batch | TextBatch,
    *,
    chunk: int | None = None,
    generator: str = "threefry2x32",
    warmup: int | None = None,
    objective: Callable[..., Objective] = translation.objective,
    options: CompilerOptions | None = None,
) -> Step:
    """Returns the step that `python -m train` runs, with `loss.chunk` and jax's generator of random numbers.

    `objective` is the task's, `options` the compiler's.
    """
    cfg = default()
    if warmup is not None:
        cfg.optim.warmup = warmup
    tx = optimizer(cfg.optim, config.d_model, cfg.steps)
    goal = objective(config, cfg.loss.eps_ls, cfg.loss.chunk if chunk is None else chunk)
    state = init_state(goal.init, tx, jax.random.key(0))
    key = jax.random.key(1, impl=generator)
    on_device = jax.tree.map(jnp.asarray, batch)
    jitted: Any = make_train_step(goal, tx, 1, options=options)
    step = jitted.lower(state, on_device, key).compile()
    needs = step.memory_analysis()

    def run() -> Any:
        nonlocal state
        state, sums = step(state, on_device, key)
        return sums.loss.loss_sum / sums.loss.tokens

    used = needs.argument_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes
    return Step(run, used + needs.temp_size_in_bytes)


class Peer(NamedTuple):
    """How PyTorch computes; the default is eager float32.

    `fused` is fused Adam. `fast` is that, bfloat16 autocast and, on a GPU, TF32. `half` has activations and gradients
    in bfloat16 throughout, with float32 master weights, in the place of autocast. `mode` is that of `torch.compile`,
    and empty for eager. `chunk` is the number of positions whose logits exist at a time; 0 for all.
    """

    fused: bool = False
    fast: bool = False
    half: bool = False
    mode: str = ""
    chunk: int = 0


EAGER = Peer()


def torch_step(
    config: ModelConfig,
    batch: Batch,
    *,
    device: str = "cpu",
    peer: Peer = EAGER,
    params: Any = None,
    rate: Callable[[int], float] | None = None,
) -> Step:
    """Returns the same in idiomatic PyTorch: `nn.Transformer*Layer`, whose attention is SDPA, and Adam.

    It shares one embedding and applies dropout in the same places as ours, which is less work than the layers' default.
    Its rows of one sentence each need no mask; ours are masked as packed rows are. With `params` it starts from our
    weights, and `rate` is the learning rate of each update, from 1 on; otherwise 1e-4.
    """
    import torch
    from torch import nn

    encoder, decoder, embed = _torch_modules(config, device)
    if params is not None:
        copy_weights(encoder, decoder, embed, params)
    positions = torch.tensor(
        np.asarray(sinusoids(jnp.asarray(batch.source.positions_bt), config.d_model)), device=device
    )
    model = nn.ModuleList([encoder, decoder, embed])
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    masters = weights
    if peer.half:
        masters = [weight.detach().clone().requires_grad_() for weight in weights]
        model.to(torch.bfloat16)
        positions = positions.to(torch.bfloat16)
    adam = torch.optim.Adam(masters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=peer.fused or peer.fast or None)
    kind = torch.bfloat16 if peer.half else torch.float32
    causal = nn.Transformer.generate_square_subsequent_mask(batch.target.ids_bt.shape[1], device=device, dtype=kind)
    ids = (batch.source.ids_bt, batch.target.ids_bt, batch.labels_bt)
    source, target_in, target_out = (torch.tensor(x, device=device).long() for x in ids)
    drop = nn.Dropout(config.P_drop)

    def loss_of() -> Any:
        memory = encoder(drop(embed(source) * config.d_model**0.5 + positions))
        x = drop(embed(target_in) * config.d_model**0.5 + positions)
        x = decoder(x, memory, tgt_mask=causal, tgt_is_causal=True)
        return _torch_loss(x.flatten(0, 1), embed.weight, target_out.flatten(), peer.chunk)

    if peer.fast and device != "cpu":
        torch.set_float32_matmul_precision("high")
    forward = torch.compile(loss_of, mode=peer.mode) if peer.mode else loss_of
    is_cast = peer.fast and not peer.half
    compute = torch.autocast(device, torch.bfloat16) if is_cast else contextlib.nullcontext()
    updates = 0

    def run() -> Any:
        nonlocal updates
        updates += 1
        if rate is not None:
            adam.param_groups[0]["lr"] = rate(updates)
        model.zero_grad(set_to_none=True)
        with compute:
            loss = forward()
        loss.backward()
        if peer.half:
            for master, weight in zip(masters, weights, strict=True):
                master.grad = weight.grad.float()
        adam.step()
        if peer.half:
            with torch.no_grad():
                torch._foreach_copy_(weights, masters)
        return loss.detach()

    return Step(run)


def _torch_modules(config: ModelConfig, device: str) -> tuple[Any, Any, Any]:
    """Returns an encoder, a decoder and the embedding that they share, with dropout where ours has it."""
    from torch import nn

    sizes = {
        "d_model": config.d_model,
        "nhead": config.h,
        "dim_feedforward": config.d_ff,
        "dropout": config.P_drop,
        "batch_first": True,
        "layer_norm_eps": config.norm_epsilon,
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
    return encoder, decoder, embed


def _torch_loss(hidden: Any, embed: Any, labels: Any, chunk: int) -> Any:
    """Returns the mean loss; with `chunk`, as in Liger's kernel, logits are computed again for the gradient."""
    from torch.nn.functional import cross_entropy
    from torch.utils.checkpoint import checkpoint

    def loss_sum(hidden: Any, labels: Any) -> Any:
        return cross_entropy((hidden @ embed.T).float(), labels, label_smoothing=0.1, reduction="sum")

    if not chunk:
        return loss_sum(hidden, labels) / len(labels)
    parts = zip(hidden.split(chunk), labels.split(chunk), strict=True)
    return sum(checkpoint(loss_sum, *part, use_reentrant=False) for part in parts) / len(labels)


def copy_weights(encoder: Any, decoder: Any, embed: Any, params: Any) -> None:
    """Gives PyTorch's stacks and embedding our parameters, in place; biases that ours lack stay 0."""
    import torch

    def tensor(array: Any) -> Any:
        return torch.tensor(np.asarray(array, np.float32))

    def attention(theirs: Any, ours: Any) -> None:
        width = theirs.embed_dim
        joined = [tensor(ours[name]).reshape(width, -1).T for name in ("wq", "wk", "wv")]
        theirs.in_proj_weight.copy_(torch.cat(joined))
        theirs.out_proj.weight.copy_(tensor(ours["wo"]).reshape(-1, width).T)
        for bias in (theirs.in_proj_bias, theirs.out_proj.bias):
            bias.zero_().requires_grad_(False)

    with torch.no_grad():
        embed.weight.copy_(tensor(params["embed"]))
        for side, stack in (("encoder", encoder), ("decoder", decoder)):
            for number, layer in enumerate(stack.layers):
                ours = params[side][f"layer_{number}"]
                attention(layer.self_attn, ours["self_attention"])
                if side == "decoder":
                    attention(layer.multihead_attn, ours["cross_attention"])
                for linear, weight, bias in ((layer.linear1, "w1", "b1"), (layer.linear2, "w2", "b2")):
                    linear.weight.copy_(tensor(ours["feed_forward"][weight]).T)
                    linear.bias.copy_(tensor(ours["feed_forward"][bias]))
                norms = 2 if side == "encoder" else 3
                for place in range(1, norms + 1):
                    norm = getattr(layer, f"norm{place}")
                    norm.weight.copy_(tensor(ours[f"norm_{place}"]["scale"]))
                    norm.bias.copy_(tensor(ours[f"norm_{place}"]["bias"]))
