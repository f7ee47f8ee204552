"""Progress of long jobs, on stderr: a bar on a terminal, an occasional plain line in a log."""

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from rich import progress as rich
from rich.console import Console

from vaswani.errors import is_library
from vaswani.numbers import pluralize

T = TypeVar("T")
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_UPDATES = 0.1
_LONGEST_JOB = 32  # characters of a job's name: with it count, bar and time fit into 80 columns

_display: Any = None  # the `rich.progress.Progress` on the terminal, of which there can be one


class Bar:
    """A bar while a job runs, if stderr is a terminal, with lines of text above it; elsewhere only these lines.

    A job of known size shows how much of it is done and the time remaining, one of unknown size the number of items
    and the time elapsed. A bar that starts while another is shown is a row below it, and disappears when it ends.
    """

    def __init__(
        self,
        job: str,
        unit: str = "",
        *,
        total: int | None = None,
        done: int = 0,
        stays: bool = False,
        enabled: bool = True,
    ):
        """Prepares the bar, which appears at `start`; of `total` items `done` are done already.

        With `stays` it remains on the terminal at the end.
        """
        self._enabled = enabled and not is_library()
        self.is_shown = self._enabled and sys.stderr.isatty()
        self._job = job if len(job) <= _LONGEST_JOB else f"{job[: _LONGEST_JOB - 1]}…"
        self._unit = unit
        self._total = total
        self._done = done
        self._stays = stays
        self._is_outermost = False

    def start(self) -> None:
        """Shows the bar."""
        global _display
        if not self.is_shown:
            return
        self._is_outermost = _display is None
        if _display is None:
            _display = _new_display(transient=not self._stays)
        self._task = _display.add_task(self._job, total=self._total, completed=self._done, unit=self._unit)
        if self._is_outermost:
            _display.start()

    def stop(self) -> None:
        """Leaves the bar as it is, or removes it unless it stays."""
        global _display
        if not self.is_shown or _display is None:
            return
        if self._is_outermost:
            _display.stop()
            _display = None
        else:
            _display.remove_task(self._task)

    def update(self, done: int) -> None:
        """Sets the total number of items done."""
        if self.is_shown and _display is not None:
            _display.update(self._task, completed=done)

    def message(self, text: str) -> None:
        """Prints a line, above the bar if there is one."""
        if self.is_shown and _display is not None:
            _display.console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)
        elif self._enabled:
            print(text, file=sys.stderr, flush=True)


def _new_display(transient: bool) -> Any:
    """Returns the display of all bars, one row each: job, count, bar and time."""

    class Count(rich.ProgressColumn):
        def render(self, task: rich.Task) -> str:
            if task.total is None:
                return pluralize(int(task.completed), task.fields["unit"])
            total = f"{task.total:,.0f}"
            return f"{task.completed:>{len(total)},.0f}/{total}"

    class Time(rich.ProgressColumn):
        def render(self, task: rich.Task) -> Any:
            return (elapsed if task.total is None else remaining).render(task)

    elapsed = rich.TimeElapsedColumn()
    remaining = rich.TimeRemainingColumn()
    job = rich.TextColumn("{task.description}", markup=False)
    columns = (job, Count(), rich.BarColumn(bar_width=20), Time())
    return rich.Progress(*columns, console=Console(stderr=True), transient=transient, refresh_per_second=2)


class Progress:
    """Shows how many items a job has done, in a `with` statement, and if `total` is given, of how many."""

    def __init__(
        self, job: str, unit: str, *, total: int | None = None, is_summarised: bool = True, enabled: bool = True
    ):
        """Prepares the bar; with `is_summarised` a line on stderr says at the end what was done."""
        self._job = job
        self._unit = unit
        self._total = total
        self._is_summarised = is_summarised
        self._enabled = enabled and not is_library()
        self._done = 0
        self._summary = ""
        self._started = time.monotonic()
        self._shown = self._started
        self._bar = Bar(job, unit, total=total, enabled=enabled)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._enabled and self._is_summarised and error is None:
            self._line(self._summary or pluralize(self._done, self._unit))

    def update(self, done: int) -> None:
        """Sets the total number of items done."""
        self._done = done
        now = time.monotonic()
        elapsed = now - self._shown
        if self._bar.is_shown and elapsed > _SECONDS_BETWEEN_UPDATES:
            self._bar.update(done)
            self._shown = now
        elif self._enabled and not self._bar.is_shown and elapsed > _SECONDS_BETWEEN_LINES:
            if self._total is None:
                self._line(f"{pluralize(done, self._unit)} so far")
            else:
                self._line(f"{done:,} of {pluralize(self._total, self._unit)} so far")
            self._shown = now

    def finish(self, summary: str) -> None:
        """Sets the text of the last line."""
        self._summary = summary

    def count(self, items: Iterable[T]) -> Iterator[T]:
        """Yields `items` and counts them."""
        for number, item in enumerate(items, self._done + 1):
            yield item
            self.update(number)

    def _line(self, text: str) -> None:
        seconds = time.monotonic() - self._started
        print(f"{self._job}: {text}, {seconds:.1f} s", file=sys.stderr, flush=True)
