"""Progress of long jobs, on stderr: a bar on a terminal, an occasional plain line in a log."""

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_UPDATES = 0.1


class Progress:
    """Shows how many items a job of unknown size has done, in a `with` statement."""

    def __init__(self, job: str, unit: str, *, enabled: bool = True):
        self._job, self._unit, self._enabled = job, unit, enabled
        self._done, self._summary = 0, ""
        self._started = self._shown = time.monotonic()
        self._bar: Any = None
        if enabled and sys.stderr.isatty():
            from rich.console import Console  # only now: no log needs it
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,} " + unit),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(job, total=None)

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        if self._enabled and error is None:
            self._line(self._summary or f"{self._done:,} {self._unit}")

    def update(self, done: int) -> None:
        """Sets the total number of items done."""
        self._done = done
        now = time.monotonic()
        if self._bar and now - self._shown > _SECONDS_BETWEEN_UPDATES:
            self._bar.update(self._task, completed=done)
            self._shown = now
        elif self._enabled and not self._bar and now - self._shown > _SECONDS_BETWEEN_LINES:
            self._line(f"{done:,} {self._unit} so far")
            self._shown = now

    def finish(self, summary: str) -> None:
        """Sets the text of the last line."""
        self._summary = summary

    def count(self, items: Iterable[T]) -> Iterator[T]:
        """Yields `items` and counts them."""
        for number, item in enumerate(items, 1):
            yield item
            if number % 1024 == 0:
                self.update(number)
            self._done = number

    def _line(self, text: str) -> None:
        seconds = time.monotonic() - self._started
        print(f"{self._job}: {text}, {seconds:.1f} s", file=sys.stderr, flush=True)
