"""Keeps the parameters that were restored from checkpoints and averaged: the next command reads one small file.

They lie beside the compiled programs, where `vaswani.compiled` keeps those, and are named by the sums of their
checkpoints. A file is the SHA-256 of what follows, the length of a header, the header, which is JSON with the shape of
each array by its name, and the arrays, float32 and little-endian.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from vaswani import compiled
from vaswani.files import LARGEST, open_regular, read_bytes, write_bytes
from vaswani.run.parameters import count_parameters, named
from vaswani.run.saved import CHECKSUMS

MAX_BYTES = 2 * LARGEST  # of all files: two base models, or hundreds of small ones
_SUM = hashlib.sha256().digest_size
_LENGTH = 8  # bytes of the header's length


def name_of(folder: Path, steps: Sequence[int], part: str) -> str | None:
    """Returns a name for a part of the states of these checkpoints: their sums, hashed; None if nothing is kept."""
    if not compiled.is_own_folder():
        return None
    digest = hashlib.sha256(part.encode())
    try:
        for step in steps:
            digest.update(hashlib.sha256(read_bytes(folder / str(step) / CHECKSUMS)).digest())
    except OSError:
        return None  # damaged, as whoever restores it will say
    return digest.hexdigest()


def read(name: str | None) -> Any | None:
    """Returns the parameters of this name as numpy arrays; None if they were not kept, or have changed since."""
    if name is None:
        return None
    try:
        with open_regular(_folder() / name) as file:
            content = memoryview(bytearray(os.fstat(file.fileno()).st_size))  # which arrays may then change
            file.readinto(content)
    except OSError:
        return None
    if hashlib.sha256(content[_SUM:]).digest() != content[:_SUM]:
        return None
    first = _SUM + _LENGTH
    values_at = first + int.from_bytes(content[_SUM:first], "little")
    shapes = json.loads(bytes(content[first:values_at]))
    leaves = {}
    for leaf, shape in shapes.items():
        size = math.prod(shape)
        leaves[leaf] = np.frombuffer(content, "<f4", size, values_at).reshape(shape)
        values_at += 4 * size
    return unflatten_dict(leaves, sep="/")


def write(name: str | None, params: Any) -> None:
    """Keeps parameters in float32 under a name, unless they are too large, or cannot be written."""
    if name is None or 4 * count_parameters(params) > LARGEST:
        return
    leaves = named(params)
    header = json.dumps({leaf: value.shape for leaf, value in leaves.items()}).encode()
    header += b" " * (-(_SUM + _LENGTH + len(header)) % 64)  # the arrays then begin where jax would have them
    values = [np.ascontiguousarray(value, "<f4").tobytes() for value in leaves.values()]
    rest = b"".join([len(header).to_bytes(_LENGTH, "little"), header, *values])
    with suppress(OSError):
        _folder().mkdir(exist_ok=True)
        write_bytes(_folder() / name, hashlib.sha256(rest).digest() + rest)
        compiled.delete_oldest(_folder().iterdir(), MAX_BYTES)


def _folder() -> Path:
    return Path(os.environ[compiled.DIRECTORY]).parent / "parameters"
