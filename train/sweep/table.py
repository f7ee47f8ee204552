"""A sweep at a glance: its points, the best first; and what its settings reach over their seeds."""

from collections.abc import Sequence

import numpy as np

from vaswani.keys import short_names
from vaswani.train.intervals import with_interval
from vaswani.train.overview.find_runs import SEED, FoundRun, differing_keys
from vaswani.train.overview.table import arrange, table_of
from vaswani.train.sweep.ranking import Setting, best_first, best_setting, compared, other_measures, settings_of
from vaswani.train.table import Table

DIGITS = 4  # of nll
_NOTE = (
    "nll: the lowest of each point, the mean over the seeds ± half of its 95 % t interval. Differences are between "
    "equal seeds, and are not corrected for the number of rows: the first is the best of several"
)


def table_of_points(points: Sequence[FoundRun]) -> Table:
    """Returns the table of the points, as one of runs; a note says which is best, or why none is."""
    table = arrange(table_of(best_first(points)), None, None)
    others = other_measures(points)
    best = best_setting(points)
    notes = []
    if others:
        notes.append(f"nll is of other texts or tokens ({', '.join(others)}): it does not say which is best")
    elif best:
        notes.append(f"best: {best.best.path}, of the lowest {_judged_by(best)}; --best prints its command")
    return table._replace(notes=[*notes, *table.notes])


def _judged_by(setting: Setting) -> str:
    seeds = len(setting.nll)
    return f"mean nll over {seeds} seeds" if seeds > 1 else "validation nll"


def table_of_settings(points: Sequence[FoundRun]) -> Table | None:
    """Returns a table with a row for each setting of the other keys, the lowest mean nll first, lone seeds last.

    Only points that are done count. None if no setting has two seeds, or their nll is of other tokens.
    """
    settings = settings_of(points)
    most_seeds = max((len(setting.nll) for setting in settings), default=0)
    if most_seeds < 2 or other_measures(points):
        return None
    keys = [key for key in differing_keys(compared(points)) if key != SEED]
    best = settings[0]
    rows: list[tuple[str, ...]] = []
    for setting in settings:
        mean = with_interval(np.array([*setting.nll.values()]), DIGITS, sign=False)
        above = "" if setting is best else _difference(setting, best)
        rows.append((*setting.values, str(len(setting.nll)), mean, above))
    head = (*short_names(keys), "seeds", "nll", "above the first")
    return Table("", "over the seeds", head, rows, [_NOTE])


def _difference(one: Setting, other: Setting) -> str:
    """Returns the mean difference of equal seeds with its interval; "" if there are none."""
    differences = [nll - other.nll[seed] for seed, nll in one.nll.items() if seed in other.nll]
    return with_interval(np.array(differences, float), DIGITS)
