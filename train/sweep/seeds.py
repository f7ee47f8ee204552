"""Points of a sweep that differ only in their seed, together: how much of a difference is chance."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vaswani.keys import short_names
from vaswani.train.intervals import with_interval
from vaswani.train.sweep.point import PointStatus
from vaswani.train.sweep.ranking import SEED, Setting, differing_keys, other_measures, settings_of
from vaswani.train.table import Table, setting

DIGITS = 4  # of nll
_NOTE = (
    "nll: the lowest of each point, the mean over the seeds ± half of its 95 % t interval. Differences are between "
    "equal seeds, and are not corrected for the number of rows: the first is the best of several"
)


def over_seeds(points: Sequence[PointStatus], config: dict[str, Any]) -> Table | None:
    """Returns a table with a row for each setting of the other keys, the lowest mean nll first, lone seeds last.

    Only points that are done count. None if no setting has two seeds, or their nll is of other tokens; `config` is what
    the points depart from.
    """
    keys = [key for key in differing_keys(points, config) if key != SEED]
    settings = settings_of(points, config)
    most_seeds = max((len(one.nll) for one in settings), default=0)
    if most_seeds < 2 or other_measures(points, config):
        return None
    texts = {key: _text_of(key, settings) for key in keys}
    best = settings[0]
    rows: list[tuple[str, ...]] = []
    for one in settings:
        mean = with_interval(np.array([*one.nll.values()]), DIGITS, sign=False)
        above = "" if one is best else _difference(one, best)
        cells = [texts[key](one.config[key]) for key in keys]
        rows.append((*cells, str(len(one.nll)), mean, above))
    head = (*short_names(keys), "seeds", "nll", "above the first")
    return Table("", "over the seeds", head, rows, [_NOTE])


def _text_of(key: str, settings: list[Setting]) -> Callable[[Any], str]:
    """Returns the function that formats a key's values: with all digits where four do not tell them apart."""
    values = [one.config[key] for one in settings]
    shown = {setting(value) for value in values}
    different = {repr(value) for value in values}
    return setting if len(shown) == len(different) else repr


def _difference(one: Setting, other: Setting) -> str:
    """Returns the mean difference of equal seeds with its interval; "" if there are none."""
    differences = [nll - other.nll[seed] for seed, nll in one.nll.items() if seed in other.nll]
    return with_interval(np.array(differences, float), DIGITS)
