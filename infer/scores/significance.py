"""Is one system significantly better than another? Paired approximate randomisation, two-sided.

If two systems are equally good, the two translations of a sentence could just as well be exchanged (Noreen 1989,
Riezler and Maxwell 2005). p is the share of such exchanges whose difference, of either sign, is at least as large as
the one found. sacreBLEU's own test of this name leaves out exchanges whose difference equals the one found, and there
are many of these if few lines differ: for two systems that differ in one line it would say p < 0.001. Its bootstrap is
in effect one-sided.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics import BLEU, CHRF
from scipy.stats import permutation_test

from vaswani.errors import UserError
from vaswani.infer.scores.bleu import Others
from vaswani.infer.scores.bleu import scorer as bleu_scorer

SAMPLES = 10_000  # exchanges
DRAWS = 1_000  # of sentences, for the intervals
METRICS = ("sacrebleu", "sacrebleu_lc", "chrf")
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
    language: str = "",
    others: Others = (),
) -> Comparison:
    """Tests `system` against `baseline`, line for line translations of the same sentences, by one of `METRICS`.

    `language` is the references' (`infer.scores.bleu.scorer`), of which `others` are further ones.
    The intervals are sacreBLEU's bootstrap over sentences (`bs` in the signature). `p` is of `samples` random
    exchanges (`ar`), or of all if there are no more. The seed is sacreBLEU's.

    Raises:
      UserError: the three differ in length.
    """
    if not len(baseline) == len(system) == len(references):
        counts = f"{len(baseline)}, {len(system)} and {len(references)}"
        raise UserError(f"{counts} lines: a paired test needs two translations of each reference")
    scorer = _with_floats(CHRF() if metric == "chrf" else bleu_scorer(language, lowercase=metric == "sacrebleu_lc"))
    every = [list(lines) for lines in (references, *others)]
    baseline_score = scorer.corpus_score(list(baseline), every, DRAWS)
    system_score = scorer.corpus_score(list(system), every, DRAWS)
    signature = scorer.get_signature()
    signature.update("ar", samples)
    named_seed = signature.info["seed"]
    seed = None if named_seed == "none" else int(named_seed)
    p = randomised_p(baseline, system, every, scorer, samples, seed)
    scores = (baseline_score.score, system_score.score)
    intervals = (float(baseline_score._ci), float(system_score._ci))
    return Comparison(scores, intervals, p, str(signature))


def _with_floats(scorer: BLEU | CHRF) -> BLEU | CHRF:
    """Returns the scorer with scores of one type.

    Those of resamples are float32, but float where nothing matches, and sacreBLEU fails to take the mean of both.
    """
    compute = scorer._compute_score_from_stats

    def computed(counts: Any) -> Any:
        found = compute(counts)
        found.score = float(found.score)
        return found

    scorer._compute_score_from_stats = computed  # type: ignore[method-assign, assignment]
    return scorer


def randomised_p(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Others,
    scorer: BLEU | CHRF,
    samples: int,
    seed: int | None,
) -> float:
    """Returns the two-sided p of the difference in corpus score, from `samples` exchanges or, if fewer, all of them.

    `references` are one list of lines or several.
    """
    baseline_nc = _statistics(scorer, baseline, references)
    system_nc = _statistics(scorer, system, references)
    differing = (baseline_nc != system_nc).any(axis=1)
    if differing.sum() < 2:
        return 1.0  # the exchange of a single line has the same difference, with the other sign
    totals_c = (baseline_nc + system_nc).sum(axis=0)
    changes_lc = (system_nc - baseline_nc)[differing]

    def score(counts_c: Float[np.ndarray, "c"]) -> float:
        return scorer._compute_score_from_stats(counts_c.tolist()).score

    def difference(signs_l: Float[np.ndarray, "l"]) -> float:
        signed_c = signs_l @ changes_lc  # whole numbers: equal exchanges have exactly equal differences
        return score((totals_c + signed_c) / 2) - score((totals_c - signed_c) / 2)

    not_exchanged = np.ones(len(changes_lc))
    result = permutation_test(
        (not_exchanged,),  # of a single sample, it draws the signs
        difference,
        permutation_type="samples",
        vectorized=False,
        n_resamples=samples,
        batch=_BATCH,
        rng=seed,
    )
    return float(result.pvalue)


def _statistics(scorer: BLEU | CHRF, lines: Sequence[str], references: Others) -> Float[np.ndarray, "n c"]:
    """Returns the statistics of a corpus score, such as counts of n-grams, line by line."""
    return np.array(scorer._extract_corpus_statistics(list(lines), list(map(list, references))), np.float64)


def compare_all(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    language: str = "",
    *,
    others: Others = (),
) -> dict[str, Any]:
    """Returns the comparison by each of `METRICS`, for JSON; see `compare`."""
    comparisons: dict[str, Any] = {}
    for metric in METRICS:
        found = compare(baseline, system, references, metric=metric, language=language, others=others)
        comparisons[metric] = found._asdict()
    return comparisons


def as_text(comparisons: dict[str, Any]) -> str:
    """Returns a line for each comparison that `compare_all` made: both scores, the difference, p and the signature."""
    lines = []
    for metric, comparison in comparisons.items():
        baseline, system = comparison["scores"]
        baseline_half, system_half = comparison["intervals"]
        both = f"{baseline:6.2f} ± {baseline_half:.2f}, {system:6.2f} ± {system_half:.2f}"
        p = comparison["p"]
        shown_p = f"p {p:.3f}" if p >= 0.0005 else "p < 0.001"
        scores = f"{both}, {system - baseline:+.2f}, {shown_p}"
        lines.append(f"{metric:<12} {scores}   {comparison['signature']}")
    return "\n".join(lines)
