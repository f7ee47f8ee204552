"""Reads the parameters of a model that comes with the code, from the safetensors file that it has for checkpoints."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from vaswani.errors import UserError
from vaswani.files import BUILTIN, read_bytes
from vaswani.run.builtin import WEIGHTS


def load_weights(workdir: Path, choice: str) -> tuple[list[int], dict[str, Any]]:
    """Returns the step of the model and its parameters, as float32.

    Raises:
      UserError: `choice` is a checkpoint that it does not have.
    """
    header, values = _read(workdir)
    step, _ = about(workdir)
    if choice not in ("latest", str(step)):
        raise UserError(
            f"{BUILTIN}{workdir.name} has one checkpoint, of step {step}, and no {choice}; leave --checkpoint out"
        )
    del header["__metadata__"]
    leaves = {}
    for name, entry in header.items():
        first, _ = entry["data_offsets"]
        rounded = np.frombuffer(values, "<f2", math.prod(entry["shape"]), first).reshape(entry["shape"])
        # Only the file is in float16: what is computed with them is in float32, as in any run.
        leaves[name] = rounded.astype(np.float32)
    return [step], unflatten_dict(leaves, sep="/")


def about(workdir: Path) -> tuple[int, float]:
    """Returns the step of the parameters, and when they were saved, in seconds since 1970."""
    header, _ = _read(workdir)
    metadata = header["__metadata__"]
    return int(metadata["step"]), float(metadata["time"])


def _read(workdir: Path) -> tuple[dict[str, Any], bytes]:
    """Returns the header of the file, and the bytes of the arrays: it begins with the header's length."""
    content = read_bytes(workdir / WEIGHTS)
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]
