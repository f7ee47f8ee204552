"""Reads arrays from PyTorch's files without running anything that is in them."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from base.errors import UserError


def load(path: Path, allowed: Sequence[Callable] = ()) -> Any:
    """Returns what a file of `torch.save` holds: arrays, plain values, and objects of the `allowed` classes.

    Raises:
      UserError: it names any other class or function, which is then not called, or it is damaged.
    """
    import torch

    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        with torch.serialization.safe_globals(list(allowed)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever reading a damaged or hostile file may raise
        called = re.search(r"GLOBAL (\S+)", str(error))
        if called:
            raise UserError(f"{path}: refused: reading it would call {called[1]}; only arrays are read") from error
        raise UserError(f"{path}: cannot be read as PyTorch's ({' '.join(str(error).split())[:100]})") from error


def arrays(state: Any, path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a state dict, of floating types as float32.

    Raises:
      UserError: it is no dict of arrays.
    """
    import torch

    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"{path}: it does not hold parameters by name")
    return {name: (tensor.float() if tensor.is_floating_point() else tensor).numpy() for name, tensor in state.items()}
