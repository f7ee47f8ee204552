"""Hand-written pages with a generated block between two marker lines."""

from pathlib import Path

from vaswani.errors import UserError


def replace_block(path: Path, begin: str, end: str, text: str) -> str:
    """Returns the page with everything between the lines `begin` and `end` replaced by `text`.

    Raises:
      UserError: one of the lines is missing.
    """
    before, begin_line, rest = path.read_text(encoding="utf-8").partition(begin)
    _, end_line, after = rest.partition(end)
    if not (begin_line and end_line):
        raise UserError(f"{path}: it must contain both of the lines {begin!r} and {end!r}")
    return f"{before}{begin}\n{text}\n{end}{after}"
