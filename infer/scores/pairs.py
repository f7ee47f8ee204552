"""Two files that correspond line by line: translations and references, or trees and trees."""

import re
from pathlib import Path

from base.errors import UserError
from data.lines import read_lines


def read_pair(left: str | Path, right: str | Path) -> tuple[list[str], list[str]]:
    """Returns the lines of both files.

    Raises:
      UserError: a file cannot be read, their lengths differ, or both are empty.
    """
    first, second = list(read_lines(Path(left))), list(read_lines(Path(right)))
    if len(first) != len(second):
        raise UserError(
            f"unequal line counts: {left} has {len(first)} lines, {right} has {len(second)}; line i of one must "
            "correspond to line i of the other"
        )
    if not first:
        raise UserError(f"{left} and {right} are empty: there is nothing to score")
    return first, second


def language_of(path: str | Path) -> str:
    """Returns the language that a file name ends in (`x.fr`, `x.fr.gz`), as text corpora are named; else "de"."""
    match = re.search(r"\.([a-z]{2})$", str(path).removesuffix(".gz"))
    return match[1] if match else "de"
