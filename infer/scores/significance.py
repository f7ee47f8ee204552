"""Is one system better than another, or lucky in its test sentences? Paired approximate randomisation, two-sided.

If two systems are equally good, each sentence's two translations may as well change places (Noreen 1989, Riezler and
Maxwell 2005). p is the share of such exchanges whose difference, of either sign, is at least the one that was found.
sacreBLEU's own test of this name leaves out the exchanges that equal it, which are many if few lines differ: of two
systems that differ in one line it would say p < 0.001. Its bootstrap is in effect one-sided.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics import BLEU, CHRF
from scipy.stats import permutation_test

from base.errors import UserError

SAMPLES = 10_000  # exchanges
DRAWS = 1_000  # of sentences, for the intervals
METRICS: dict[str, Callable[[], BLEU | CHRF]] = {
    "sacrebleu": BLEU,
    "sacrebleu_lc": partial(BLEU, lowercase=True),
    "chrf": CHRF,
}
_BATCH = 256  # exchanges in memory at once


class Comparison(NamedTuple):
    """Scores of two systems, percent, with half the width of each 95 % interval, and two-sided p of the difference."""

    scores: tuple[float, float]
    intervals: tuple[float, float]
    p: float
    signature: str


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    metric: str = "sacrebleu",
    samples: int = SAMPLES,
) -> Comparison:
    """Tests `system` against `baseline`, line for line translations of the same sentences, by one of `METRICS`.

    The intervals are sacreBLEU's bootstrap over sentences (`bs` in the signature). `p` is of `samples` random
    exchanges (`ar`), or of all if there are no more. The seed is sacreBLEU's.

    Raises:
      UserError: the three differ in length.
    """
    if not len(baseline) == len(system) == len(references):
        counts = f"{len(baseline)}, {len(system)} and {len(references)}"
        raise UserError(f"{counts} lines: a paired test needs two translations of each reference")
    scorer = METRICS[metric]()
    one, other = (scorer.corpus_score(list(lines), [list(references)], DRAWS) for lines in (baseline, system))
    signature = scorer.get_signature()
    signature.update("ar", samples)
    seed = signature.info["seed"]
    p = randomised_p(baseline, system, references, scorer, samples, None if seed == "none" else int(seed))
    return Comparison((one.score, other.score), (float(one._ci), float(other._ci)), p, str(signature))


def randomised_p(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    scorer: BLEU | CHRF,
    samples: int,
    seed: int | None,
) -> float:
    """Returns the two-sided p of the difference in corpus score, from `samples` exchanges or, if fewer, all of them."""
    counts_ac, counts_bc = (
        np.array(scorer._extract_corpus_statistics(list(lines), [list(references)]), np.float64)
        for lines in (baseline, system)
    )
    differing = (counts_ac != counts_bc).any(axis=1)
    if differing.sum() < 2:
        return 1.0  # the exchange of a single line has the same difference, with the other sign
    totals_c = (counts_ac + counts_bc).sum(axis=0)
    changes_lc = (counts_bc - counts_ac)[differing]

    def score(counts_c: Float[np.ndarray, "c"]) -> float:
        return scorer._compute_score_from_stats(counts_c.tolist()).score

    def difference(signs_l: Float[np.ndarray, "l"]) -> float:
        signed_c = signs_l @ changes_lc  # whole numbers: equal exchanges have exactly equal differences
        return score((totals_c + signed_c) / 2) - score((totals_c - signed_c) / 2)

    kept = np.ones(len(changes_lc))
    found = permutation_test(
        (kept,),  # of a single sample, it draws the signs
        difference,
        permutation_type="samples",
        vectorized=False,
        n_resamples=samples,
        batch=_BATCH,
        rng=seed,
    )
    return float(found.pvalue)


def compare_all(baseline: Sequence[str], system: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Returns the comparison by each of `METRICS`, for JSON; see `compare`."""
    return {metric: compare(baseline, system, references, metric=metric)._asdict() for metric in METRICS}


def as_text(comparisons: dict[str, Any]) -> str:
    """Returns a line for each comparison that `compare_all` made: both scores, the difference, p and the signature."""
    lines = []
    for metric, comparison in comparisons.items():
        (one, other), (low, high) = comparison["scores"], comparison["intervals"]
        scores = f"{one:6.2f} ± {low:.2f}, {other:6.2f} ± {high:.2f}, {other - one:+.2f}, p {comparison['p']:.3f}"
        lines.append(f"{metric:<12} {scores}   {comparison['signature']}")
    return "\n".join(lines)
