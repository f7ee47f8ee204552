"""Ctrl-C while a command starts, or imports a module: an extension module that is interrupted may crash the process."""

import signal
import sys
from types import FrameType


def while_starting() -> None:
    """Has Ctrl-C end the process at once, without a traceback, if `python -m` is about to run a module of the caller.

    `vaswani.command.run` ends this. To be called by a package's `__init__`; an import in any other way changes nothing.
    """
    if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def while_running() -> None:
    """Has Ctrl-C raise `KeyboardInterrupt`, or during an import end the process, unless Ctrl-C is ignored."""
    if signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.default_int_handler):
        signal.signal(signal.SIGINT, _interrupt)


def importing(frame: FrameType | None) -> bool:
    """Returns whether a module is being imported in this frame, or in one that waits for it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _interrupt(number: int, frame: FrameType | None) -> None:
    if importing(frame):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    raise KeyboardInterrupt
