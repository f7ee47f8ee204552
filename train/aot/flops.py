"""Analytic FLOPs of the model, counted from its matrix products (paper, sections 3.1 to 3.4).

The product of an [m,k] and a [k,n] matrix is 2 m k n operations. Norms, softmax, dropout and Adam are not counted: they
are a few per cent at the paper's sizes, and memory-bound. Embedding lookups count as zero. Padding counts, since it is
computed, and so do the positions that a causal mask hides.
"""

from typing import NamedTuple

from model.config import ModelConfig


class Forward(NamedTuple):
    """FLOPs of one forward pass, by part; the source's keys and values count towards the decoder."""

    encoder: int
    decoder: int
    softmax: int


def forward_flops(config: ModelConfig, rows: int, source_length: int, target_length: int) -> Forward:
    """Returns the FLOPs of a forward pass over `rows` rows of `source_length` and `target_length` positions."""
    c, s, t = config, rows * source_length, rows * target_length
    return Forward(
        encoder=c.N * (_projections(c, s, s) + _attention(c, s, source_length) + _feed_forward(c, s)),
        decoder=c.N
        * (
            _projections(c, t, t)
            + _attention(c, t, target_length)
            + _projections(c, t, s)
            + _attention(c, t, source_length)
            + _feed_forward(c, t)
        ),
        softmax=2 * t * c.d_model * c.vocab_size,
    )


def update_flops(config: ModelConfig, rows: int, source_length: int, target_length: int) -> int:
    """Returns the FLOPs of one update, forward and backward, without rematerialisation: the basis of utilisation.

    Each product y = x w becomes two of the same size in the backward pass, dx = dy w^T and dw = x^T dy.
    """
    return 3 * sum(forward_flops(config, rows, source_length, target_length))


def recomputed_flops(config: ModelConfig, rows: int, source_length: int, target_length: int) -> int:
    """Returns the FLOPs that `model.remat` adds: "full" repeats every layer's forward pass, "dots" only its attention.

    The source's keys and values are computed outside the layers, and so stored. With pre-norm a layer's last product is
    not recomputed, since only a sum follows it.
    """
    c, s, t = config, rows * source_length, rows * target_length
    if c.remat == "none":
        return 0
    if c.remat == "dots":
        return c.N * (_attention(c, s, source_length) + _attention(c, t, target_length + source_length))
    forward = forward_flops(config, rows, source_length, target_length)
    stored = c.N * 2 * s * c.d_model * c.h * (c.d_k + c.d_v)
    unneeded = c.N * _feed_forward(c, s + t) // 2 if c.norm == "pre" else 0
    return forward.encoder + forward.decoder - stored - unneeded


def counted_once(config: ModelConfig, rows: int, source_length: int, target_length: int, peeled: int = 0) -> int:
    """Returns the FLOPs of an update as the compiler counts them: the body of every loop once.

    With `model.scan_layers` the layers of each stack are a loop; the source's keys and values are computed outside it.
    `peeled` iterations of the backward loops, over both stacks, are outside too, and are counted.
    """
    c, s = config, rows * source_length
    once = update_flops(config, rows, source_length, target_length)
    once += recomputed_flops(config, rows, source_length, target_length)
    if c.scan_layers:
        forward = forward_flops(config, rows, source_length, target_length)
        looped = forward.encoder + forward.decoder - c.N * 2 * s * c.d_model * c.h * (c.d_k + c.d_v)
        back = 2 * looped + recomputed_flops(config, rows, source_length, target_length)
        once -= looped + back - (looped + back) // c.N
        once += peeled * back // (2 * c.N)
    return once


def _projections(c: ModelConfig, queries: int, keys: int) -> int:
    """Counts W^Q and W^O at every query, W^K and W^V at every key."""
    return 2 * (queries + keys) * c.d_model * c.h * (c.d_k + c.d_v)


def _attention(c: ModelConfig, queries: int, keys_each: int) -> int:
    """Counts Q K^T, and the weights times V."""
    return 2 * queries * keys_each * c.h * (c.d_k + c.d_v)


def _feed_forward(c: ModelConfig, positions: int) -> int:
    return 4 * positions * c.d_model * c.d_ff
