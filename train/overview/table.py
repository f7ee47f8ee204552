"""Runs as a table, a row each; two runs side by side; and a table as a terminal has room for it."""

import os
import re
import textwrap
from collections.abc import Sequence

from vaswani.errors import UserError
from vaswani.keys import namesake, short_names
from vaswani.train.overview.find_runs import FoundRun, differing_keys, is_aside
from vaswani.train.overview.scores import score_rows
from vaswani.train.table import Table, as_text, number, setting

_RESULTS = ("state", "step", "nll", "best nll", "BLEU", "accuracy", "minutes", "device")
_LONGEST_CELL = 24  # characters; of a longer one, such as a path, both ends are shown


def table_of(runs: Sequence[FoundRun]) -> Table:
    """Returns the table of runs: their results, and the config keys in which they differ.

    `nll`, BLEU and accuracy come from the last validation: in nats a token, in per cent, in [0, 1]; the best nll is the
    lowest of all. Minutes are of training.
    """
    keys = differing_keys(runs)
    names = dict(zip(keys, short_names(keys, ("run", *_RESULTS)), strict=True))
    rows = []
    for run in runs:
        *results, device = _result_cells(run)
        settings = {key: setting(run.config[key]) if run.config else "" for key in keys}
        varied = [value for key, value in settings.items() if not is_aside(key)]
        others = [value for key, value in settings.items() if is_aside(key)]
        rows.append((str(run.path), *results, *varied, device, *others))
    *measures, device = _RESULTS
    before = [names[key] for key in keys if not is_aside(key)]
    after = [names[key] for key in keys if is_aside(key)]
    counts = [run.state for run in runs]
    title = ", ".join(f"{counts.count(state)} {state}" for state in dict.fromkeys(counts))
    notes = [f"{run.path}: {run.problem}" for run in runs if run.problem]
    return Table("", title, ("run", *measures, *before, device, *after), rows, notes)


def arrange(table: Table, columns: Sequence[str] | None, sort: str | None) -> Table:
    """Returns a table with the columns of these names, by default those that are not empty, and its rows sorted.

    `sort` is the name of a column, "-nll" for the highest first. What has no number comes after what has one.

    Raises:
      UserError: there is no such column.
    """
    if sort is not None:
        place = _column(table, "sort", sort.removeprefix("-"))
        filled = [row for row in table.rows if row[place]]
        empty = [row for row in table.rows if not row[place]]
        filled.sort(key=lambda row: _order(row[place]), reverse=sort.startswith("-"))
        table = table._replace(rows=[*filled, *empty])
    if columns is None:
        places = [place for place in range(len(table.head)) if any(row[place] for row in table.rows)]
    else:
        places = [_column(table, "columns", name) for name in columns]
    return _with_columns(table, places)


def _column(table: Table, flag: str, name: str) -> int:
    found = name if name in table.head else namesake(name, table.head)
    if found is None:
        raise UserError(f"--{flag}: there is no column {name}; there are {', '.join(table.head)}")
    return table.head.index(found)


def _order(cell: str) -> tuple[float, str]:
    """Returns a cell's sort key: the number that it begins with, or its text."""
    digits = re.match(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", cell.replace("−", "-").replace(",", ""))
    return (float(digits[0]), "") if digits else (float("inf"), cell)


def _with_columns(table: Table, places: Sequence[int]) -> Table:
    head, *rows = [tuple(line[place] for place in places) for line in (table.head, *table.rows)]
    return table._replace(head=head, rows=rows)


def as_fitted_text(table: Table, width: int) -> str:
    """Formats a table for a terminal of `width` characters: as many columns as fit, and a note that names the others.

    Runs are named from the folder that all of them are in, and long cells are shortened.
    """
    runs = [row[0] for row in table.rows]
    has_folder = table.head[0] == "run" and len(runs) > 1
    # Not `commonpath`, to which gs:// is gs:/.
    folder = os.path.commonprefix(runs).rpartition("/")[0] if has_folder else ""  # noqa: RUF071
    rows = []
    for name, *cells in table.rows:
        rows.append((name.removeprefix(f"{folder}/"), *map(_shorten, cells)))
    title = ", in ".join(filter(None, (table.title, folder)))
    table = table._replace(title=title, rows=rows)

    widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
    fitting = 1
    while fitting < len(widths) and sum(widths[: fitting + 1]) + 2 * fitting <= width:
        fitting += 1
    notes = list(table.notes)
    if fitting < len(widths):
        notes.insert(0, f"no room for {', '.join(table.head[fitting:])}: choose with --columns; --markdown has all")
    lines = [textwrap.fill(note, width, break_long_words=False, break_on_hyphens=False) for note in notes]
    return as_text(_with_columns(table, range(fitting))._replace(notes=lines))


def _shorten(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else f"{cell[:8]}…{cell[9 - _LONGEST_CELL :]}"


def difference_of(one: FoundRun, other: FoundRun) -> Table:
    """Returns the table of what differs between two runs: what they have reached, their scores, then config keys.

    Raises:
      UserError: a run is damaged.
    """
    for run in (one, other):
        if run.state == "damaged":
            raise UserError(run.problem)
    results = zip(_RESULTS, _result_cells(one), _result_cells(other), strict=True)
    rows = [*results, *score_rows(one, other)]
    differing: list[tuple[str, ...]] = [row for row in rows if row[1] != row[2]]
    for key in differing_keys([one, other]):
        values = one.config[key], other.config[key]
        first, second = map(setting, values)
        if first == second:  # alike to as many digits as a table shows
            first, second = map(repr, values)
        differing.append((key, first, second))
    title = "" if differing else "nothing differs"
    return Table("", title, ("", str(one.path), str(other.path)), differing, [])


def _result_cells(run: FoundRun) -> tuple[str, ...]:
    """Returns the cells of a run under `_RESULTS`."""
    done = run.summary.get("step")
    step = ""
    if done is not None and run.config:
        step = f"{done:,}/{run.config['steps']:,}"
    nll = number(run.summary.get("nll"), 4)
    best_nll = number(run.summary.get("nll_best"), 4)
    bleu = number(run.summary.get("bleu"))
    accuracy = number(run.summary.get("accuracy"), 4)
    minutes = number(run.summary.get("minutes"), 1)
    return (run.state, step, nll, best_nll, bleu, accuracy, minutes, run.device)
