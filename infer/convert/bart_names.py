"""The parameters' names in fairseq's Transformer and its descendants in transformers: Marian, Pegasus and BART.

They store a matrix as [out, in], all heads side by side, and have biases everywhere. Where their sinusoids are sines
and then cosines, and ours interleaved (section 3.5), the axis of d_model is permuted by `order`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

_ATTENTIONS = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
_LETTERS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


class Entry(NamedTuple):
    """One parameter: its name there, its path here, and the axis of d_model there, None if it has none."""

    theirs: str
    ours: str
    axis: int | None


def entries(N: int, norm: str) -> list[Entry]:
    """Returns the parameters of both stacks; embeddings and positions are not among them."""
    found: list[Entry] = []
    for side, names in _NORMS.items():
        for n in range(N):
            there, here = f"{side}.layers.{n}", f"{side}/layer_{n}"
            for attention, ours in _ATTENTIONS.items():
                if side == "decoder" or attention == "self_attn":
                    for name, letter in _LETTERS.items():
                        axis, path = (0 if letter == "o" else None), f"{there}.{attention}.{name}"
                        found.append(Entry(f"{path}.weight", f"{here}/{ours}/w{letter}", 1 if axis is None else 0))
                        found.append(Entry(f"{path}.bias", f"{here}/{ours}/b{letter}", axis))
            for number, axis in ((1, None), (2, 0)):
                found.append(Entry(f"{there}.fc{number}.weight", f"{here}/feed_forward/w{number}", 2 - number))
                found.append(Entry(f"{there}.fc{number}.bias", f"{here}/feed_forward/b{number}", axis))
            for number, name in enumerate(names, 1):
                found += _norm(f"{there}.{name}", f"{here}/norm_{number}")
        if norm == "pre":
            found += _norm(f"{side}.layer_norm", f"{side}/final_norm")
    return found


def norms(side: str) -> tuple[str, ...]:
    """Returns the names of a layer's norms in the order of its sub-layers; `side` is encoder or decoder."""
    return _NORMS[side]


def _norm(there: str, here: str) -> list[Entry]:
    return [Entry(f"{there}.weight", f"{here}/scale", 0), Entry(f"{there}.bias", f"{here}/bias", 0)]


def sines_first(d_model: int) -> np.ndarray:
    """Returns `order`: for each of their widths, which of ours it is."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def their_shape(entry: Entry, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape there of one of our parameters of this shape."""
    size = math.prod(shape)
    if not entry.ours.rpartition("/")[2].startswith("w"):
        return (size,)
    inputs = shape[0] * (shape[1] if entry.ours.endswith("/wo") else 1)
    return size // inputs, inputs


def to_theirs(array: np.ndarray, entry: Entry, order: np.ndarray) -> np.ndarray:
    """Returns one of our parameters in their shape and order."""
    array = array.reshape(their_shape(entry, array.shape)[::-1]).T
    return np.ascontiguousarray(array if entry.axis is None else np.take(array, order, entry.axis))


def to_ours(array: np.ndarray, entry: Entry, order: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Returns one of their parameters, of `their_shape`, in our `shape` and order."""
    array = array if entry.axis is None else np.take(array, np.argsort(order), entry.axis)
    return np.ascontiguousarray(array.T).reshape(shape)


def without_zero_biases(params: dict[str, Any]) -> dict[str, Any]:
    """Returns named parameters without the biases of attention if all are zero, nor an output bias of zeros."""
    attention = {name for name in params if name.rpartition("/")[2] in ("bq", "bk", "bv", "bo")}
    zero = set() if any(params[name].any() for name in attention) else attention
    zero |= {"output_bias"} - {name for name in params if params[name].any()}
    return {name: array for name, array in params.items() if name not in zero}
