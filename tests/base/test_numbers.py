"""base/numbers.py: a perplexity is exp of a loss, and no loss is too large for it."""

import math

from base.numbers import from_nll


def test_a_perplexity_is_infinite_where_it_is_larger_than_a_float() -> None:
    assert from_nll(0.0) == 1.0
    assert math.isclose(from_nll(math.log(37_000)), 37_000)
    assert math.isfinite(from_nll(699.9))
    assert from_nll(710.0) == math.inf  # where math.exp raises an error
    assert from_nll(math.inf) == math.inf
