"""Points of a sweep that differ in their seed alone, together: how much of a difference is chance."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from base.intervals import with_interval
from base.keys import short_names
from base.table import Table, setting
from train.sweep.point import OBJECTIVE, PointStatus
from train.sweep.table import differing_keys, other_measures

SEED = "seed"
DIGITS = 4  # of nll
_NOTE = (
    "nll: the lowest of each point, the mean over the seeds ± half of its 95 % t interval. Differences are between "
    "equal seeds, and are not corrected for the number of rows: the first is the best of several"
)


class _Setting(NamedTuple):
    """The points that differ in their seed alone: the values of the other keys, as text, and the nll of each seed."""

    cells: list[str]
    nll: dict[int, float]

    @property
    def mean(self) -> float:
        return float(np.mean([*self.nll.values()]))


def over_seeds(points: Sequence[PointStatus], config: dict[str, Any]) -> Table | None:
    """Returns a table with a row for each setting of the other keys, the lowest mean nll first, lone seeds last.

    Only points that are done count. None if no setting has two seeds, or their nll is of other tokens; `config` is what
    the points depart from.
    """
    keys = [key for key in differing_keys(points, config) if key != SEED]
    settings = _settings(points, config, keys)
    most_seeds = max((len(one.nll) for one in settings), default=0)
    if most_seeds < 2 or other_measures(points, config):
        return None
    # Settings of one seed come last: to take them for the best would leave nothing to compare seed by seed.
    settings.sort(key=lambda one: (len(one.nll) < 2, one.mean))
    best = settings[0]
    rows: list[tuple[str, ...]] = []
    for one in settings:
        mean = with_interval(np.array([*one.nll.values()]), DIGITS, sign=False)
        above = "" if one is best else _difference(one, best)
        rows.append((*one.cells, str(len(one.nll)), mean, above))
    head = (*short_names(keys), "seeds", "nll", "above the first")
    return Table("", "over the seeds", head, rows, [_NOTE])


def _settings(points: Sequence[PointStatus], config: dict[str, Any], keys: list[str]) -> list[_Setting]:
    """Returns the settings of these keys, each with the points of it that are done and have a finite nll."""
    measured: list[tuple[dict[str, Any], float]] = []
    for point in points:
        lowest = point.summary.get(f"{OBJECTIVE}_best", math.nan)
        if point.state == "done" and math.isfinite(lowest):
            measured.append((config | point.overrides, lowest))
    wholes = [whole for whole, _ in measured]
    texts = {key: _text_of(key, wholes) for key in keys}
    settings: dict[str, _Setting] = {}  # by what tells one from another
    for whole, lowest in measured:
        name = repr([whole[key] for key in keys])
        cells = [texts[key](whole[key]) for key in keys]
        settings.setdefault(name, _Setting(cells, {})).nll[whole[SEED]] = lowest
    return [*settings.values()]


def _text_of(key: str, wholes: list[dict[str, Any]]) -> Callable[[Any], str]:
    """Returns what formats the values of a key: with all their digits where four do not tell them apart."""
    values = [whole[key] for whole in wholes]
    shown = {setting(value) for value in values}
    different = {repr(value) for value in values}
    return setting if len(shown) == len(different) else repr


def _difference(one: _Setting, other: _Setting) -> str:
    """Returns the mean difference of equal seeds with its interval; "" if there are none."""
    differences = [nll - other.nll[seed] for seed, nll in one.nll.items() if seed in other.nll]
    return with_interval(np.array(differences, float), DIGITS)
