"""`make test` leaves out the slow parameters of a test, and nothing else."""

import pytest

from tests.slow import slow_but


def test_all_but_the_fast_are_marked() -> None:
    fast, slow, pair = slow_but(["a"], ["a", "b", ("c", 1)])
    assert fast.values == ("a",) and not fast.marks
    assert slow.values == ("b",) and [mark.name for mark in slow.marks] == ["slow"]
    assert pair.values == ("c", 1) and [mark.name for mark in pair.marks] == ["slow"]


def test_a_fast_one_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^\['c'\] is not among \['a', 'b'\]$"):
        slow_but(["a", "c"], ["a", "b"])
