"""Which points of a sweep are better than others: by the validation nll, and by its mean where they have seeds."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vaswani.train.sweep.point import OBJECTIVE, PointStatus

SEED = "seed"
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
    """The points that differ only in their seed, and are done with a finite nll; and the config of one of them."""

    config: dict[str, Any]
    points: list[PointStatus]

    @property
    def best(self) -> PointStatus:
        """The point of the lowest nll, the first of equal ones."""
        return min(self.points, key=lowest)

    @property
    def nll(self) -> dict[Any, float]:
        """The lowest nll of each seed."""
        of_seed: dict[Any, float] = {}
        for point in self.points:
            whole = self.config | point.overrides
            of_seed[whole.get(SEED)] = lowest(point)
        return of_seed

    @property
    def mean(self) -> float:
        return float(np.mean([*self.nll.values()]))

    @property
    def rank(self) -> tuple[bool, float]:
        """Orders settings by their mean; settings with one seed come last, since that may be a lucky one."""
        return len(self.nll) < 2, self.mean


def settings_of(points: Sequence[PointStatus], config: dict[str, Any]) -> list[Setting]:
    """Returns the settings of all keys but the seed, best first; `config` is what the points depart from."""
    keys = [key for key in differing_keys(points, config) if key != SEED]
    settings: dict[str, Setting] = {}  # by what tells one from another
    for point in points:
        if point.state == "done" and math.isfinite(lowest(point)):
            whole = config | point.overrides
            name = repr([whole.get(key) for key in keys])
            settings.setdefault(name, Setting(whole, [])).points.append(point)
    return sorted(settings.values(), key=lambda one: one.rank)


def best_first(points: Sequence[PointStatus], config: dict[str, Any]) -> list[PointStatus]:
    """Returns the points, best first: those that are done, by their settings and then by their nll; then the others."""
    places: dict[str, int] = {}
    settings = settings_of(points, config)
    for place, setting in enumerate(settings):
        for point in setting.points:
            places[point.name] = place

    def rank(point: PointStatus) -> tuple[bool, int, float]:
        return point.state != "done", places.get(point.name, len(settings)), lowest(point)

    return sorted(points, key=rank)


def best_setting(points: Sequence[PointStatus], config: dict[str, Any]) -> Setting | None:
    """Returns the setting of the lowest mean nll; None if no point is done with a finite one.

    There is also none if the points' nlls cover different texts or tokens.
    """
    settings = settings_of(points, config)
    return None if not settings or other_measures(points, config) else settings[0]


def best_of(points: Sequence[PointStatus], config: dict[str, Any]) -> PointStatus | None:
    """Returns the point of the lowest nll in the `best_setting`; None if there is none."""
    setting = best_setting(points, config)
    return setting.best if setting else None


def differing_keys(points: Sequence[PointStatus], config: dict[str, Any]) -> list[str]:
    """Returns the config keys whose value is not the same in all points that have one."""
    configs = [config | point.overrides for point in points if point.chosen]
    overridden = dict.fromkeys(key for point in points for key in point.overrides)  # a dict, for the order
    differing: list[str] = []
    for key in overridden:
        values = [whole.get(key) for whole in configs]
        if any(value != values[0] for value in values):
            differing.append(key)
    return differing


def other_measures(points: Sequence[PointStatus], config: dict[str, Any]) -> list[str]:
    """Returns the keys by which points that are done differ in what their nll is of."""
    done = [point for point in points if point.state == "done"]
    differing = differing_keys(done, config)
    found = [key for key in differing if key in _OF_THE_MEASURE]
    configs = [config | point.overrides for point in done]
    learns_subwords = any(whole.get("task") != "vision" and not whole.get("data.tokenizer") for whole in configs)
    if learns_subwords and "data.train" in differing:
        found.append("data.train")
    if any(whole.get("data.batching") == "window" for whole in configs):
        found += [key for key in differing if key in _OF_WINDOWS]
    return found


def lowest(point: PointStatus) -> float:
    """Returns the lowest nll of a point; infinite if it has none that is a number."""
    nll = point.summary.get(f"{OBJECTIVE}_best", math.inf)
    return math.inf if math.isnan(nll) else nll
