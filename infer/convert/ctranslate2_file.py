"""Reads `model.bin` of CTranslate2: a specification's name and the variables, as arrays. Nothing in it is executed.

All numbers are little-endian, and a string is its length as uint16, its bytes and a zero. In this order:

    uint32                    version of the file format, up to 6
    string, uint32            name of the specification and its revision: from version 2 on
    uint32                    how many variables there are; then of each
      string                    its name
      uint8, uint32 ..          its rank and its shape
      uint8, uint32             its type and how many bytes follow; before version 4 bytes per number, and how many
      ..                        these bytes
    uint32, (string, string)  aliases, as another name and the variable's: from version 3 on
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from vaswani.errors import UserError, format_value
from vaswani.files import content_of

NEWEST = 6  # version of the file format
_TYPES: tuple[np.dtype, ...] = (
    *[np.dtype(name) for name in ("<f4", "i1", "<i2", "<i4", "<f2")],
    np.dtype(jnp.bfloat16),
)
_TYPE_OF_WIDTH = {kind.itemsize: kind for kind in reversed(_TYPES[:3])}
_OLD_INT16_SCALE = 1000.0  # of the oldest files, which do not have it
SCALE = "_scale"


class ModelFile(NamedTuple):
    """What a file holds: the name of its specification ("" in version 1), and variables by name, as they are stored."""

    version: int
    specification: str
    revision: int
    variables: dict[str, np.ndarray]


class _Reader:
    """Takes numbers, strings and arrays from the bytes of a file, one after the other."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path = path
        self._content = content
        self._place = 0

    def take(self, count: int) -> bytes:
        """Returns the next bytes; `UserError` if there are fewer."""
        taken = self._content[self._place : self._place + count]
        if len(taken) < count:
            raise UserError(
                f"{self._path}: cut off: {count:,} bytes are expected at {self._place:,}, but it has "
                f"{len(self._content):,}"
            )
        self._place += count
        return taken

    def number(self, form: str) -> int:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        """Returns a string; `UserError` if it has no zero at its end or is not UTF-8."""
        text = self.take(self.number("H"))
        try:
            if not text.endswith(b"\0"):
                raise ValueError
            return text[:-1].decode()
        except ValueError as error:
            raise UserError(
                f"{self._path}: damaged: {format_value(text[:40])}, before {self._place:,}, is not a name"
            ) from error

    def array(self, name: str, has_type: bool) -> np.ndarray:
        """Returns the values of a variable; `UserError` if they are of an unknown type or do not fit its shape."""
        rank = self.number("B")
        shape = [self.number("I") for _ in range(rank)]
        if has_type:
            number = self.number("B")
            kind = _TYPES[number] if number < len(_TYPES) else None
            size = self.number("I")
        else:
            number = self.number("B")
            kind = _TYPE_OF_WIDTH.get(number)
            size = number * self.number("I")
        if kind is None:
            raise UserError(f"{self._path}: damaged: {format_value(name)} is of an unknown type, {number}")
        content = self.take(size)
        try:
            return np.frombuffer(content, kind).reshape(shape)
        except ValueError as error:
            raise UserError(
                f"{self._path}: damaged: {format_value(name)} has {size:,} bytes, which are not of shape {tuple(shape)}"
            ) from error


def read_file(path: Path) -> ModelFile:
    """Returns the contents of a `model.bin`, with aliases as separate variables.

    Raises:
      UserError: it cannot be read, is cut off or damaged, is of a newer version, or is another kind of file.
    """
    reader = _Reader(path, content_of(path))
    version = reader.number("I")
    if not 1 <= version <= NEWEST:
        raise UserError(f"{path}: not a model of CTranslate2, or too new: its version is {version}, not 1 to {NEWEST}")
    specification = ""
    revision = 1
    if version >= 2:
        specification = reader.string()
        revision = reader.number("I")

    variables: dict[str, np.ndarray] = {}
    for _ in range(reader.number("I")):
        name = reader.string()
        variables[name] = reader.array(name, has_type=version >= 4)
    if version >= 3:
        for _ in range(reader.number("I")):
            alias = reader.string()
            original = reader.string()
            if original not in variables:
                raise UserError(
                    f"{path}: damaged: {format_value(alias)} stands for {format_value(original)}, which it lacks"
                )
            variables[alias] = variables[original]
            if original + SCALE in variables:
                variables[alias + SCALE] = variables[original + SCALE]
    return ModelFile(version, specification, revision, variables)


def weights_of(path: Path, variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the weights by name, float32: 8-bit and 16-bit ones divided by their scales, which are left out.

    Scalars, which are settings, are also left out.

    Raises:
      UserError: a scale is missing, or does not fit.
    """
    weights = {}
    for name, array in variables.items():
        is_scale = name.endswith(SCALE) and name.removesuffix(SCALE) in variables
        if array.ndim == 0 or is_scale:
            continue
        if array.dtype.kind == "i" and name.endswith("weight"):
            weights[name] = _dequantised(path, name, array, variables.get(name + SCALE))
        elif array.dtype.kind in "fV":  # bfloat16 is of kind V
            weights[name] = array.astype(np.float32)
        else:  # none of ours
            weights[name] = array
    return weights


def _dequantised(path: Path, name: str, array: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
    """Returns whole numbers divided by their scale, of the whole matrix or of each row."""
    if scale is None and array.dtype == np.int16:
        scale = np.array(_OLD_INT16_SCALE)
    rows = array.shape[:1]
    if scale is None or np.shape(scale) not in ((), (1,), rows) or not np.all(scale):
        raise UserError(f"{path}: damaged: {format_value(name)} is of {array.dtype}, and has no {SCALE[1:]} that fits")
    if np.shape(scale) == rows:
        scale = scale.reshape(-1, 1)
    return array.astype(np.float32) / scale.astype(np.float32)
