"""Errors that the user can fix, notes to the user, and what messages say of values, missing packages and names."""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent  # the clone, or the folder of all installed packages
_LONGEST_LINE = 2_000  # characters
_CALLED = ContextVar("called", default=False)


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


def format_value(value: object) -> str:
    """Returns a value in one line of a message, in ASCII; its beginning, if it is long."""
    try:
        text = ascii(value)
    except ValueError:  # Python refuses to write numbers of thousands of digits
        return "a number of thousands of digits"
    text = re.sub(r"\s*\n\s*", " ", text)  # arrays are printed in rows
    return text if len(text) <= 80 else f"{text[:80]}..."


@contextmanager
def as_library() -> Iterator[None]:
    """Writes nothing to the caller's stderr, in this thread: notes are warnings, and there is no progress."""
    before = _CALLED.set(True)
    try:
        yield
    finally:
        _CALLED.reset(before)


def is_library() -> bool:
    """Returns whether this is inside of `as_library`."""
    return _CALLED.get()


def note(text: str, kind: str = "note") -> None:
    """Tells the user something: a command prints a line that begins with `kind`, inside of `as_library` it warns."""
    if is_library():
        warnings.warn(text, stacklevel=2)
    else:
        print(f"{kind}: {text}", file=sys.stderr)


def pip_install(extra: str) -> str:
    """Returns the command that installs an extra of pyproject.toml: in a clone from there, else for the package."""
    if (_ROOT / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]'"
    return f"pip install 'vaswani[{extra}]'"


def refuse_short_name(package: str) -> None:
    """Refuses `import model` in a clone: under a second name its classes would be other classes.

    To find the file of `python -m train`, Python first imports the package `train`; sys.argv still begins with "-m".

    Raises:
      ImportError: the package is being imported by its short name.
    """
    is_command = sys.argv[:1] == ["-m"]
    if "." not in package and not is_command:
        raise ImportError(f"import vaswani.{package}, not {package}: every package has one name, also in a clone")
