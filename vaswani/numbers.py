"""Whole numbers that users write, counts as they read them, and perplexities."""

import math
import re

_PLURAL = re.compile(r"(?<=ch)es\b|s\b")
_LARGEST_EXPONENT = 700  # below the 709.78 at which exp exceeds a float


def whole(text: str) -> int | None:
    """Returns the number that decimal digits spell; None if there are none, or other characters, or more than 18.

    No count, step or line has so many, and Python refuses to read thousands.
    """
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def pluralize(count: int, units: str) -> str:
    """Returns a count with its unit, which is given in the plural: "1 line", "1,000 lines", "1 batch"."""
    return f"{count:,} {units if count != 1 else _PLURAL.sub('', units, count=1)}"


def from_nll(nll: float) -> float:
    """Returns the perplexity of a mean negative log-likelihood in nats; infinite rather than an error on overflow."""
    return math.exp(nll) if nll < _LARGEST_EXPONENT else math.inf
