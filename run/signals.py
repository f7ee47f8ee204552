"""Ctrl-C and SIGTERM: finish the step, save, exit; a second Ctrl-C exits at once."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn, TypeVar

from vaswani.command import flush_outputs, importing

T = TypeVar("T")
GRACE = 2.0  # seconds that the main thread has to clean up if nothing needs saving
INTERRUPTED = b"\ninterrupted\n"
HELD = b"\nstopping after this step and its checkpoint (Ctrl-C again to exit at once)\n"
NOTHING_TO_SAVE = b"\nstopping: there is nothing new to save\n"
AGAIN = 0  # no signal's number; asks the watcher to send the signal again


class _Stop(SystemExit):
    """Raised by a signal when the current work may be abandoned. Not an `Exception`, so that few libraries swallow it.

    Python does so itself in callbacks of the garbage collector (jax has one) and of weak references, and in `__del__`.
    `destroyed` is called once nothing holds the exception any more: if the work still goes on, it was swallowed.
    """

    def __init__(self, status: int, destroyed: Callable[[], None]) -> None:
        super().__init__(status)
        self._resend = destroyed

    def __del__(self) -> None:
        self._resend()


class Signals:
    """While active, records a signal in `received` for the loop to check, or ends work that may be abandoned.

    Until `hold` is called there is nothing to save: a signal exits with its status, even during compilation. After
    that the first signal is only recorded, and a second Ctrl-C ends the process at once.

    A signal ends work by an exception. Wherever that is swallowed, and during an import, the signal is sent again.
    If cleaning up what is half made then raises another error, it does not concern the user: the signal's status
    replaces it.

    Args:
      saves: whether the work has something to save once it has made progress; if not, the message on a signal does not
        mention saving.
      single: False in a run of several processes, which must all stop after the same step. SIGTERM is then left to
        the preemption service of `jax.distributed`, Ctrl-C is forwarded to it as SIGTERM, and the caller sets
        `received` from `reached_preemption_sync_point`: no signal acts by itself.
    """

    def __init__(self, single: bool = True, saves: bool = True) -> None:
        self.received: signal.Signals | None = None
        self._single = single
        self._saves = saves
        self._handled = (signal.SIGINT, signal.SIGTERM) if single else (signal.SIGINT,)
        self._may_stop = True  # whether a signal raises `_Stop` in the main thread
        self._raised = False  # whether it has, and the exception is on its way
        self._held = False
        self._left = threading.Event()
        self._main = threading.get_ident()

    def __enter__(self) -> "Signals":
        self._hook_before = sys.unraisablehook
        sys.unraisablehook = self._unraisable_hook
        self._before = {number: signal.signal(number, self._handle) for number in self._handled}
        # Python runs `_handle` in the main thread, which may be busy compiling for minutes; the signal's number is
        # written to this socket at once.
        self._arrivals, arriving = socket.socketpair()
        arriving.setblocking(False)
        self._fd_before = signal.set_wakeup_fd(arriving.fileno(), warn_on_full_buffer=False)
        self._arriving = arriving
        self._watcher = threading.Thread(target=self._watch, name="signals", daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._may_stop = False
        self._left.set()
        signal.set_wakeup_fd(self._fd_before)
        self._arriving.close()
        self._watcher.join()  # before the handlers are restored, since it may be about to send a signal again
        self._arrivals.close()
        for number, handler in self._before.items():
            if handler is not None:  # None: not installed from Python, so it cannot be restored
                signal.signal(number, handler)
        sys.unraisablehook = self._hook_before
        if error is not None and _followed_a_stop(error):
            raise SystemExit(self.exit_code) from None

    @property
    def exit_code(self) -> int:
        """0, or the status that a shell reports for a process ended by the signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 0 if self.received is None else 128 + self.received

    def hold(self) -> None:
        """Declares that there is something to save: from now on signals are only recorded."""
        self._held = True
        self._may_stop = False

    def attempt(self, work: Callable[..., T], *arguments: object) -> T | None:
        """Returns `work(*arguments)`, or None if a signal arrives first; the work is then abandoned.

        `work` must not change anything that is needed afterwards. Only for use after `hold`.
        """
        try:
            try:
                self._may_stop = True
                return None if self.received else work(*arguments)
            finally:
                self._may_stop = False
        except _Stop:  # around both, since it may arrive between the end of the work and the line above
            self._may_stop = False
            return None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._single:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.received = self.received or signal.Signals(number)
        if self._may_stop and importing(frame):
            self._arriving.send(bytes([AGAIN]))
        elif self._may_stop and not self._raised:
            self._raised = True
            raise _Stop(self.exit_code, self._resend)

    def _resend(self) -> None:
        """Has the watcher send the signal again if its exception did not end the work."""
        if self._may_stop:
            self._raised = False
            self._arriving.send(bytes([AGAIN]))

    def _unraisable_hook(self, event: Any) -> None:
        """Is `sys.unraisablehook`, which prints the traceback of a swallowed exception, unless it is ours."""
        if not issubclass(event.exc_type, _Stop):
            self._hook_before(event)

    def _watch(self) -> None:
        """Informs the user, sends the signal again if asked to, and has the process exit if that cannot wait."""
        first = True
        while arrived := self._arrivals.recv(1):
            number = arrived[0]
            if number == AGAIN:
                time.sleep(0.01)  # until the callback that swallowed it has returned, or the import has ended
                if self._may_stop:
                    signal.pthread_kill(self._main, signal.SIGTERM)  # whichever came: a second Ctrl-C exits at once
            if number not in self._handled:  # other parts of the program may handle other signals
                continue
            if not first and number == signal.SIGINT:
                _leave(number)
            if first:
                first = False
                _tell(self._message())
                if self._single and not self._held:
                    threading.Thread(target=self._leave_late, args=(number,), name="grace", daemon=True).start()

    def _message(self) -> bytes:
        if not self._saves:
            return INTERRUPTED
        return HELD if self._held or not self._single else NOTHING_TO_SAVE

    def _leave_late(self, number: int) -> None:
        """Exits if the main thread has not in time, and still has nothing to save."""
        if not (self._left.wait(GRACE) or self._held):
            _leave(number)


def leave(status: int) -> NoReturn:
    """Ends the process at once, for a command whose work a signal has ended and which has closed what it opened.

    A normal exit of the interpreter waits for every thread. One may wait forever: a signal's exception can come
    between the acquisition of a lock and its release, in `threading.Condition.__enter__`. jax's threads may crash.
    """
    flush_outputs()
    os._exit(status)


def _followed_a_stop(error: BaseException) -> bool:
    """Returns whether `error`, which is no stop itself, was raised while one was on its way."""
    if isinstance(error, _Stop):
        return False
    context = error.__context__
    return context is not None and (isinstance(context, _Stop) or _followed_a_stop(context))


def _tell(message: bytes) -> None:
    with suppress(OSError):  # stderr may be closed, which may be why the signal came
        os.write(2, message)


def _leave(number: int) -> None:
    _tell(b"\x1b[?25h" if os.isatty(2) else b"")  # a progress bar hides the cursor
    os._exit(128 + number)
