"""A tree of parameters: its arrays by name, how many numbers it holds, and its hash."""

import hashlib
from typing import Any

import jax
import numpy as np


def flatten_params(params: Any) -> dict[str, Any]:
    """Returns {"encoder/layer_0/feed_forward/w1": array, ...}."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def named_shapes(params: Any) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each array, or of what stands for one, by its name."""
    return {name: tuple(leaf.shape) for name, leaf in flatten_params(params).items()}


def count_parameters(params: Any) -> int:
    """Returns the number of scalars in a tree of arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def params_sha256(params: Any) -> str:
    """Returns the SHA-256 of a tree of arrays: `PATH DTYPE SHAPE`, a newline and the array's bytes, in path order.

    Bytes are little-endian and in C order; a path is its keys joined by `/`. The hash depends on names and values only,
    not on the machine or the storage format.
    """
    digest = hashlib.sha256()
    for name, leaf in sorted(flatten_params(params).items()):
        array = np.asarray(leaf)
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).data)
    return digest.hexdigest()
