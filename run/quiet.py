"""Errors of orbax and its storage reported once: by the exception, not also in pages printed from their threads."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """Prints no traceback of what orbax and tensorstore abandon inside the `with` statement.

    Without it a full disk prints a page for each array in flight, besides the one-line error: their callbacks find the
    event loop closed, and Python reports that to `sys.unraisablehook`, the only place where it can be stopped. What
    orbax logs at the same time is held back by the log level that `base.errors.run` sets.
    """
    hook = sys.unraisablehook

    def unraisable(event: Any) -> None:
        code = getattr(event.object, "cr_code", None)  # of a coroutine
        abandoned = event.object is None or (code is not None and f"{os.sep}orbax{os.sep}" in code.co_filename)
        if not abandoned:
            hook(event)

    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        gc.collect()
        sys.unraisablehook = hook


def reason(error: Exception) -> str:
    """Returns a few words on why reading or writing failed: the system's own, where it was the system that refused."""
    code = re.search(r"os_error_code='(\d+)'", str(error))  # as tensorstore ends its messages
    if code:
        return os.strerror(int(code[1]))
    return (getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__))[:120]
