"""A trace of some updates by jax's profiler, and which operations they spend their time in."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax

from base.errors import UserError

FOLDER = "profile"  # of the run
_SHOWN = 5  # operations


class Profile:
    """Traces updates into `WORKDIR/profile`, for XProf, TensorBoard's profile plugin or Perfetto."""

    def __init__(self, workdir: Path, updates: tuple[int, int] | None, first: int) -> None:
        """Prepares the trace of `updates`, a first and a last one, in a launch whose first update is `first`.

        Raises:
          UserError: the run has already made some of them.
        """
        self._folder = workdir / FOLDER
        self._first, self._last = updates or (0, 0)
        if 0 < self._first < first:
            done = f"this run has made {first - 1} updates already"
            raise UserError(f"--profile={self._first}:{self._last}: {done}; trace later ones, or a new run")
        self._is_tracing = False

    def before(self, step: int, state: Any) -> None:
        """Starts the trace if this update is the first to be traced, after waiting for those before."""
        if step == self._first:
            jax.block_until_ready(state)
            jax.profiler.start_trace(self._folder)
            self._is_tracing = True

    def after(self, step: int, state: Any) -> list[str]:
        """Ends the trace after the last update to be traced; returns what to say about it, line by line."""
        if not (self._is_tracing and step == self._last):
            return []
        jax.block_until_ready(state)
        self.close()
        traces = sorted(self._folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
        shares = "; ".join(f"{name} {share:.1%}" for name, share in largest(traces[-1])[:_SHOWN])
        return [f"profile of updates {self._first} to {step}: {traces[-1].parent}", f"most time: {shares}"]

    def close(self) -> None:
        """Ends a trace that has begun."""
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()


def largest(trace: Path) -> list[tuple[str, float]]:
    """Returns each kind of operation in a trace (`*.xplane.pb`) and its share of all their time, the largest first.

    Operations are XLA's, after fusion; `dot.12` is of the kind `dot`. What runs within another, as the body of a loop
    does, counts for itself only.
    """
    times: defaultdict[str, float] = defaultdict(float)  # nanoseconds
    for plane in jax.profiler.ProfileData.from_file(str(trace)).planes:
        for line in plane.lines:
            events = [event for event in line.events if line.name == "XLA Ops" or _is_operation(event)]
            for event, own in _own_times(events):
                times[re.sub(r"[.\d]+$", "", event.name)] += own
    total = sum(times.values())
    return [(name, times[name] / total) for name in sorted(times, key=times.__getitem__, reverse=True)]


def _is_operation(event: Any) -> bool:
    return any(key == "hlo_op" for key, _ in event.stats)


def _own_times(events: Iterable[Any]) -> list[tuple[Any, float]]:
    """Returns the nanoseconds of each event of a thread without those of the events within it."""
    ordered = sorted(events, key=lambda event: (event.start_ns, -event.duration_ns))
    own: list[float] = [event.duration_ns for event in ordered]
    around: list[int] = []  # the events that are still open, as indices
    for number, event in enumerate(ordered):
        while around and ordered[around[-1]].start_ns + ordered[around[-1]].duration_ns <= event.start_ns:
            around.pop()
        if around:
            own[around[-1]] -= event.duration_ns
        around.append(number)
    return list(zip(ordered, own, strict=True))
