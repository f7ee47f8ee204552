"""Do rows differ from their base row, and as in the paper? Differences paired by seed, tested; rank correlation.

Runs of one seed see the same batches, so a row's difference from base is taken seed by seed. Perplexities are compared
by their logarithms, the loss in nats. Tests are two-sided; intervals are Student's, of as many degrees of freedom as
there are seeds but one: of three seeds 4.3 standard errors on either side.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats

from base.table import number
from configs.small import SEEDS_BLEU, SEEDS_PERPLEXITY
from paper.records import RowRuns

DRAWS = 5000
LEVEL = 0.05
INTERVAL = "± half of the 95 % t interval over the seeds"


def paired_differences(row: RowRuns, base: RowRuns, key: str) -> Float[np.ndarray, " seeds"]:
    """Returns the row's score minus base's, of perplexity its logarithm, for each seed that both have."""
    ours, theirs = by_seed(row, key), by_seed(base, key)
    return np.array([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())])


def by_seed(row: RowRuns, key: str) -> dict[int, float]:
    """Returns a score of each seed; the logarithm of a perplexity."""
    scale: Callable[[float], float] = np.log if key == "perplexity" else float
    return {one.run.config["seed"]: scale(one.scores[key]) for one in row.scored}


def standard_error(differences: Float[np.ndarray, " seeds"]) -> float | None:
    """Returns the standard error of the mean; None of fewer than two seeds."""
    return float(differences.std(ddof=1) / len(differences) ** 0.5) if len(differences) > 1 else None


def half_interval(differences: Float[np.ndarray, " seeds"]) -> float | None:
    """Returns half the width of the 95 % t interval of the mean; None of fewer than two seeds."""
    error = standard_error(differences)
    if error is None:
        return None
    return float(stats.t.ppf(1 - LEVEL / 2, len(differences) - 1)) * error


def p_value(differences: Float[np.ndarray, " seeds"]) -> float | None:
    """Returns p of a two-sided paired t-test; None of fewer than two seeds."""
    error = standard_error(differences)
    if error is None:
        return None
    distance = abs(float(differences.mean()))
    if not error:
        return 0.0 if distance else 1.0
    return 2 * float(stats.t.sf(distance / error, len(differences) - 1))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Returns every p corrected for how many there are, so that one below 5 % is luck in at most 5 % of such tables.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        left = len(p_values) - place
        largest = max(largest, left * p_values[name])
        corrected[name] = min(1.0, largest)
    return corrected


def tested(differences: Mapping[str, Float[np.ndarray, " seeds"]], what: str) -> list[str]:
    """Returns a note with p of each difference, as it is and by Holm; [] if none has two seeds."""
    found = {name: p for name, seeds in differences.items() if (p := p_value(seeds)) is not None}
    if not found:
        return []
    test = f"{what}: p of a two-sided t-test over the seeds"
    if len(found) == 1:
        return [f"{test}: {name} {p:.2g}" for name, p in found.items()]
    corrected = holm(found)
    shown = ", ".join(f"{name} {p:.2g} ({corrected[name]:.2g})" for name, p in found.items())
    return [f"{test}, in brackets by Holm for {len(found)} comparisons: {shown}"]


def with_interval(differences: Float[np.ndarray, " seeds"], digits: int) -> str:
    """Returns the mean and, of two or more seeds, ± half of its t interval, as "+0.25 ± 0.04"; "" without a seed."""
    if not len(differences):
        return ""
    half = half_interval(differences)
    text = number(float(differences.mean()), digits, sign=True)
    return text if half is None else f"{text} ± {half:.{digits}f}"


def design(rows: Mapping[str, RowRuns]) -> list[str]:
    """Returns how many runs the small twins have, and whether base's seeds agree as closely as configs/small.py asks.

    [] of fewer than two seeds of "base".
    """
    bleu, logs = ([*by_seed(rows["base"], key).values()] for key in ("sacrebleu", "perplexity"))
    if len(bleu) < 2:
        return []
    points, share = float(np.std(bleu, ddof=1)), float(np.std(logs, ddof=1))
    met = points <= SEEDS_BLEU and share <= SEEDS_PERPLEXITY
    return [
        f"{sum(len(row.scored) for row in rows.values())} runs; base's {len(bleu)} seeds have a standard deviation of "
        f"{points:.2f} BLEU and {100 * share:.1f} % of perplexity; the design allows {SEEDS_BLEU:g} and "
        f"{100 * SEEDS_PERPLEXITY:g} %: {'met' if met else 'not met'}"
    ]


def rank_correlation(
    paper: Float[np.ndarray, "*draws rows"], ours: Float[np.ndarray, "*draws rows"]
) -> Float[np.ndarray, "*draws"]:
    """Returns Spearman's rank correlation over the last axis; NaN where all values of a side are equal."""
    middle = (paper.shape[-1] + 1) / 2
    one = stats.rankdata(paper, axis=-1) - middle
    other = stats.rankdata(ours, axis=-1) - middle
    spread = np.sqrt((one * one).sum(-1) * (other * other).sum(-1))
    with np.errstate(invalid="ignore"):
        return (one * other).sum(-1) / spread


def bootstrap_interval(
    paper: Sequence[float], seeds_of_rows: Sequence[Sequence[float]], draws: int = DRAWS
) -> tuple[float, float]:
    """Returns the 95 % bootstrap interval of the rank correlation: rows are redrawn, and within each row its seeds."""
    generator, rows = np.random.default_rng(0), len(paper)
    redrawn = [np.array(seeds)[generator.integers(len(seeds), size=(draws, len(seeds)))] for seeds in seeds_of_rows]
    means = np.stack([seeds.mean(-1) for seeds in redrawn], axis=-1)
    chosen = generator.integers(rows, size=(draws, rows))
    found = rank_correlation(np.array(paper)[chosen], np.take_along_axis(means, chosen, axis=1))
    low, high = np.nanpercentile(found, [2.5, 97.5])
    return float(low), float(high)


def summary(rows: Mapping[str, RowRuns], key: str, paper: Callable[[str], float]) -> list[str]:
    """Returns in a few lines how the rows' differences from "base" agree with the paper's; [] of fewer than 3 rows.

    Args:
      rows: by name, "base" among them.
      key: the score, "perplexity" or a reading of BLEU.
      paper: the paper's value of a row.
    """
    names = [name for name, row in rows.items() if row.scored]
    if "base" not in names or len(names) < 3:
        return []
    differences = {name: paired_differences(rows[name], rows["base"], key) for name in names if name != "base"}
    signs = {name: np.sign(paper(name) - paper("base")) for name, of in differences.items() if len(of)}
    moved = [name for name in signs if signs[name]]
    same = [name for name in moved if np.sign(differences[name].mean()) == signs[name]]
    line = f"{key}: the sign of the difference from base is the paper's in {len(same)} of {len(moved)} rows"
    p_values = {name: p for name in moved if (p := p_value(differences[name])) is not None}
    if p_values:
        clear = [name for name, p in p_values.items() if p < LEVEL]
        surest = [name for name, p in holm(p_values).items() if p < LEVEL]
        line += (
            f"; {len(clear)} of {len(p_values)} ({', '.join(clear) or 'none'}) differ from base with p < {LEVEL:g} in "
            f"a two-sided paired t-test over seeds, {len({*clear} & {*same})} of them with the paper's sign; by Holm, "
            f"for {len(p_values)} comparisons, {len(surest)} ({', '.join(surest) or 'none'}), "
            f"{len({*surest} & {*same})} of them with the paper's sign"
        )
    opposite = [f"{key}: not with the paper's sign: {', '.join(name for name in moved if name not in same)}"]
    lines = [line, *(opposite if len(same) < len(moved) else [])]
    values = [[*by_seed(rows[name], key).values()] for name in names]
    sides = np.array([paper(name) for name in names]), np.array([np.mean(seeds) for seeds in values])
    correlation = float(rank_correlation(*sides))
    if np.isnan(correlation):
        return lines
    low, high = bootstrap_interval(sides[0].tolist(), values)
    zero = "includes 0: no agreement is shown" if low <= 0 <= high else "excludes 0"
    return [
        *lines,
        f"{key}: Spearman's rank correlation with the paper over {len(names)} rows is {number(correlation)}, 95 % "
        f"bootstrap interval {number(low)} to {number(high)} (rows and seeds redrawn {DRAWS:,} times), which {zero}",
    ]
