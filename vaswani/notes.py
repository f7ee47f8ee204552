"""Notes to the user: lines on stderr of a command, warnings in the program of someone who calls this code."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CALLED = ContextVar("called", default=False)


@contextmanager
def as_library() -> Iterator[None]:
    """Leaves the caller's stderr alone, in this thread: notes are warnings, and there is no progress."""
    before = _CALLED.set(True)
    try:
        yield
    finally:
        _CALLED.reset(before)


def is_library() -> bool:
    """Returns whether this is inside of `as_library`."""
    return _CALLED.get()


def note(text: str, kind: str = "note") -> None:
    """Prints a line that begins with its kind, or warns of it inside of `as_library`."""
    if is_library():
        warnings.warn(text, stacklevel=2)
    else:
        print(f"{kind}: {text}", file=sys.stderr)
