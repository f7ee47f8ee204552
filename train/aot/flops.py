"""Analytic FLOPs of the model, counted from its matmuls (paper, sections 3.1 to 3.4).

The matmul of an [m,k] and a [k,n] matrix is 2 m k n operations. Norms, softmax, dropout and Adam are not counted: they
are a few per cent at the paper's sizes, and memory-bound. Embedding lookups count as zero, and so does finding the
relative vector of each distance. Padding counts, since it is computed, and so do causally masked positions.
"""

from typing import NamedTuple

from vaswani.model.baselines.recurrent_translator import RecurrentConfig
from vaswani.model.block import GATED
from vaswani.model.config import CommonConfig, ModelConfig
from vaswani.model.mixers.linear import BLOCK
from vaswani.model.mixers.restricted import block_length
from vaswani.model.positions import encoding_of


class Forward(NamedTuple):
    """FLOPs of one forward pass, by part; the source's keys and values count towards the decoder."""

    encoder: int
    decoder: int
    softmax: int


class _Mixer(NamedTuple):
    """Operations of one mixer: at each position by itself, with parameters; and between positions."""

    each: int
    between: int


def forward_flops(config: CommonConfig, rows: int, source_length: int, target_length: int) -> Forward:
    """Returns the FLOPs of a forward pass over `rows` rows of `source_length` and `target_length` positions."""
    c = config
    s = rows * source_length
    t = rows * target_length
    softmax = 2 * t * c.d_model * c.vocab_size
    if isinstance(c, RecurrentConfig):
        return Forward(*_recurrent(c, s, t, source_length), softmax=softmax)
    assert isinstance(c, ModelConfig)
    if c.prefix != "none":
        mixer = _mixer(c, rows, source_length + target_length, causal=True)
        layer = sum(mixer) + _feed_forward(c, s + t)
        return Forward(encoder=0, decoder=c.N * layer, softmax=softmax)
    encoder_depth, decoder_depth = c.depths
    encoder_mixer = _mixer(c, rows, source_length, causal=False)
    encoder_layer = sum(encoder_mixer) + _feed_forward(c, s)
    decoder_mixer = _mixer(c, rows, target_length, causal=True)
    cross_attention = _projections(c, t, s) + _attention(c, t, source_length)
    decoder_layer = sum(decoder_mixer) + cross_attention + _feed_forward(c, t)
    return Forward(encoder_depth * encoder_layer, decoder_depth * decoder_layer, softmax)


def update_flops(config: CommonConfig, rows: int, source_length: int, target_length: int) -> int:
    """Returns the FLOPs of one step, forward and backward, without rematerialisation: the basis of utilisation.

    Each matmul y = x w becomes two of the same size in the backward pass, dx = dy w^T and dw = x^T dy.
    """
    return 3 * sum(forward_flops(config, rows, source_length, target_length))


def recomputed_flops(config: ModelConfig, rows: int, source_length: int, target_length: int) -> int:
    """Returns the FLOPs that `model.remat` adds: "full" repeats every layer's forward pass, "dots" its mixing.

    The source's keys and values are computed outside the layers, and so stored. With pre-norm or no norm a layer's last
    matmul is not recomputed, since only a sum follows it.
    """
    return sum(_recomputed_flops(config, rows, source_length, target_length))


def _recomputed_flops(c: ModelConfig, rows: int, source_length: int, target_length: int) -> tuple[int, int]:
    """Returns `recomputed_flops` of the encoder and of the decoder."""
    s = rows * source_length
    t = rows * target_length
    encoder_depth, decoder_depth = c.depths
    if c.remat == "none":
        return 0, 0
    if c.remat == "dots":
        encoder = _mixer(c, rows, source_length, causal=False).between
        decoder = _mixer(c, rows, target_length, causal=True).between
        cross_attention = _attention(c, t, source_length)
        return encoder_depth * encoder, decoder_depth * (decoder + cross_attention)
    forward = forward_flops(c, rows, source_length, target_length)
    last_product = 2 * c.d_model * c.d_ff if c.norm in ("pre", "none") else 0
    encoder = forward.encoder - encoder_depth * s * last_product
    decoder = forward.decoder - decoder_depth * t * last_product
    return encoder, decoder - _source_keys_values(c, s)


def _recurrent(c: RecurrentConfig, s: int, t: int, source_length: int) -> tuple[int, int]:
    """Returns the operations of a recurrent translator's encoder and decoder; U h_j counts towards the decoder."""
    d = c.d_model
    gates = 3 if c.cell == "gru" else 4
    width = d // c.directions
    inputs = 2 * d if c.recurrent == "additive" else d
    encoder = c.N * 2 * s * c.directions * gates * width * (d + width)
    decoder = c.N * 2 * t * gates * d * (inputs + d)
    if c.recurrent != "fixed":
        scores_and_contexts = 2 * 2 * t * source_length * d
        output = 2 * t * 2 * d * d
        decoder += scores_and_contexts + output
    if c.recurrent == "additive":
        decoder += 2 * (s + t) * d * d
    return encoder, decoder


def _mixer(c: ModelConfig, rows: int, length: int, causal: bool) -> _Mixer:
    """Returns the operations over rows of `length` positions; blocks of rows are computed whole, and count whole."""
    positions = rows * length
    directions = 1 if causal else 2
    if c.mixer == "recurrent":
        # Nothing is per position: the two directions are a batch of matmuls.
        gates = 4 * c.d_model * (c.d_model + c.d_model // directions)
        return _Mixer(each=0, between=2 * positions * gates)
    if c.mixer == "convolution":
        return _Mixer(each=2 * positions * c.kernel_width * 2 * c.d_model**2, between=0)
    projections = _projections(c, positions, positions)
    if c.mixer == "restricted":
        block = block_length(c.neighbours, length, causal)
        return _Mixer(projections, _attention(c, rows * _round_up(length, block), (1 + directions) * block))
    if c.mixer == "strided":
        block = block_length(c.neighbours, length, causal)
        near = _attention(c, rows * _round_up(length, block), (1 + directions) * block)
        whole = _round_up(length, c.neighbours)
        return _Mixer(projections, near + _attention(c, rows * whole, whole // c.neighbours))
    if c.mixer == "linear":
        block = min(BLOCK, length)
        within_block = block * (c.d_k + c.d_v + 1)
        sums_over_blocks = directions * 2 * c.d_k * (c.d_v + 1)  # made, and read
        return _Mixer(projections, 2 * rows * _round_up(length, block) * c.h * (within_block + sums_over_blocks))
    relative_vectors = 2 * positions * encoding_of(c).distances * c.h * (c.d_k + c.d_v)
    return _Mixer(projections, _attention(c, positions, length) + relative_vectors)


def _round_up(length: int, block: int) -> int:
    """Returns `length` rounded up to whole blocks."""
    return -(-length // block) * block


def _source_keys_values(c: ModelConfig, source_positions: int) -> int:
    """Counts W^K and W^V of cross-attention in all decoder layers, which are outside the layers' loop."""
    _, decoder_depth = c.depths
    return decoder_depth * 2 * source_positions * c.d_model * c.h * (c.d_k + c.d_v)


def _projections(c: ModelConfig, queries: int, keys: int) -> int:
    """Counts W^Q and W^O at every query, W^K and W^V at every key."""
    return 2 * (queries + keys) * c.d_model * c.h * (c.d_k + c.d_v)


def _attention(c: ModelConfig, queries: int, keys_each: int) -> int:
    """Counts Q K^T, and the weights times V."""
    return 2 * queries * keys_each * c.h * (c.d_k + c.d_v)


def _feed_forward(c: ModelConfig, positions: int) -> int:
    matmuls = 3 if c.activation in GATED else 2
    return matmuls * 2 * positions * c.d_model * c.d_ff
