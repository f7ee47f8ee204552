"""Lists of points: three small expressions for `sweep()`, which is in the file of the config that it sweeps.

    def sweep():
        return product(
            chain(
                [{}],  # the config as it is
                zipped({"model.h": (1, 4, 16), "model.d_k": (512, 128, 32), "model.d_v": (512, 128, 32)}),
                product({"model.N": (2, 4), "model.norm": ("post", "pre")}),
            ),
            {"seed": range(3)},
        )

A point is a dict of dotted config keys and their values. Each expression takes axes, a dict from keys to lists of
values, or points that another expression returned, and returns a list of points.
"""

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vaswani.errors import UserError

Point = dict[str, Any]
Axes = Mapping[str, Any]  # to a list of values
_LONGEST_NAME = 100  # characters; file systems allow 255 bytes


def product(*parts: Axes | Sequence[Point]) -> list[Point]:
    """Returns every combination of the axes and lists in `parts`; the last varies fastest.

    Raises `UserError` where two parts set one key, or an axis is not a list of values.
    """
    factors: list[list[Point]] = []
    for part in parts:
        if isinstance(part, Mapping):
            factors += [_axis(key, part[key]) for key in part]
        else:
            factors.append(list(part))
    return [_merge(combination) for combination in itertools.product(*factors)]


def zipped(axes: Axes) -> list[Point]:
    """Returns the first value of every axis, then the second of every axis, and so on.

    Raises `UserError` where the axes are not of one length, or one is not a list of values.
    """
    columns = {key: _axis(key, values) for key, values in axes.items()}
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{key} has {len(column)}" for key, column in columns.items())
        raise UserError(f"zipped(): every key needs the same number of values; {lengths}")
    return [_merge(row) for row in zip(*columns.values(), strict=True)]


def chain(*lists: Sequence[Point]) -> list[Point]:
    """Returns the points of each list, one list after the other."""
    return [point for points in lists for point in points]


def name_of(point: Point, known: Iterable[str]) -> str:
    """Returns a point's folder name, the same on every machine: "h=4,d_k=128,seed=1", "base" where nothing is changed.

    `known` is every legal key; where two end alike (`eval.every`, `checkpoint.every`) the name has the whole key.
    """
    if not point:
        return "base"
    endings = Counter(key.rpartition(".")[2] for key in known)
    parts: list[str] = []
    for key, value in point.items():
        ending = key.rpartition(".")[2]
        parts.append(f"{key if endings[ending] > 1 else ending}={_plain(value)}")
    text = ",".join(parts)
    safe = re.sub(r"[^\w.,=+-]+", "_", text, flags=re.ASCII)[:_LONGEST_NAME]
    if safe == text:
        return safe
    digest = hashlib.sha256(json.dumps(point, default=repr).encode()).hexdigest()
    return f"{safe}-{digest[:8]}"


def _axis(key: str, values: Any) -> list[Point]:
    if isinstance(values, Mapping):
        raise UserError(f"{key} is given a dict; write each key with dots, like 'model.h': (2, 4)")
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UserError(f"{key} is given {values!r}; an axis is a list of values, like ({values!r},)")
    return [{key: value} for value in values]


def _merge(points: Iterable[Point]) -> Point:
    merged: Point = {}
    for point in points:
        twice = merged.keys() & point.keys()
        if twice:
            raise UserError(f"{min(twice)} is set by two parts of one product()")
        merged |= point
    return merged


def _plain(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
