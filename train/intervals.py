"""95 % intervals: of a mean (t), of a share (Wilson's), and of any figure of summed counts (the bootstrap)."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Num

from vaswani.train.table import number

Interval = tuple[float, float]
DRAWS = 1000
OUTSIDE = 0.05  # the share of intervals that miss the true value


def wilson(hits: int, cases: int) -> Interval:
    """Returns the interval of a share, hits / cases, of independent cases (Wilson 1927); (0, 1) of no case."""
    if not cases:
        return 0.0, 1.0
    from scipy.stats import binomtest  # only now: it takes a second to load

    low, high = binomtest(hits, cases).proportion_ci(method="wilson")
    return float(low), float(high)


def half_interval(values: Float[np.ndarray, " seeds"]) -> float | None:
    """Returns half the width of the t interval of the mean; None of fewer than two values, or one not finite."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    from scipy import stats  # only now: it takes a second to load

    quantile = stats.t.ppf(1 - OUTSIDE / 2, len(values) - 1)
    return float(quantile * stats.sem(values))


def with_interval(values: Float[np.ndarray, " seeds"], digits: int, *, sign: bool = True) -> str:
    """Returns the mean and, of two or more values, ± half of its t interval, as "+0.25 ± 0.04"; "" without a value.

    `sign` writes the + of a mean that is a difference.
    """
    if not len(values):
        return ""
    half = half_interval(values)
    text = number(float(values.mean()), digits, sign=sign)
    return text if half is None else f"{text} ± {half:.{digits}f}"


def bootstrap(
    counts_ic: Num[np.ndarray, "i c"],
    figure: Callable[[Num[np.ndarray, "draws c"]], Float[np.ndarray, " draws"] | np.floating],
) -> Interval:
    """Returns the interval of `figure`, which maps the sums over the rows of `counts_ic` to a number.

    Rows, say sentences, are redrawn with replacement, always the same ones (Efron 1979, percentiles).
    """
    rows_di = np.random.default_rng(0).integers(len(counts_ic), size=(DRAWS, len(counts_ic)))
    sums_dc = np.stack([column_i[rows_di].sum(1) for column_i in counts_ic.T], -1)
    low, high = np.percentile(figure(sums_dc), [2.5, 97.5])
    return float(low), float(high)
