"""Silences the pages that threads of orbax and tensorstore print about errors which are also raised."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses tracebacks of operations that orbax and tensorstore abandon inside the `with` statement.

    Without it a full disk prints a page for each array in flight, besides the one-line error: their callbacks find the
    event loop closed, and Python reports that to `sys.unraisablehook`, the only place to intercept it. What orbax logs
    at the same time is suppressed by the log level that `vaswani.command.run` sets.
    """
    hook = sys.unraisablehook

    def unraisable(event: Any) -> None:
        code = getattr(event.object, "cr_code", None)  # coroutines have it
        is_coroutine_of_orbax = code is not None and f"{os.sep}orbax{os.sep}" in code.co_filename
        is_abandoned = event.object is None or is_coroutine_of_orbax
        if not is_abandoned:
            hook(event)

    sys.unraisablehook = unraisable
    try:
        yield
    except BaseException:
        gc.collect()  # what was abandoned, now; after success there is nothing, and this is slow where jax is loaded
        raise
    finally:
        sys.unraisablehook = hook


def reason(error: Exception) -> str:
    """Returns in a few words why reading or writing failed: the operating system's message, if there is one."""
    message = str(error)
    code = re.search(r"os_error_code='(\d+)'", message)  # as tensorstore ends its messages
    if code:
        return os.strerror(int(code[1]))
    lines = message.splitlines()
    first_line = lines[0] if lines else type(error).__name__
    text = getattr(error, "strerror", None) or first_line
    return text[:120]
