"""A table of strings, and its plain formats: text, Markdown, LaTeX and CSV."""

import csv
import io
import math
import re
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

NOT_RUN = "not run"
HUGE = 1e9
# Prefixes of what replaces a missing number; "not met" is a verdict.
ABSENT = (
    NOT_RUN,
    "not chosen",
    "not counted",
    "not evaluated",
    "not in the time",
    "not learned",
    "unfinished",
    "failed",
    "pruned",
)
# What Markdown gives a meaning; not an underscore within a word, as in d_model, nor a lone < or &.
_ACTIVE = re.compile(r"[\\`*\[\]]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")
# What a spreadsheet would calculate: not numbers, such as "+0.5 ± 0.1", nor a lone sign.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?!$|(\d[\d,]*(\.\d+)?(e[+-]?\d+)?|inf)%?( ± [\d.,]+)?$)")
_LATEX = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "^": r"\^{}",
        "~": r"\textasciitilde{}",
        "±": r"$\pm$",
        "−": "$-$",
    }
)
_NUMBER = re.compile(r"[+−]?\d[\d.,e+]*( ± [\d.]+)?$")


class Markdown(str):
    """A cell that is Markdown already, such as a link; any other is text."""


class Code(str):
    """A cell that is code, such as a command: in backquotes in Markdown, plain text in other formats."""


class Table(NamedTuple):
    """Column heads, rows of the same length, and notes; `name` distinguishes the tables in one file.

    A head "BLEU: ours" is the column "ours" in the group "BLEU". A table without a name is the only one in its file;
    one without a title gets its heading from the page.
    """

    name: str
    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str]


def as_text(table: Table) -> str:
    """Formats a table for a terminal, with aligned columns and numbers to the right."""
    head = _short(table.head)
    columns = list(zip(head, *table.rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [is_numeric(column[1:]) for column in columns]

    def line(cells: Sequence[str]) -> str:
        parts = []
        for cell, width, is_number in zip(cells, widths, numeric, strict=True):
            parts.append(cell.rjust(width) if is_number else cell.ljust(width))
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([table.title, "", line(head), rule, *map(line, table.rows), "", *table.notes]).rstrip()


def as_markdown(table: Table) -> str:
    """Formats a table as Markdown, with its title as a heading and the notes as a list; all text is escaped."""
    numeric = [is_numeric(column) for column in zip(*table.rows, strict=True)] or [False] * len(table.head)

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(map(_cell, cells))} |"

    heading = [f"### {escape_markdown(table.title)}", ""] if table.title else []
    dashes = ["---:" if is_number else "---" for is_number in numeric]
    rule = f"|{'|'.join(dashes)}|"
    lines = [*heading, line(_short(table.head)), rule, *map(line, table.rows)]
    if table.notes:
        lines += ["", *(f"- {escape_markdown(note)}" for note in table.notes)]
    return "\n".join(lines)


def escape_markdown(text: str) -> str:
    """Returns Markdown that shows `text` as it is, in one line; `Markdown` is returned unchanged.

    Text of a record may have been written by anyone: it must not become HTML, code or a link.
    """
    if isinstance(text, Markdown):
        return text
    return _ACTIVE.sub(r"\\\g<0>", " ".join(text.splitlines()))


def _cell(text: str) -> str:
    if isinstance(text, Code):
        return f"`{text}`".replace("|", r"\|")
    return text if isinstance(text, Markdown) else escape_markdown(text).replace("|", r"\|")


def as_latex(table: Table) -> str:
    """Formats a table as LaTeX's `tabular`, with the rules of the package booktabs, and its notes as comments."""
    numeric = [is_numeric(column) for column in zip(*table.rows, strict=True)] or [False] * len(table.head)
    columns = "".join("r" if is_number else "l" for is_number in numeric)

    def line(cells: Sequence[str]) -> str:
        return f"{' & '.join(cell.translate(_LATEX) for cell in cells)} \\\\"

    body = [line(_short(table.head)), r"\midrule", *map(line, table.rows)]
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*(f"% {note}" for note in table.notes), *lines])


def as_csv(table: Table) -> str:
    """Formats a table as CSV, with its name, if it has one, in the first column and without title or notes.

    A minus sign before a digit is a hyphen, which programs can read. A cell that a spreadsheet would take for a formula
    gets an apostrophe before it, which makes it text there.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    lines = [table.head, *table.rows]
    if table.name:
        lines = [("table", *table.head), *((table.name, *row) for row in table.rows)]
    for line in lines:
        writer.writerow([_cell_of_csv(cell) for cell in line])
    return text.getvalue().rstrip("\n")


def _cell_of_csv(cell: str) -> str:
    text = re.sub(r"−(?=\d)", "-", cell)
    return f"'{text}" if _FORMULA.match(text) else text


def _short(head: Sequence[str]) -> list[str]:
    """Shortens the heads so that each group is named only once."""
    shortened = []
    group_before = ""
    for cell in head:
        group = cell.rpartition(": ")[0]
        shortened.append(cell.removeprefix(f"{group}: ") if group == group_before else cell)
        group_before = group
    return shortened


def is_numeric(cells: Sequence[str]) -> bool:
    """Returns whether a column holds only numbers, or words for missing ones, and so is right-aligned."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(_NUMBER.match(cell) or cell.startswith(ABSENT) for cell in filled)


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Formats a number with `digits` decimals, None as ""; with `sign`, positive numbers get a +.

    From `HUGE` on it has an exponent: the perplexity of a run that diverged may have 80 digits.
    """
    if value is None:
        return ""
    form = "e" if abs(value) >= HUGE else "f"
    text = f"{value:+.{digits}{form}}" if sign else f"{value:.{digits}{form}}"
    return text.replace("-", "−")


def setting(value: Any) -> str:
    """Formats the value of a config key; numbers that are not whole have four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def mean(values: Sequence[float]) -> float | None:
    """Returns the mean; None if there are no values."""
    return statistics.fmean(values) if values else None


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Formats the mean over seeds and, for two or more, ± the sample standard deviation where all are finite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return number(mean(values), digits)
    return f"{number(mean(values), digits)} ± {statistics.stdev(values):.{digits}f}"


def difference(ours: float | None, paper: float | None, digits: int = 2) -> str:
    """Formats `ours` minus `paper` with its sign; "" if one is missing."""
    return "" if ours is None or paper is None else number(ours - paper, digits, sign=True)
