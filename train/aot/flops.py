"""Analytic FLOPs of the model, counted from its matrix products (paper, sections 3.1 to 3.4).

The product of an [m,k] and a [k,n] matrix is 2 m k n operations. Norms, softmax, dropout and Adam are not counted: they
are a few per cent at the paper's sizes, and memory-bound. Embedding lookups count as zero. Padding counts, since it is
computed, and so do the positions that a causal mask hides.
"""

from typing import NamedTuple

from model.config import ModelConfig
from model.mixers.linear import BLOCK
from model.mixers.restricted import block_length


class Forward(NamedTuple):
    """FLOPs of one forward pass, by part; the source's keys and values count towards the decoder."""

    encoder: int
    decoder: int
    softmax: int


class _Mixer(NamedTuple):
    """Operations of one mixer: at each position by itself, with parameters; and between positions."""

    each: int
    between: int


def forward_flops(config: ModelConfig, rows: int, source_length: int, target_length: int) -> Forward:
    """Returns the FLOPs of a forward pass over `rows` rows of `source_length` and `target_length` positions."""
    c, s, t = config, rows * source_length, rows * target_length
    if c.prefix != "none":
        both = sum(_mixer(c, rows, source_length + target_length, causal=True)) + _feed_forward(c, s + t)
        return Forward(encoder=0, decoder=c.N * both, softmax=2 * t * c.d_model * c.vocab_size)
    return Forward(
        encoder=c.N * (sum(_mixer(c, rows, source_length, causal=False)) + _feed_forward(c, s)),
        decoder=c.N
        * (
            sum(_mixer(c, rows, target_length, causal=True))
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
    """Returns the FLOPs that `model.remat` adds: "full" repeats every layer's forward pass, "dots" its mixing.

    The source's keys and values are computed outside the layers, and so stored. With pre-norm a layer's last product is
    not recomputed, since only a sum follows it.
    """
    c, s, t = config, rows * source_length, rows * target_length
    if c.remat == "none":
        return 0
    if c.remat == "dots":
        encoder = _mixer(c, rows, source_length, causal=False).between
        decoder = _mixer(c, rows, target_length, causal=True).between
        return c.N * (encoder + decoder + _attention(c, t, source_length))
    forward = forward_flops(config, rows, source_length, target_length)
    stored = c.N * 2 * s * c.d_model * c.h * (c.d_k + c.d_v)
    unneeded = c.N * _feed_forward(c, s + t) // 2 if c.norm == "pre" else 0
    return forward.encoder + forward.decoder - stored - unneeded


def counted_once(
    config: ModelConfig, rows: int, source_length: int, target_length: int, peeled: int = 0, chunks: int = 1
) -> int:
    """Returns the FLOPs of an update as the compiler counts them: the body of every loop once.

    With `model.scan_layers` the layers of each stack are a loop; the source's keys and values are computed outside it.
    `peeled` iterations of the backward loops, over both stacks, are outside too, and are counted. The `chunks` of the
    softmax and its gradient are a loop.
    """
    c, s = config, rows * source_length
    forward = forward_flops(config, rows, source_length, target_length)
    once = update_flops(config, rows, source_length, target_length)
    once += recomputed_flops(config, rows, source_length, target_length)
    once -= 3 * forward.softmax - 3 * forward.softmax // chunks
    if c.scan_layers:
        looped = forward.encoder + forward.decoder - c.N * 2 * s * c.d_model * c.h * (c.d_k + c.d_v)
        back = 2 * looped + recomputed_flops(config, rows, source_length, target_length)
        once -= looped + back - (looped + back) // c.N
        once += peeled * back // (2 * c.N)
    return once


def _mixer(c: ModelConfig, rows: int, length: int, causal: bool) -> _Mixer:
    """Over rows of `length` positions; blocks of rows are computed whole, and count whole."""
    positions, directions = rows * length, 1 if causal else 2
    if c.mixer == "recurrent":  # not by each position alone: the two directions are a batch of products
        return _Mixer(0, 2 * positions * 4 * c.d_model * (c.d_model + c.d_model // directions))
    if c.mixer == "convolution":
        return _Mixer(2 * positions * c.kernel_width * 2 * c.d_model**2, 0)
    each = _projections(c, positions, positions)
    if c.mixer == "restricted":
        block = block_length(c.neighbours, length, causal)
        return _Mixer(each, _attention(c, rows * -(-length // block) * block, (1 + directions) * block))
    if c.mixer == "linear":
        block = min(BLOCK, length)
        filled = rows * -(-length // block) * block
        sums = directions * 2 * c.d_k * (c.d_v + 1)  # made, and read
        return _Mixer(each, 2 * filled * c.h * (block * (c.d_k + c.d_v + 1) + sums))
    return _Mixer(each, _attention(c, positions, length))


def _projections(c: ModelConfig, queries: int, keys: int) -> int:
    """Counts W^Q and W^O at every query, W^K and W^V at every key."""
    return 2 * (queries + keys) * c.d_model * c.h * (c.d_k + c.d_v)


def _attention(c: ModelConfig, queries: int, keys_each: int) -> int:
    """Counts Q K^T, and the weights times V."""
    return 2 * queries * keys_each * c.h * (c.d_k + c.d_v)


def _feed_forward(c: ModelConfig, positions: int) -> int:
    return 4 * positions * c.d_model * c.d_ff
