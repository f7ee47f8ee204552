"""Two files that correspond line by line: translations and references, or trees and trees."""

import re
from pathlib import Path

from vaswani.data.lines import read_lines
from vaswani.errors import UserError
from vaswani.numbers import pluralize


def read_pair(left: str | Path, right: str | Path) -> tuple[list[str], list[str]]:
    """Returns the lines of both files.

    Raises:
      UserError: a file cannot be read, their lengths differ, or both are empty.
    """
    left_lines = list(read_lines(Path(left)))
    right_lines = list(read_lines(Path(right)))
    check_equal(left, left_lines, right, right_lines)
    if not left_lines:
        raise UserError(f"{left} and {right} are empty: there is nothing to score")
    return left_lines, right_lines


def check_equal(left: str | Path, left_lines: list[str], right: str | Path, right_lines: list[str]) -> None:
    """Raises a `UserError` unless two files, of which these are the lines, have as many."""
    if len(left_lines) != len(right_lines):
        raise UserError(
            f"unequal line counts: {left} has {pluralize(len(left_lines), 'lines')}, {right} has {len(right_lines):,}; "
            "line i of one must correspond to line i of the other"
        )


def language_of(path: str | Path, otherwise: str = "de") -> str:
    """Returns the language that a file name ends in (`x.fr`, `x.zh-CN.gz`), as text corpora are; else `otherwise`."""
    match = re.search(r"\.([a-z]{2}([-_][A-Z]{2})?)$", str(path).removesuffix(".gz"))
    return match[1] if match else otherwise
