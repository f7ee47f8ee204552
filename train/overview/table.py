"""Runs as a table, a row each; and two runs side by side."""

import textwrap
from collections.abc import Sequence

from vaswani.errors import UserError
from vaswani.keys import short_names
from vaswani.train.overview.found import FoundRun, differing_keys
from vaswani.train.table import Table, as_text, number, setting

MOST_KEYS = 8  # of the config, that the table has columns for
_HEAD = ("run", "state", "step", "nll", "BLEU", "accuracy", "minutes", "device")


def table_of(runs: Sequence[FoundRun]) -> Table:
    """Returns the table of runs: what each has reached, and the config keys in which they differ.

    `nll`, BLEU and accuracy are those of the last validation: in nats a token, in per cent, in [0, 1]. Minutes are of
    training.
    """
    keys = differing_keys(runs)
    shown = keys[:MOST_KEYS]
    rows = []
    for run in runs:
        values = [setting(run.config[key]) if run.config else "" for key in shown]
        rows.append((str(run.path), *_reached(run), *values))
    counts = [run.state for run in runs]
    title = ", ".join(f"{counts.count(state)} {state}" for state in dict.fromkeys(counts))
    notes = [f"{run.path}: {run.problem}" for run in runs if run.problem]
    if keys != shown:
        more = ", ".join(keys[MOST_KEYS:])
        notes.append(f"they also differ in {more}; --diff shows two runs, key by key")
    return Table("", title, (*_HEAD, *short_names(shown, _HEAD)), rows, notes)


def as_fitted_text(table: Table, width: int) -> str:
    """Formats a table for a terminal of `width` characters.

    Empty columns are left out. The first one, and those after it that fit, are columns; the cells of others stand below
    their row, as "train=text:a.{en,de}, seed=1".
    """
    first, *others = zip(table.head, *table.rows, strict=True)
    kept = [first]
    moved: list[tuple[str, ...]] = []
    used = max(map(len, first))
    for column in others:
        needed = 2 + max(map(len, column))
        if not any(column[1:]):
            continue
        if used + needed > width:
            moved.append(column)
        else:
            kept.append(column)
            used += needed
    head, *rows = zip(*kept, strict=True)
    lines = as_text(table._replace(head=head, rows=rows, notes=[])).splitlines()
    text = lines[: -len(rows)]
    for place, line in enumerate(lines[-len(rows) :], start=1):
        text.append(line)
        cells = [f"{column[0]}={column[place]}" for column in moved if column[place]]
        text += textwrap.wrap(
            ", ".join(cells),
            width,
            initial_indent="    ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join([*text, "", *table.notes]).rstrip()


def difference_of(one: FoundRun, other: FoundRun) -> Table:
    """Returns the table of what differs between two runs: first what they have reached, then config keys.

    Raises:
      UserError: a run is damaged.
    """
    for run in (one, other):
        if run.state == "damaged":
            raise UserError(run.problem)
    rows: list[tuple[str, ...]] = list(zip(_HEAD[1:], _reached(one), _reached(other), strict=True))
    differing = [row for row in rows if row[1] != row[2]]
    for key in differing_keys([one, other]):
        values = one.config[key], other.config[key]
        first, second = map(setting, values)
        if first == second:  # alike to as many digits as a table shows
            first, second = map(repr, values)
        differing.append((key, first, second))
    title = "" if differing else "nothing differs"
    return Table("", title, ("", str(one.path), str(other.path)), differing, [])


def _reached(run: FoundRun) -> tuple[str, ...]:
    """Returns the cells of a run under `_HEAD`, without its name."""
    done = run.summary.get("step")
    step = ""
    if done is not None and run.config:
        step = f"{done:,}/{run.config['steps']:,}"
    nll = number(run.summary.get("nll"), 4)
    bleu = number(run.summary.get("bleu"))
    accuracy = number(run.summary.get("accuracy"), 4)
    minutes = number(run.summary.get("minutes"), 1)
    return (run.state, step, nll, bleu, accuracy, minutes, run.device)
