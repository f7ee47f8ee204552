"""Ctrl-C and SIGTERM: finish the update, save, leave; a second Ctrl-C leaves at once."""

import os
import signal
import sys
from types import FrameType, TracebackType


class Signals:
    """While active, the first SIGINT or SIGTERM only sets `received`; a second SIGINT ends the process."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __enter__(self) -> "Signals":
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """0, or as a shell reports a process that the signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
        return 0 if self.received is None else 128 + self.received

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        self.received = self.received or signal.Signals(number)
        # os.write: print is not safe inside a handler that may have interrupted another print
        os.write(sys.stderr.fileno(), b"\nstopping after this update and its checkpoint (Ctrl-C again: at once)\n")
