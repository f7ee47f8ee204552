"""Which points of a sweep are better than others: by the validation nll, and by its mean where they have seeds."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vaswani.train.overview.find_runs import SEED, FoundRun, by_seeds, differing_keys
from vaswani.train.sweep.point import OBJECTIVE, PointStatus

# The keys that decide which text and tokens the validation nll covers, besides the text that subwords are learned from.
_OF_THE_MEASURE = (
    "task",
    "data.valid",
    "data.classes",
    "data.mask_rate",
    "data.mean_span",
    "data.lowercase",
    "data.min_frequency",
    "data.normalisation",
    "data.share_vocabulary",
    "data.tokenizer",
    "data.units",
    "data.vocab_size",
)
_OF_WINDOWS = ("data.batching", "data.pack_length")


class Setting(NamedTuple):
    """The points that differ only in their seed; and the values of the keys that tell this setting from others."""

    values: tuple[str, ...]
    points: list[FoundRun]

    @property
    def best(self) -> FoundRun:
        """The point of the lowest nll, the first of equal ones."""
        return min(self.points, key=lowest)

    @property
    def nll(self) -> dict[Any, float]:
        """The lowest nll of each seed."""
        return {point.config[SEED]: lowest(point) for point in self.points}

    @property
    def mean(self) -> float:
        return float(np.mean([*self.nll.values()]))

    @property
    def rank(self) -> tuple[bool, float]:
        """Orders settings by their mean; settings with one seed come last, since that may be a lucky one."""
        return len(self.nll) < 2, self.mean


def as_run(point: PointStatus, config: dict[str, Any]) -> FoundRun:
    """Returns a point in the form that lists of runs have; `config`, dotted key to value, is what it departs from.

    A search's trial without overrides yet has no config.
    """
    whole = config | point.overrides if point.chosen else {}
    return FoundRun(Path(point.name), point.state, point.reason, whole, point.summary, [], {})


def compared(points: Sequence[FoundRun]) -> list[FoundRun]:
    """Returns the points that are done with a finite nll."""
    return [point for point in points if point.state == "done" and math.isfinite(lowest(point))]


def settings_of(points: Sequence[FoundRun]) -> list[Setting]:
    """Returns the settings of all keys but the seed, best first, of the points that can be `compared`."""
    settings = [Setting(values, alike) for values, alike in by_seeds(compared(points)).items()]
    return sorted(settings, key=lambda setting: setting.rank)


def best_first(points: Sequence[FoundRun]) -> list[FoundRun]:
    """Returns the points, best first: those that are done, by their settings and then by their nll; then the others."""
    places: dict[Path, int] = {}
    settings = settings_of(points)
    for place, setting in enumerate(settings):
        for point in setting.points:
            places[point.path] = place

    def rank(point: FoundRun) -> tuple[bool, int, float]:
        return point.state != "done", places.get(point.path, len(settings)), lowest(point)

    return sorted(points, key=rank)


def best_setting(points: Sequence[FoundRun]) -> Setting | None:
    """Returns the setting of the lowest mean nll; None if no point is done with a finite one.

    There is also none if the points' nlls cover different texts or tokens.
    """
    settings = settings_of(points)
    return None if not settings or other_measures(points) else settings[0]


def other_measures(points: Sequence[FoundRun]) -> list[str]:
    """Returns the keys by which points that are done differ in what their nll is of."""
    done = [point for point in points if point.state == "done"]
    differing = differing_keys(done)
    found = [key for key in differing if key in _OF_THE_MEASURE]
    learns_subwords = any(point.config["task"] != "vision" and not point.config["data.tokenizer"] for point in done)
    if learns_subwords and "data.train" in differing:
        found.append("data.train")
    if any(point.config["data.batching"] == "window" for point in done):
        found += [key for key in differing if key in _OF_WINDOWS]
    return found


def lowest(point: FoundRun) -> float:
    """Returns the lowest nll of a point; infinite if it has none that is a number."""
    nll = point.summary.get(f"{OBJECTIVE}_best", math.inf)
    return math.inf if math.isnan(nll) else nll
