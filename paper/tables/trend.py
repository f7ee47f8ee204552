"""Do rows differ from their base row, and as in the paper? Differences paired by seed, with errors; rank correlation.

Runs of one seed see the same batches, so a row's difference from base is taken seed by seed. Perplexities are compared
by their logarithms, the loss in nats.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jax.scipy.special import betainc
from jaxtyping import Float

from base.table import number
from configs.small import SEEDS_BLEU, SEEDS_PERPLEXITY
from paper.records import RowRuns

DRAWS = 5000
LEVEL = 0.05


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


def p_value(differences: Float[np.ndarray, " seeds"]) -> float | None:
    """Returns p of a two-sided paired t-test; None of fewer than two seeds."""
    error, freedom = standard_error(differences), len(differences) - 1
    if error is None:
        return None
    squared = differences.mean() ** 2
    if not (squared or error):
        return 1.0
    return float(betainc(freedom / 2, 0.5, freedom * error**2 / (freedom * error**2 + squared)))


def with_error(differences: Float[np.ndarray, " seeds"], digits: int) -> str:
    """Returns the mean and, of two or more seeds, ± its standard error, as "+0.25 ± 0.04"; "" without a seed."""
    if not len(differences):
        return ""
    error = standard_error(differences)
    text = number(float(differences.mean()), digits, sign=True)
    return text if error is None else f"{text} ± {error:.{digits}f}"


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
    sides = [ranks(side) - (side.shape[-1] - 1) / 2 for side in (paper, ours)]
    product, one, other = ((a * b).sum(-1) for a, b in (sides, sides[:1] * 2, sides[1:] * 2))
    with np.errstate(invalid="ignore"):
        return product / np.sqrt(one * other)


def ranks(values: Float[np.ndarray, "*draws rows"]) -> Float[np.ndarray, "*draws rows"]:
    """Returns the rank of each value on the last axis, from 0; equal values share the mean of their ranks."""
    here, others = values[..., :, None], values[..., None, :]
    return (here > others).sum(-1) + ((here == others).sum(-1) - 1) / 2


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
    tested = {name: p for name in moved if (p := p_value(differences[name])) is not None}
    if tested:
        clear = [name for name, p in tested.items() if p < LEVEL]
        line += (
            f"; {len(clear)} of {len(tested)} ({', '.join(clear) or 'none'}) differ from base with p < {LEVEL:g} in a "
            f"paired t-test over seeds (about {LEVEL * len(tested):.0f} would by chance), {len({*clear} & {*same})} of "
            "them with the paper's sign"
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
