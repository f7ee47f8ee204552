"""Errors that the user can fix, and how values are shown in their messages."""

import re

_LONGEST_LINE = 2_000  # characters


class UserError(Exception):
    """A wrong file, line, key or value. The message is one line: what is wrong, where, and what would be right."""


def one_line(text: str) -> str:
    """Returns a message as one line for a terminal: escapes what cannot be printed, cuts a long one in the middle."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text.strip())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 4 :]}"


def shown(value: object) -> str:
    """Returns a value in one line of a message, in ASCII; its beginning, if it is long."""
    try:
        text = ascii(value)
    except ValueError:  # Python refuses to write numbers of thousands of digits
        return "a number of thousands of digits"
    text = re.sub(r"\s*\n\s*", " ", text)  # arrays are printed in rows
    return text if len(text) <= 80 else f"{text[:80]}..."
