"""Whole numbers that users write, and perplexities."""

import math

_LARGEST_EXPONENT = 700  # below the 709.78 at which exp exceeds a float


def whole(text: str) -> int | None:
    """Returns the number that decimal digits spell; None if there are none, or other characters, or more than 18.

    No count, step or line has so many, and Python refuses to read thousands.
    """
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def from_nll(nll: float) -> float:
    """Returns the perplexity of a mean negative log-likelihood in nats; infinite rather than an error on overflow."""
    return math.exp(nll) if nll < _LARGEST_EXPONENT else math.inf
