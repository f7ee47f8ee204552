"""Chooses among checkpoints: those that a name as in `config.decode.checkpoint` means, the best, and those to keep."""

import math
import re
from collections.abc import Callable, Collection, Sequence

from ml_collections import ConfigDict

from vaswani.errors import UserError, note
from vaswani.numbers import pluralize, whole
from vaswani.run.saved import Checkpoint

EMA = "ema"  # the moving average that training keeps, of the latest checkpoint
CHOICES = f"latest, STEP, best, {EMA}, average:N, average:N@MINUTES, average-best:N"
SINGLE = ("latest", "best", EMA)


def parse_average(choice: str) -> tuple[str, int, float] | None:
    """Returns "average" or "average-best", how many, and the least minutes between them; None of another choice."""
    match = re.fullmatch(r"(average|average-best):([1-9]\d{0,17})(?:@(\d+(?:\.\d+)?))?", choice)
    if not match or (match[1] == "average-best" and match[3]):
        return None
    return match[1], int(match[2]), float(match[3] or 0)


def is_choice(choice: str) -> bool:
    """Returns whether a choice has one of the forms of `CHOICES`."""
    return choice in SINGLE or choice.isdecimal() or parse_average(choice) is not None


def choose(choice: str, checkpoints: Sequence[Checkpoint]) -> list[int]:
    """Returns the steps that `choice` names, ascending. If there are too few to average, prints a note on stderr.

    `latest`, or `ema`, whose moving average is saved with it; a step; `best`, by validation score; `average:N`, the
    last N; `average:N@MINUTES`, the last N that are at least MINUTES apart; `average-best:N`, the N best.

    Raises:
      UserError: the choice has no known form, names a missing step, or needs scores that were not saved.
    """
    if not checkpoints:
        raise UserError("there is no checkpoint to choose from: train first, or wait for the first one")
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.step)
    steps = [checkpoint.step for checkpoint in ordered]
    if choice in ("latest", EMA):
        return steps[-1:]
    if choice == "best":
        return [_best_first(ordered)[0].step]
    if choice.isdecimal():
        step = whole(choice)
        if step is None or step not in steps:
            raise UserError(f"no checkpoint at step {choice}; there are {', '.join(map(str, steps))}")
        return [step]
    found = parse_average(choice)
    if found is None:
        raise UserError(f"checkpoint {choice!r} is not a choice; write one of {CHOICES}")
    which, count, minutes = found
    if which == "average-best":
        chosen = [checkpoint.step for checkpoint in _best_first(ordered)[:count]]
    elif minutes:
        chosen = _last_apart(ordered, count, 60 * minutes)
    else:  # times are not used, so a clock that was set back drops no checkpoint
        chosen = steps[-count:]
    if len(chosen) < count:
        note(f"{choice} asks for {count}; the run has {pluralize(len(chosen), 'checkpoints')}")
    return sorted(chosen)


def _best_first(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    validated = [checkpoint for checkpoint in checkpoints if checkpoint.metrics]
    if not validated:
        raise UserError("no checkpoint has a validation score, so none is best; choose latest, STEP or average:N")
    left_out = len(checkpoints) - len(validated)
    if left_out:
        note(f"checkpoints that were not validated cannot be the best: {left_out:,} of {len(checkpoints):,}")
    judged_by = common_quality([checkpoint.metrics for checkpoint in validated])
    if judged_by is not quality:
        with_bleu = [checkpoint for checkpoint in validated if "bleu" in checkpoint.metrics]
        note(f"{len(with_bleu)} of {len(validated)} checkpoints have a BLEU; the best is the one of lowest nll")
    return sorted(validated, key=lambda checkpoint: judged_by(checkpoint.metrics), reverse=True)


def _last_apart(ordered: Sequence[Checkpoint], count: int, seconds: float) -> list[int]:
    # Backwards from the newest: each is as old as the interval asks, or is passed over.
    chosen: list[Checkpoint] = []
    for checkpoint in reversed(ordered):
        if len(chosen) < count and (not chosen or chosen[-1].time - checkpoint.time >= seconds):
            chosen.append(checkpoint)
    return [checkpoint.step for checkpoint in chosen]


def quality(metrics: dict) -> tuple[int, float]:
    """Returns the sort key for "best", larger is better: validation BLEU if it was measured, else minus the nll.

    `eval.patience` and sweeps always judge by the nll. Checkpoints of earlier versions have only the smoothed loss.
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


def common_quality(all_metrics: Sequence[dict]) -> Callable[[dict], tuple[int, float]]:
    """Returns the sort key for these metrics: `quality`, or `nll_quality` where only some have a BLEU.

    BLEU and nll cannot be compared, so all are judged by what all have.
    """
    with_bleu = ["bleu" in metrics for metrics in all_metrics]
    has_only_some_bleu = any(with_bleu) and not all(with_bleu)
    if has_only_some_bleu and all("nll" in metrics for metrics in all_metrics):
        return nll_quality
    return quality


def steps_to_keep(cfg: ConfigDict, checkpoints: Collection[Checkpoint]) -> set[int]:
    """Returns the steps that any key of `config.checkpoint` asks for, and the last one.

    Section 6.1 averages the last checkpoints, which must be the same as in an uninterrupted run: one saved only
    because of a signal makes way for the next.

    Args:
      cfg: `config.checkpoint`.
      checkpoints: all there are, at least one.
    """
    lasting = [checkpoint for checkpoint in checkpoints if checkpoint.reason != "signal"]
    steps = sorted(checkpoint.step for checkpoint in lasting)
    validated = [checkpoint for checkpoint in lasting if checkpoint.metrics]
    judged_by = common_quality([checkpoint.metrics for checkpoint in validated])
    worst_first = sorted(validated, key=lambda checkpoint: (judged_by(checkpoint.metrics), checkpoint.step))
    best = [checkpoint.step for checkpoint in worst_first[-cfg.keep_best :]] if cfg.keep_best else []
    multiples = [step for step in steps if cfg.keep_every and step % cfg.keep_every == 0]
    last = max(checkpoint.step for checkpoint in checkpoints)
    return {last, *steps[-cfg.keep_last :], *best, *multiples}
