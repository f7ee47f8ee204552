"""Parameters of a test of which a few are enough for `make test`."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(fast: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Returns `values` to parametrise a test with, all but those of `fast` marked slow; a tuple is of several names.

    Raises:
      ValueError: `fast` names something that is not among `values`, so that less would be tested than it says.
    """
    fast = list(fast)
    values = list(values)
    unknown = [value for value in fast if value not in values]
    if unknown:
        raise ValueError(f"{unknown} is not among {values}")
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    marks = [() if value in fast else pytest.mark.slow for value in values]
    return [pytest.param(*row, marks=mark) for row, mark in zip(rows, marks, strict=True)]
