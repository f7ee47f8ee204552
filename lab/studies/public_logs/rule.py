"""The rule of the design: whether runs lie on the published curves, and where they do not."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lab.studies.public_logs.published import LOGS

LOSS_MARGIN = 0.03  # nats, of an epoch's loss on either side of the published range
TEST_MARGIN = 0.02  # nats, of the loss on test
CURVES = ("train", "valid")


class Band(NamedTuple):
    """The range of the published runs, and by how much it is widened on either side."""

    low: float
    high: float
    margin: float

    def outside(self, value: float) -> float:
        """Returns by how much a value is above the widened range, or below it as a negative number; 0 inside."""
        if value > self.high + self.margin:
            return value - self.high - self.margin
        if value >= self.low - self.margin:
            return 0.0
        # NaN is in no range.
        return value - self.low + self.margin

    def holds(self, value: float) -> bool:
        """Returns whether a value is in the widened range."""
        return self.outside(value) == 0.0


def curve_bands(log: str, curve: str) -> list[Band]:
    """Returns the band of every epoch; `curve` is "train" or "valid"."""
    epochs = zip(*(getattr(run, curve) for run in LOGS[log]), strict=True)
    return [Band(min(values), max(values), LOSS_MARGIN) for values in epochs]


def end_bands(log: str) -> dict[str, Band]:
    """Returns the bands of "test" and "bleu", as far as they are published."""
    losses = [run.test for run in LOGS[log] if run.test is not None]
    scores = [run.bleu for run in LOGS[log] if run.bleu is not None]
    bands: dict[str, Band] = {}
    if losses:
        bands["test"] = Band(min(losses), max(losses), TEST_MARGIN)
    if scores:
        bands["bleu"] = Band(min(scores), max(scores), float(np.std(scores, ddof=1)))
    return bands


def is_whole(log: str, run: Mapping[str, Any]) -> bool:
    """Returns whether a run has all epochs of the published ones; one that has not has no end to compare."""
    return len(run["train"]) == len(curve_bands(log, "train"))


def compared(log: str, seeds: Mapping[int, Mapping[str, Any]]) -> int:
    """Returns how many numbers of these runs the rule compares."""
    whole = sum(is_whole(log, run) for run in seeds.values())
    return sum(len(run[curve]) for run in seeds.values() for curve in CURVES) + whole * len(end_bands(log))


def misses(log: str, seeds: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Names what lies outside its band, of the runs by seed: what, in which epoch, of which seed, by how much."""
    named: list[str] = []
    for seed, run in seeds.items():
        for curve in CURVES:
            for epoch, (band, value) in enumerate(zip(curve_bands(log, curve), run[curve], strict=False), 1):
                named += _miss(f"{curve}, epoch {epoch}, seed {seed}", band.outside(value), 3)
        if is_whole(log, run):
            for what, band in end_bands(log).items():
                named += _miss(f"{what}, seed {seed}", band.outside(run[what]), 3 if what == "test" else 2)
    return named


def _miss(where: str, by: float, digits: int) -> Sequence[str]:
    if by == 0.0:
        return []
    side = "above" if by > 0 else "below"
    return [f"{where}: {abs(by):.{digits}f} {side}"]
