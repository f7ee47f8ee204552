"""Do rows differ from their base row, and as in the paper? Differences paired by seed, tested; rank correlation.

Runs of one seed see the same batches, so a row's difference from base is taken seed by seed. Perplexities are compared
by their logarithms, the loss in nats. Tests are two-sided. Intervals are Student's, with one degree of freedom fewer
than there are seeds: for three seeds, 4.3 standard errors on either side.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from vaswani.configs.small import SEEDS_BLEU, SEEDS_PERPLEXITY
from vaswani.paper.rows import RowRuns
from vaswani.train.intervals import OUTSIDE
from vaswani.train.table import number

DRAWS = 5000
UNTRAINED = "did not train with base's schedule: with every seed its perplexity is more than twice base's"
SPREAD = 10  # times base's standard deviation: of seeds that lie further apart, the pooled variance would be theirs
APART = math.log(2)  # nats above base's, in every seed: such a row did not train, and its difference from base is moot
LEVEL = OUTSIDE  # of p: an interval excludes zero where p is below it
INTERVAL = "± half of the 95 % t interval over the seeds"
Differences = Mapping[str, Float[np.ndarray, " seeds"]]  # by the name of what is compared


class Correlation(NamedTuple):
    """A rank correlation and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.value)}, 95 % bootstrap interval {number(self.low)} to {number(self.high)}"


class SeedSpread(NamedTuple):
    """Standard deviations over the seeds of a row: in BLEU, and of perplexity as a share of it."""

    points: float
    share: float

    @property
    def is_allowed(self) -> bool:
        """Whether the seeds agree as configs/small.py asks."""
        return self.points <= SEEDS_BLEU and self.share <= SEEDS_PERPLEXITY

    def __str__(self) -> str:
        return f"{self.points:.2f} BLEU and {100 * self.share:.1f} % of perplexity"


def paired_differences(row: RowRuns, base: RowRuns, key: str) -> Float[np.ndarray, " seeds"]:
    """Returns the row's score minus base's, of perplexity its logarithm, for each seed that both have."""
    return differences_by_seed(by_seed(row, key), by_seed(base, key))


def differences_by_seed(values: Mapping[int, float], base: Mapping[int, float]) -> Float[np.ndarray, " seeds"]:
    """Returns values minus the base's, for each seed that both have, in the order of the seeds."""
    shared = sorted(values.keys() & base.keys())
    return np.array([values[seed] - base[seed] for seed in shared])


def by_seed(row: RowRuns, key: str) -> dict[int, float]:
    """Returns a score of each seed; the logarithm of a perplexity."""
    scale: Callable[[float], float] = np.log if key == "perplexity" else float
    return {scored.run.config["seed"]: scale(scored.scores[key]) for scored in row.scored}


def p_value(differences: Float[np.ndarray, " seeds"]) -> float | None:
    """Returns p of a two-sided paired t-test; None of fewer than two seeds, or of one that is not finite."""
    if len(differences) < 2 or not np.isfinite(differences).all():
        return None
    if not differences.any():
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are all alike, of which p is 0
        return float(stats.ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Returns every p corrected for how many there are, so that at most 5 % of such tables have a false one below 5 %.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        left = len(p_values) - place
        largest = max(largest, left * p_values[name])
        corrected[name] = min(1.0, largest)
    return corrected


def shown_p_value(p: float) -> str:
    """Returns p with two digits, or with as many as show that it is below `LEVEL`."""
    digits = 2
    while p < LEVEL <= float(f"{p:.{digits}g}"):
        digits += 1
    return f"{p:.{digits}g}"


def tested(differences: Differences, what: str) -> list[str]:
    """Returns a note with p of each difference, as it is and by Holm; [] if none has two seeds."""
    p_values = p_values_of(differences)
    if not p_values:
        return []
    test = f"{what}: p of a two-sided t-test over the seeds"
    if len(p_values) == 1:
        return [f"{test}: {name} {shown_p_value(p)}" for name, p in p_values.items()]
    corrected = holm(p_values)
    shown = ", ".join(f"{name} {shown_p_value(p)} ({shown_p_value(corrected[name])})" for name, p in p_values.items())
    return [f"{test}, in brackets by Holm for {len(p_values)} comparisons: {shown}"]


def p_values_of(differences: Differences) -> dict[str, float]:
    """Returns p of each difference of two or more seeds, all finite."""
    p_values: dict[str, float] = {}
    for name, seeds in differences.items():
        p = p_value(seeds)
        if p is not None:
            p_values[name] = p
    return p_values


def did_train(row: RowRuns, base: RowRuns) -> bool:
    """Tells whether a seed of a row ends with less than twice base's perplexity; a row without seeds has not failed."""
    above = paired_differences(row, base, "perplexity")
    return not len(above) or bool(above.min() < APART)


def pooled(rows: Mapping[str, RowRuns], key: str) -> list[str]:
    """Returns a note on Dunnett's test of every row against "base", with the variance that all rows share.

    It takes no pairs of seeds, so it has as many degrees of freedom as all rows together, and its p values hold for all
    comparisons at once. It was added when the results were known. Left out are rows that did not train, and those whose
    seeds lie more than `SPREAD` times as far apart as base's. [] if base or all other rows have fewer than two seeds.

    Source: Dunnett 1955, "A multiple comparison procedure for comparing several treatments with a control".
    """
    seeds = {name: list(by_seed(row, key).values()) for name, row in rows.items() if len(row.scored) > 1}
    base = seeds.pop("base", [])
    untrained = [name for name in seeds if not did_train(rows[name], rows["base"])]
    wide = [name for name in seeds if name not in untrained and np.std(seeds[name]) > SPREAD * np.std(base)]
    taken = {name: of_row for name, of_row in seeds.items() if name not in (*untrained, *wide)}
    if not base or not taken or not np.ptp([*base, *itertools.chain(*taken.values())]):  # no seed differs: no test
        return []
    found = stats.dunnett(*taken.values(), control=base, rng=np.random.default_rng(0))
    p_values = dict(zip(taken, map(float, found.pvalue), strict=True))
    clear = _significant(p_values)
    what = "log perplexity" if key == "perplexity" else key
    note = (
        f"{what}, post hoc: by Dunnett's test against base with pooled variance, {100 * LEVEL:g} % for all rows "
        f"together, {len(clear)} of {len(p_values)} differ ({', '.join(clear) or 'none'})"
    )
    left_out = {"did not train": untrained, f"seeds over {SPREAD} times as far apart as base's": wide}
    reasons = [f"{', '.join(names)} ({why})" for why, names in left_out.items() if names]
    return [f"{note}; left out: {', '.join(reasons)}" if reasons else note]


def design(rows: Mapping[str, RowRuns]) -> list[str]:
    """Returns how many runs the scaled-down models have, and whether base's seeds agree as configs/small.py asks.

    [] of fewer than two seeds of "base".
    """
    spread = spread_of_seeds(rows["base"])
    if spread is None:
        return []
    runs = sum(len(row.scored) for row in rows.values())
    return [
        f"{runs} runs; base's {len(rows['base'].scored)} seeds have a standard deviation of {spread}; the design "
        f"allows {SEEDS_BLEU:g} and {100 * SEEDS_PERPLEXITY:g} %: {'met' if spread.is_allowed else 'not met'}"
    ]


def spread_of_seeds(row: RowRuns) -> SeedSpread | None:
    """Returns how far the seeds of a row lie apart; None of fewer than two."""
    if len(row.scored) < 2:
        return None
    bleu = list(by_seed(row, "sacrebleu").values())
    log_perplexity = list(by_seed(row, "perplexity").values())
    return SeedSpread(points=float(np.std(bleu, ddof=1)), share=float(np.std(log_perplexity, ddof=1)))


def rank_correlation(
    paper: Float[np.ndarray, "*draws rows"], ours: Float[np.ndarray, "*draws rows"]
) -> Float[np.ndarray, "*draws"]:
    """Returns Spearman's rank correlation over the last axis; NaN where all values of a side are equal."""
    # `stats.spearmanr` has no axis of draws, and `stats.pearsonr` of the ranks rounds: perfect agreement is 1 here.
    middle = (paper.shape[-1] + 1) / 2
    paper_ranks = stats.rankdata(paper, axis=-1) - middle
    our_ranks = stats.rankdata(ours, axis=-1) - middle
    squares = (paper_ranks * paper_ranks).sum(-1) * (our_ranks * our_ranks).sum(-1)
    with np.errstate(invalid="ignore"):
        return (paper_ranks * our_ranks).sum(-1) / np.sqrt(squares)


def bootstrap_interval(paper: Sequence[float], seeds_of_rows: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Returns the 95 % bootstrap interval of the rank correlation: rows are redrawn, and within each row its seeds."""
    chosen_rows, ours = redrawn(seeds_of_rows)
    correlations = rank_correlation(np.array(paper)[chosen_rows], ours)
    low, high = np.nanpercentile(correlations, [2.5, 97.5])
    return float(low), float(high)


def redrawn(
    seeds_of_rows: Sequence[Sequence[float]],
) -> tuple[Int[np.ndarray, "draws rows"], Float[np.ndarray, "draws rows"]]:
    """Returns `DRAWS` bootstrap draws: which rows are in each, and their means over seeds that are redrawn as well."""
    generator = np.random.default_rng(0)
    rows = len(seeds_of_rows)
    means: list[Float[np.ndarray, " draws"]] = []
    for seeds in seeds_of_rows:
        chosen_seeds = generator.integers(len(seeds), size=(DRAWS, len(seeds)))
        means.append(np.array(seeds)[chosen_seeds].mean(-1))
    chosen_rows = generator.integers(rows, size=(DRAWS, rows))
    return chosen_rows, np.take_along_axis(np.stack(means, axis=-1), chosen_rows, axis=1)


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
    of_names = {name: rows[name] for name in names}
    return [*_agreement(rows, names, key, paper), *pooled(of_names, key), *_correlation(rows, names, key, paper)]


def _agreement(rows: Mapping[str, RowRuns], names: Sequence[str], key: str, paper: Callable[[str], float]) -> list[str]:
    """Returns in how many rows the difference from "base" has the paper's sign, and how many are significant."""
    differences = differences_from_base({name: rows[name] for name in names}, key, paper)
    same = with_the_sign(differences, paper)
    line = f"{key}: the sign of the difference from base is the paper's in {len(same)} of {len(differences)} rows"
    p_values = p_values_of(differences)
    if p_values:
        clear = _significant(p_values)
        surest = _significant(holm(p_values))
        line += (
            f"; {len(clear)} of {len(p_values)} ({', '.join(clear) or 'none'}) differ from base with p < {LEVEL:g} in "
            f"a two-sided paired t-test over seeds, {len(same.intersection(clear))} of them with the paper's sign; by "
            f"Holm, for {len(p_values)} comparisons, {len(surest)} ({', '.join(surest) or 'none'}), "
            f"{len(same.intersection(surest))} of them with the paper's sign"
        )
    lines = [line]
    opposite = [name for name in differences if name not in same]
    if opposite:
        lines.append(f"{key}: not with the paper's sign: {', '.join(opposite)}")
    return lines


def differences_from_base(
    rows: Mapping[str, RowRuns], key: str, paper: Callable[[str], float]
) -> dict[str, Float[np.ndarray, " seeds"]]:
    """Returns each row's differences from "base", of the rows that have some and whose value in the paper differs."""
    differences: dict[str, Float[np.ndarray, " seeds"]] = {}
    for name, row in rows.items():
        seeds = paired_differences(row, rows["base"], key)
        if len(seeds) and paper(name) != paper("base"):
            differences[name] = seeds
    return differences


def with_the_sign(differences: Differences, paper: Callable[[str], float]) -> set[str]:
    """Returns the rows whose mean difference from "base" has the paper's sign."""
    return {name for name, seeds in differences.items() if _same_sign(seeds.mean(), paper(name) - paper("base"))}


def _same_sign(ours: float, paper: float) -> bool:
    return bool(np.sign(ours) == np.sign(paper))


def _significant(p_values: Mapping[str, float]) -> list[str]:
    return [name for name, p in p_values.items() if p < LEVEL]


def _correlation(
    rows: Mapping[str, RowRuns], names: Sequence[str], key: str, paper: Callable[[str], float]
) -> list[str]:
    """Returns a note on the rank correlation with the paper; [] where all values of a side are equal."""
    found = correlation(rows, names, key, paper)
    if found is None:
        return []
    zero = "includes 0: no agreement is shown" if found.low <= 0 <= found.high else "excludes 0"
    return [
        f"{key}: Spearman's rank correlation with the paper over {len(names)} rows is {found} (rows and seeds redrawn "
        f"{DRAWS:,} times), which {zero}"
    ]


def correlation(
    rows: Mapping[str, RowRuns], names: Sequence[str], key: str, paper: Callable[[str], float]
) -> Correlation | None:
    """Returns the rank correlation of these rows with the paper; None where all values of a side are equal."""
    seeds_of_rows = [list(by_seed(rows[name], key).values()) for name in names]
    papers = [paper(name) for name in names]
    means = [float(np.mean(seeds)) for seeds in seeds_of_rows]
    value = float(rank_correlation(np.array(papers), np.array(means)))
    if np.isnan(value):
        return None
    return Correlation(value, *bootstrap_interval(papers, seeds_of_rows))
