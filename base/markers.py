"""Pages written by hand, a part of which a command writes: it stands between two lines that stay."""

from pathlib import Path

from base.errors import UserError


def rewritten(path: Path, begin: str, end: str, text: str) -> str:
    """Returns the page with everything between the lines `begin` and `end` replaced by `text`.

    Raises:
      UserError: one of the lines does not stand in it.
    """
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise UserError(f"{path}: the lines {begin!r} and {end!r} must both stand in it")
    return f"{before}{begin}\n{text}\n{end}{after}"
