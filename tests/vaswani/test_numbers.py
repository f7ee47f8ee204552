"""vaswani/numbers.py: a perplexity is exp of a loss, and no loss is too large for it; one line is no "1 lines"."""

import math

from vaswani.numbers import from_nll, pluralize


def test_a_perplexity_is_infinite_where_it_is_larger_than_a_float() -> None:
    assert from_nll(0.0) == 1.0
    assert math.isclose(from_nll(math.log(37_000)), 37_000)
    assert math.isfinite(from_nll(699.9))
    assert from_nll(710.0) == math.inf  # where math.exp raises an error
    assert from_nll(math.inf) == math.inf


def test_a_unit_is_singular_after_one_alone() -> None:
    units = ("lines", "batches", "bytes", "cases", "sentences", "symbols of the references")
    one = ["1 line", "1 batch", "1 byte", "1 case", "1 sentence", "1 symbol of the references"]
    assert [pluralize(1, unit) for unit in units] == one
    assert (pluralize(0, "lines"), pluralize(1000, "lines")) == ("0 lines", "1,000 lines")
