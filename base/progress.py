"""Progress of long jobs, on stderr: a bar on a terminal, an occasional plain line in a log."""

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_UPDATES = 0.1


class Bar:
    """A bar while a job runs, if stderr is a terminal, with lines of text above it; elsewhere only these lines.

    A job of known size shows how much of it is done, a note, and the time remaining; its bar stays at the end. A job of
    unknown size shows the number of items and the time elapsed; its bar disappears.
    """

    def __init__(self, job: str, unit: str = "", *, total: int | None = None, done: int = 0, enabled: bool = True):
        """Prepares the bar, which appears at `start`; of `total` items `done` are done already."""
        self.is_shown = enabled and sys.stderr.isatty()
        self._enabled = enabled
        if not self.is_shown:
            return
        from rich import progress as rich  # only now: no log needs it
        from rich.console import Console

        console = Console(stderr=True)
        columns: tuple[rich.ProgressColumn, ...]
        if total is None:
            job_name = rich.TextColumn("{task.description}")
            count = rich.TextColumn("{task.completed:,} " + unit)
            columns = (job_name, rich.BarColumn(), count, rich.TimeElapsedColumn())
            self._bar = rich.Progress(*columns, console=console, transient=True)
        else:
            note = rich.TextColumn("{task.fields[note]}")
            columns = (rich.MofNCompleteColumn(), rich.BarColumn(bar_width=20), note, rich.TimeRemainingColumn())
            self._bar = rich.Progress(*columns, console=console, refresh_per_second=2)
        self._task = self._bar.add_task(job, total=total, completed=done, note="")

    def start(self) -> None:
        """Shows the bar."""
        if self.is_shown:
            self._bar.start()

    def stop(self) -> None:
        """Leaves the bar as it is, or removes it if the size of the job is unknown."""
        if self.is_shown:
            self._bar.stop()

    def update(self, done: int) -> None:
        """Sets the total number of items done."""
        if self.is_shown:
            self._bar.update(self._task, completed=done)

    def note(self, text: str) -> None:
        """Sets the text beside the bar of a job of known size."""
        if self.is_shown:
            self._bar.update(self._task, note=text)

    def message(self, text: str) -> None:
        """Prints a line, above the bar if there is one."""
        if self.is_shown:
            self._bar.console.print(text, highlight=False, markup=False)
        elif self._enabled:
            print(text, file=sys.stderr, flush=True)


class Progress:
    """Shows how many items a job of unknown size has done, in a `with` statement."""

    def __init__(self, job: str, unit: str, *, enabled: bool = True):
        self._job = job
        self._unit = unit
        self._enabled = enabled
        self._done = 0
        self._summary = ""
        self._started = time.monotonic()
        self._shown = self._started
        self._bar = Bar(job, unit, enabled=enabled)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._enabled and error is None:
            self._line(self._summary or f"{self._done:,} {self._unit}")

    def update(self, done: int) -> None:
        """Sets the total number of items done."""
        self._done = done
        now = time.monotonic()
        elapsed = now - self._shown
        if self._bar.is_shown and elapsed > _SECONDS_BETWEEN_UPDATES:
            self._bar.update(done)
            self._shown = now
        elif self._enabled and not self._bar.is_shown and elapsed > _SECONDS_BETWEEN_LINES:
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
