"""The parameters' names in fairseq's Transformer and its descendants in transformers: Marian, Pegasus and BART.

They store a matrix as [out, in], all heads side by side, and have biases everywhere. Where their sinusoids are sines
and then cosines, and ours interleaved (section 3.5), the axis of d_model is permuted by `order`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


class Entry(NamedTuple):
    """One parameter: its name in their file, its path in ours, and which axis of theirs is d_model (None: neither)."""

    name: str
    path: str
    axis: int | None


def entries(N: int, norm: str) -> list[Entry]:
    """Returns the parameters of both stacks; embeddings and positions are not among them."""
    stacks: list[Entry] = []
    for side in _NORMS:
        for n in range(N):
            stacks += _layer(side, f"{side}.layers.{n}", f"{side}/layer_{n}")
        if norm == "pre":
            stacks += _norm(f"{side}.layer_norm", f"{side}/final_norm")
    return stacks


def _layer(side: str, name: str, path: str) -> list[Entry]:
    """Returns the parameters of one layer."""
    layer = _attention(f"{name}.self_attn", f"{path}/self_attention")
    if side == "decoder":
        layer += _attention(f"{name}.encoder_attn", f"{path}/cross_attention")
    layer += [
        Entry(f"{name}.fc1.weight", f"{path}/feed_forward/w1", 1),
        Entry(f"{name}.fc1.bias", f"{path}/feed_forward/b1", None),
        Entry(f"{name}.fc2.weight", f"{path}/feed_forward/w2", 0),
        Entry(f"{name}.fc2.bias", f"{path}/feed_forward/b2", 0),
    ]
    for number, norm_name in enumerate(_NORMS[side], 1):
        layer += _norm(f"{name}.{norm_name}", f"{path}/norm_{number}")
    return layer


def _attention(name: str, path: str) -> list[Entry]:
    """Returns the projections of one attention: of q, k and v from d_model, and of the output to it."""
    attention: list[Entry] = []
    for letter in "qkv":
        attention.append(Entry(f"{name}.{letter}_proj.weight", f"{path}/w{letter}", 1))
        attention.append(Entry(f"{name}.{letter}_proj.bias", f"{path}/b{letter}", None))
    attention.append(Entry(f"{name}.out_proj.weight", f"{path}/wo", 0))
    attention.append(Entry(f"{name}.out_proj.bias", f"{path}/bo", 0))
    return attention


def norms(side: str) -> tuple[str, ...]:
    """Returns the names of a layer's norms in the order of its sub-layers; `side` is encoder or decoder."""
    return _NORMS[side]


def _norm(name: str, path: str) -> list[Entry]:
    return [Entry(f"{name}.weight", f"{path}/scale", 0), Entry(f"{name}.bias", f"{path}/bias", 0)]


def sines_first(d_model: int) -> np.ndarray:
    """Returns `order`: the index in our d_model axis of each entry of theirs."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def their_shape(entry: Entry, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape there of one of our parameters of this shape."""
    size = math.prod(shape)
    if not entry.path.rpartition("/")[2].startswith("w"):
        return (size,)
    inputs = math.prod(shape[:2]) if entry.path.endswith("/wo") else shape[0]
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
    left_out: set[str] = set()
    if not any(params[name].any() for name in attention):
        left_out |= attention
    if "output_bias" in params and not params["output_bias"].any():
        left_out.add("output_bias")
    return {name: array for name, array in params.items() if name not in left_out}
