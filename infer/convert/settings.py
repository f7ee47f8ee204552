"""Settings of a model of transformers: what ours has in their place, and what it has not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from base.errors import UserError

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu", "swish": "silu"}


def require(path: Path, settings: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Gives absent settings these values, which are the defaults there and the only ones that our models have.

    Raises:
      UserError: one is another.
    """
    for key, value in values.items():
        if settings.setdefault(key, value) != value:
            raise UserError(f"{path}: {key} is {settings[key]!r}, which our model has not; it can only be {value!r}")


def activation(path: Path, settings: dict[str, Any], key: str) -> str:
    """Returns `model.activation`; `UserError` if it has none like that."""
    if settings[key] not in ACTIVATIONS:
        raise UserError(f"{path}: {key} is {settings[key]!r}, which model.activation has not")
    return ACTIVATIONS[settings[key]]


def head_width(source: object, d_model: int, heads: int) -> int:
    """Returns the width of one head; `UserError` if the heads do not divide the model."""
    if heads < 1 or d_model < 1 or d_model % heads:
        raise UserError(f"{source}: {heads} heads of a model of width {d_model}; they must divide it")
    return d_model // heads


def wrong_weights(source: object, error: Exception) -> UserError:
    """Returns the error for weights that a model of the given sizes does not have."""
    return UserError(f"{source}: its weights are not those of its settings ({type(error).__name__}: {error})")
