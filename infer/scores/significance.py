"""Is one system better than another, or lucky in its test sentences? sacreBLEU's paired bootstrap (Koehn 2004)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest, Result

from base.errors import UserError

SAMPLES = 1000
METRICS: dict[str, Callable[[], BLEU | CHRF]] = {
    "sacrebleu": BLEU,
    "sacrebleu_lc": partial(BLEU, lowercase=True),
    "chrf": CHRF,
}


class Comparison(NamedTuple):
    """Scores of two systems, percent, with half the width of each 95 % interval, and p of the second's difference."""

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

    `p` is the share of `samples` draws of sentences with a difference as large by chance. The generator's seed is
    sacreBLEU's and part of the signature.

    Raises:
      UserError: the three differ in length.
    """
    if not len(baseline) == len(system) == len(references):
        counts = f"{len(baseline)}, {len(system)} and {len(references)}"
        raise UserError(f"{counts} lines: a paired test needs two translations of each reference")
    named: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("system", list(system))]
    test = PairedTest(named, {metric: METRICS[metric]()}, [list(references)], test_type="bs", n_samples=samples)
    signatures, results = test()
    one, other = (result for column in results.values() for result in column if isinstance(result, Result))
    assert one.ci is not None and other.ci is not None and other.p_value is not None
    p = 1.0 if one.score == other.score else other.p_value  # sacreBLEU's is the least possible for equal lines
    return Comparison((one.score, other.score), (float(one.ci), float(other.ci)), p, str(*signatures.values()))


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
