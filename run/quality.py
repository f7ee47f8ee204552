"""Which of several checkpoints is the best: judged by the metrics of its validation."""

import math
from collections.abc import Callable, Sequence


def quality(metrics: dict) -> tuple[int, float]:
    """Returns the sort key for "best", larger is better: validation BLEU if it was measured, else minus the nll.

    `eval.patience` and sweeps always judge by the nll. Checkpoints of earlier versions have the smoothed loss alone.
    NaN, from a model that has diverged, ranks below every number; a plain sort would leave it wherever it was.
    """
    if "bleu" in metrics:
        return 2, metrics["bleu"]
    rank = 1 if "nll" in metrics else 0
    nll = metrics.get("nll", metrics.get("loss", math.inf))
    return rank, -math.inf if math.isnan(nll) else -nll


def nll_quality(metrics: dict) -> tuple[int, float]:
    """Returns the `quality` as if no BLEU had been measured."""
    return quality({name: value for name, value in metrics.items() if name != "bleu"})


def judge(all_metrics: Sequence[dict]) -> Callable[[dict], tuple[int, float]]:
    """Returns what compares checkpoints with these metrics: `quality`, or `nll_quality` where only some have a BLEU.

    BLEU and nll cannot be compared, so all are judged by what all have.
    """
    with_bleu = ["bleu" in metrics for metrics in all_metrics]
    has_only_some_bleu = any(with_bleu) and not all(with_bleu)
    if has_only_some_bleu and all("nll" in metrics for metrics in all_metrics):
        return nll_quality
    return quality
