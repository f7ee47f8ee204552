"""Keeps the parameters that were restored from checkpoints and averaged: the next command reads one small file.

Five checkpoints of a base model take seven seconds of CPU time to read, and this takes half a second. The files lie in
the compilation cache (`vaswani.compiled`), and are named by the checksums of their checkpoints. Each is a safetensors
file of float32 arrays, with the hash of all of them.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from vaswani import compiled
from vaswani.files import LARGEST, read_bytes, write_bytes
from vaswani.run.parameters import count_parameters, flatten_params, params_sha256
from vaswani.run.saved import CHECKSUMS

MAX_BYTES = 2 * LARGEST  # of all files: two base models, or hundreds of small ones


def name_of(folder: Path, steps: Sequence[int], part: str) -> str | None:
    """Returns a name for a part of these checkpoints' states: their checksums, hashed; None if nothing is kept."""
    if not compiled.is_own_folder():
        return None
    digest = hashlib.sha256(part.encode())
    try:
        for step in steps:
            digest.update(hashlib.sha256(read_bytes(folder / str(step) / CHECKSUMS)).digest())
    except OSError:
        return None  # damaged, as whoever restores it will say
    return f"{digest.hexdigest()}.safetensors"


def read(name: str | None) -> Any | None:
    """Returns the parameters of this name as numpy arrays; None if they were not kept, or have changed since."""
    if name is None:
        return None
    try:
        with safe_open(_folder() / name, "numpy") as file:
            metadata = file.metadata()
            leaves = {leaf: file.get_tensor(leaf) for leaf in file.keys()}  # noqa: SIM118 - it is no dict
    except (OSError, SafetensorError):
        return None
    is_intact = metadata == {"params_sha256": params_sha256(leaves)}
    return unflatten_dict(leaves, sep="/") if is_intact else None


def write(name: str | None, params: Any) -> None:
    """Keeps parameters in float32 under a name, unless they are too large, or cannot be written."""
    if name is None or 4 * count_parameters(params) > LARGEST:
        return
    leaves = {leaf: np.ascontiguousarray(value, np.float32) for leaf, value in flatten_params(params).items()}
    content = save(leaves, {"params_sha256": params_sha256(leaves)})
    with suppress(OSError):
        _folder().mkdir(exist_ok=True)
        write_bytes(_folder() / name, content)
        compiled.delete_oldest(_folder().iterdir(), MAX_BYTES)


def _folder() -> Path:
    return Path(os.environ[compiled.DIRECTORY]).parent / "parameters"
