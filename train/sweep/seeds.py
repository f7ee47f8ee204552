"""Points of a sweep that differ in their seed alone, together: how much of a difference is chance."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from base.intervals import half_interval
from base.keys import short_names
from base.table import Table, number, setting
from train.sweep.point import OBJECTIVE, PointStatus
from train.sweep.table import differing_keys, other_tokens

SEED = "seed"
_NOTE = (
    "nll: the lowest of each point, the mean over the seeds ± half of its 95 % t interval. Differences are between "
    "equal seeds, and are not corrected for the number of rows: the first is the best of several"
)


def over_seeds(points: Sequence[PointStatus], config: dict[str, Any]) -> Table | None:
    """Returns a table with a row for each setting of the other keys, the lowest mean nll first, lone seeds last.

    Only points that are done count. None if no setting has two seeds, or their nll is of other tokens; `config` is what
    the points depart from.
    """
    done: list[tuple[dict[str, Any], float]] = []
    for point in points:
        lowest = point.summary.get(f"{OBJECTIVE}_best", math.nan)
        if point.state == "done" and math.isfinite(lowest):
            done.append((config | point.overrides, lowest))
    keys = [key for key in differing_keys(points, config) if key != SEED]
    wholes = [whole for whole, _ in done]
    texts = {key: _text_of(key, wholes) for key in keys}
    shown: dict[str, list[str]] = {}  # of each setting, by what tells it from others
    nll: dict[str, dict[int, float]] = {}  # by seed
    for whole, lowest in done:
        name = repr([whole[key] for key in keys])
        shown[name] = [texts[key](whole[key]) for key in keys]
        nll.setdefault(name, {})[whole[SEED]] = lowest
    if other_tokens(points, config) or max(map(len, nll.values()), default=0) < 2:
        return None
    # Settings of one seed come last: to take them for the best would leave nothing to compare seed by seed.
    best, *others = sorted(nll, key=lambda name: (len(nll[name]) < 2, np.mean([*nll[name].values()])))
    rows = [(*shown[best], *_cells(nll[best]), "")]
    for name in others:
        rows.append((*shown[name], *_cells(nll[name]), _difference(nll[name], nll[best])))
    head = (*short_names(keys), "seeds", "nll", "above the first")
    return Table("", "over the seeds", head, rows, [_NOTE])


def _text_of(key: str, wholes: list[dict[str, Any]]) -> Callable[[Any], str]:
    """Returns what formats the values of a key: with all their digits where four do not tell them apart."""
    values = [whole[key] for whole in wholes]
    return setting if len(set(map(setting, values))) == len(set(map(repr, values))) else repr


def _cells(nll: dict[int, float]) -> tuple[str, str]:
    """Returns how many seeds there are, and their mean with its interval."""
    return str(len(nll)), _with_interval([*nll.values()])


def _difference(nll: dict[int, float], of_best: dict[int, float]) -> str:
    """Returns the mean difference of equal seeds with its interval; "" if there are none."""
    differences = [nll[seed] - of_best[seed] for seed in nll if seed in of_best]
    return _with_interval(differences, sign=True) if differences else ""


def _with_interval(values: list[float], *, sign: bool = False) -> str:
    half = half_interval(np.array(values))
    middle = number(float(np.mean(values)), 4, sign=sign)
    return middle if half is None else f"{middle} ± {half:.4f}"
