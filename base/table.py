"""A table of strings, and the three ways to write one down without a browser."""

import csv
import io
import re
import statistics
from collections.abc import Sequence
from typing import NamedTuple

NOT_RUN = "not run"
ABSENT = (NOT_RUN, "not ", "unfinished", "failed", "pruned")  # how what stands in the place of a number begins
_NUMBER = re.compile(r"[+−]?\d[\d.,e]*( ± [\d.]+)?$")


class Table(NamedTuple):
    """Heads and rows of equal length; `name` tells tables of one file apart, `notes` stand below.

    A head "BLEU: ours" is of the column "ours" in the group "BLEU".
    """

    name: str
    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str]


def as_text(table: Table) -> str:
    """For a terminal: columns aligned, numbers to the right."""
    head = _short(table.head)
    columns = list(zip(head, *table.rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [is_numeric(column[1:]) for column in columns]

    def line(cells: Sequence[str]) -> str:
        parts = zip(cells, widths, numeric, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([table.title, "", line(head), rule, *map(line, table.rows), "", *table.notes]).rstrip()


def as_markdown(table: Table) -> str:
    """As Markdown, with the title as a heading and the notes as a list."""
    numeric = [is_numeric(column) for column in zip(*table.rows, strict=True)] or [False] * len(table.head)

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    rule = f"|{'|'.join('---:' if right else '---' for right in numeric)}|"
    lines = [f"### {table.title}", "", line(_short(table.head)), rule, *map(line, table.rows)]
    return "\n".join([*lines, *([""] if table.notes else []), *(f"- {note}" for note in table.notes)])


def as_csv(table: Table) -> str:
    """As comma-separated values, the table's name in the first column; titles and notes are left out."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", *table.head))
    writer.writerows((table.name, *row) for row in table.rows)
    return text.getvalue().rstrip("\n")


def _short(head: Sequence[str]) -> list[str]:
    """Heads for a reader: a group is named once."""
    groups = ["", *(cell.rpartition(": ")[0] for cell in head)]
    return [
        cell.removeprefix(f"{before}: ") if before == group else cell
        for cell, before, group in zip(head, groups, groups[1:], strict=False)
    ]


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers, or what stands in their place, and so stands to the right."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(_NUMBER.match(cell) or cell.startswith(ABSENT) for cell in filled)


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """A number with so many decimals, "" for None; with `sign`, + or − stands before it."""
    if value is None:
        return ""
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return text.replace("-", "−")


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return statistics.fmean(values) if values else None


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean over seeds and, of two or more, ± the sample standard deviation."""
    if len(values) < 2:
        return number(mean(values), digits)
    return f"{number(mean(values), digits)} ± {statistics.stdev(values):.{digits}f}"


def difference(ours: float | None, paper: float | None, digits: int = 2) -> str:
    """`ours` minus `paper` with its sign, "" where one is missing."""
    return "" if ours is None or paper is None else number(ours - paper, digits, sign=True)
