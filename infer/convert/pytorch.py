"""Reads arrays from PyTorch's files without running anything that is in them."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vaswani.errors import UserError, format_value


def load(path: Path, allowed: Sequence[Callable | tuple[Callable, str]] = ()) -> Any:
    """Returns the contents of a `torch.save` file: arrays, plain values, and objects of the `allowed` classes.

    A class paired with a name stands in for whatever the file calls by that name.

    Raises:
      UserError: it names any other class or function, which is then not called, or it is damaged.
    """
    import torch

    if not path.is_file():
        raise UserError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
    try:
        with torch.serialization.safe_globals(list(allowed)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever reading a damaged or hostile file may raise
        reason = " ".join(str(error).split())
        called = re.search(r"GLOBAL (\S+)", reason)
        if called:
            raise UserError(f"{path}: refused: reading it would call {called[1]}; only arrays are read") from error
        raise UserError(f"{path}: cannot be read as PyTorch's ({reason[:100]})") from error


def arrays(state: Any, path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a state dict, of floating types as float32.

    Raises:
      UserError: it is no dict of arrays, or an array is not stored value by value.
    """
    import torch

    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"{path}: it does not hold parameters by name")
    by_name = {}
    stored = path.stat().st_size
    for name, tensor in state.items():
        if not isinstance(name, str):
            raise UserError(f"{path}: the name of a parameter is {format_value(name)}; it must be text")
        # Sparse or quantised ones are no arrays of NumPy, and one number may stand for a million million.
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.numel() * tensor.element_size() > stored:
            raise UserError(f"{path}: {format_value(name)} is not stored value by value, as parameters are")
        try:
            floats = tensor.float() if tensor.is_floating_point() else tensor
            plain = floats.detach().resolve_conj().resolve_neg()
            by_name[name] = plain.numpy()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            reason = " ".join(str(error).split())[:100]
            raise UserError(f"{path}: {format_value(name)} cannot be read as an array ({reason})") from error
    return by_name
