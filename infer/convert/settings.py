"""Checks the config fields of other engines, makes our config of them, and rejects unsupported values."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.errors import UserError, format_value

OUR_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
LARGEST = 2**24  # of any size or id
DEEPEST = 1_000  # layers


class Rule(NamedTuple):
    """Which values a setting may have, and how an error says it."""

    fits: Callable[[Any], bool]
    described: str


def whole(least: int, most: int = LARGEST) -> Rule:
    """Returns the rule of a whole number between these."""

    def fits(value: Any) -> bool:
        # Not `isinstance`: a bool is an int.
        return type(value) is int and least <= value <= most

    return Rule(fits, f"a whole number from {least} to {most:,}")


def _is_epsilon(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= 1


def _is_bool(value: Any) -> bool:
    return type(value) is bool


SIZE = whole(1)
ID = whole(0)
LAYERS = whole(1, DEEPEST)
EPSILON = Rule(_is_epsilon, "a number above 0 and at most 1")
BOOL = Rule(_is_bool, "true or false")


def activation_of(names: Collection[str]) -> Rule:
    """Returns the rule of an activation that has one of these names there."""

    def fits(value: Any) -> bool:
        return isinstance(value, str) and value in names

    return Rule(fits, f"one of {', '.join(names)}")


ACTIVATION = activation_of(OUR_ACTIVATIONS)


# The rules of our fields of `model`; all others are sizes.
_OUR_RULES = {
    "N": LAYERS,
    "activation": ACTIVATION,
    "norm_epsilon": EPSILON,
    "tie_embeddings": BOOL,
    "scale_embeddings": BOOL,
}


def configure(
    source: object, settings: Mapping[str, Any], keys: Mapping[str, str], departures: Mapping[str, Any]
) -> ConfigDict:
    """Returns our config of a model with these settings.

    `keys` are theirs, by our fields of `model`; `departures` are our values of the fields in which the family differs
    from the paper. Heads of no given width divide the model.

    Raises:
      UserError: a setting is missing, or has a value that our field cannot have.
    """
    obey(source, settings, {key: _OUR_RULES.get(field, SIZE) for field, key in keys.items()})
    cfg = default()
    cfg.model.update(departures)
    for field, key in keys.items():
        cfg.model[field] = OUR_ACTIVATIONS[settings[key]] if field == "activation" else settings[key]
    if "d_k" not in keys:
        cfg.model.d_k = head_width(source, cfg.model.d_model, cfg.model.h)
    cfg.model.d_v = cfg.model.d_k
    return cfg


def obey(source: object, settings: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Raises `UserError` unless each setting that `rules` names exists, with a value that its rule allows."""
    for key, rule in rules.items():
        if key not in settings:
            raise UserError(f"{source}: damaged: it has no {key!r}")
        if not rule.fits(settings[key]):
            raise UserError(f"{source}: {key} is {format_value(settings[key])}; it must be {rule.described}")


def require(source: object, settings: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Gives absent settings these values, which are the defaults there and the only supported ones.

    Raises:
      UserError: one is another.
    """
    for key, supported in values.items():
        value = settings.setdefault(key, supported)
        if type(value) is not type(supported) or value != supported:
            raise UserError(f"{source}: {key}={format_value(value)} is not supported; it must be {supported!r}")


def head_width(source: object, d_model: int, heads: int) -> int:
    """Returns the width of one head; `UserError` if the heads do not divide the model."""
    if heads < 1 or d_model < 1 or d_model % heads:
        raise UserError(f"{source}: {heads} heads of a model of width {d_model}; they must divide it")
    return d_model // heads
