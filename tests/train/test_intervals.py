"""Intervals against textbook numbers, and by how often they hold the truth."""

import numpy as np
import pytest

from vaswani.train.intervals import bootstrap, wilson


def test_wilsons_interval_is_the_textbooks() -> None:
    """Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20 and 1 of 29."""
    printed = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (hits, cases), bounds in printed.items():
        assert wilson(hits, cases) == pytest.approx(bounds, abs=5e-5)
    assert wilson(20, 20) == pytest.approx((1 - 0.1611, 1), abs=5e-5)
    assert wilson(0, 0) == (0, 1)


def test_the_bootstrap_redraws_rows() -> None:
    """Of 400 cases in 100 equal sentences the mean varies as that of 100 cases does."""
    rows = (np.arange(100) % 2)[:, None] * np.array([[0, 4]]) + np.array([[4, 0]])
    low, high = bootstrap(rows, lambda sums_c: sums_c[..., 1] / sums_c[..., 0])
    assert (low, high) == pytest.approx((0.4, 0.6), abs=0.02)
    assert bootstrap(rows[:1], lambda sums_c: sums_c[..., 0]) == (4, 4)


def test_the_bootstraps_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    """95 % of it are within 1.96 standard deviations; of 1,000 draws, to within a tenth of one."""
    values_i = np.random.default_rng(1).standard_normal(400)
    low, high = bootstrap(values_i[:, None], lambda sums_dc: sums_dc[..., 0] / 400)
    deviations = (np.array([low, high]) - values_i.mean()) / (values_i.std() / 400**0.5)
    np.testing.assert_allclose(deviations, [-1.96, 1.96], atol=0.1)
