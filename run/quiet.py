"""Errors of orbax and its storage told once: by the exception, not also in pages that they print from their threads."""

import gc
import logging
import os
import re
import sys
import threading
from types import TracebackType
from typing import Any

from absl import logging as absl_logging

_ORBAX = f"{os.sep}orbax{os.sep}"


class Quiet:
    """Until it is closed, or left as a `with` statement, no coroutine of orbax's that is given up is told of.

    Where one array cannot be read or written, the others in flight fail as well; python would print a page about each
    when it collects them, and orbax's threads another. Either may come after the error has been reported, so that what
    they log, and abandoned tasks, which only orbax has here, stay silent to the end of the process. With
    `--verbosity=0` or more all is shown.
    """

    def __init__(self) -> None:
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        absl_logging.get_absl_logger().addFilter(_not_orbaxs)
        logging.getLogger("asyncio").addFilter(_not_abandoned)

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Python prints again what goes wrong where no one can catch it."""
        gc.collect()
        sys.unraisablehook = self._hook

    def _unraisable(self, unraisable: Any) -> None:
        code = getattr(unraisable.object, "cr_code", None)  # of a coroutine
        abandoned = unraisable.object is None or (code is not None and _ORBAX in code.co_filename)
        if _verbose() or not abandoned:
            self._hook(unraisable)


def _not_orbaxs(record: logging.LogRecord) -> bool:
    return _verbose() or _ORBAX not in record.pathname


def _not_abandoned(record: logging.LogRecord) -> bool:
    return _verbose() or "exception was never retrieved" not in record.getMessage()


def _verbose() -> bool:
    return absl_logging.get_verbosity() > absl_logging.WARNING


def leave_within(seconds: float, status: int) -> None:
    """Ends the process with `status` then, if it has not ended before.

    Where a save fails, other threads of orbax's wait five minutes for files that never come, and Python for them.
    """
    timer = threading.Timer(seconds, os._exit, [status])
    timer.daemon = True
    timer.start()


def reason(error: Exception) -> str:
    """A few words on why reading or writing failed: the system's own, where it was the system that refused."""
    code = re.search(r"os_error_code='(\d+)'", str(error))  # as tensorstore ends its messages
    if code:
        return os.strerror(int(code[1]))
    return (getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__))[:120]
