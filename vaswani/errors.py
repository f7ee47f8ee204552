"""Errors that the user can fix, and how values are shown in their messages."""

import re

_LONGEST_LINE = 2_000  # characters


class UserError(Exception):
    """A wrong file, line, key or value. The message is one line: what is wrong, where, and what would be right."""


def one_line(text: str) -> str:
    """Returns a message as one line for a terminal: escapes what cannot be printed, cuts a long one in the middle."""
    line = "".join(map(_printable, text.strip()))
    if len(line) <= _LONGEST_LINE:
        return line
    beginning = line[: _LONGEST_LINE // 2]
    end = line[-_LONGEST_LINE // 4 :]
    return f"{beginning} ... {end}"


def _printable(character: str) -> str:
    """Returns a character, escaped if it cannot be printed."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def shown(value: object) -> str:
    """Returns a value in one line of a message, in ASCII; its beginning, if it is long."""
    try:
        text = ascii(value)
    except ValueError:  # Python refuses to write numbers of thousands of digits
        return "a number of thousands of digits"
    text = re.sub(r"\s*\n\s*", " ", text)  # arrays are printed in rows
    return text if len(text) <= 80 else f"{text[:80]}..."
