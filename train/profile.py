"""A trace of some steps by jax's profiler, and which operations they spend their time in."""

import gzip
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from vaswani.errors import UserError
from vaswani.run.distributed import is_main
from vaswani.run.uploads import Uploads

FOLDER = "profile"  # of the run
_SHOWN = 5  # operations


class Operation(NamedTuple):
    """One run of an operation on a thread; microseconds."""

    name: str
    start: float
    duration: float


class Profile:
    """Traces steps of process 0 into `WORKDIR/profile`, for XProf, TensorBoard's profile plugin or Perfetto."""

    def __init__(self, uploads: Uploads, steps: tuple[int, int] | None, first: int) -> None:
        """Prepares the trace of `steps`, a first and a last one, in a launch whose first step is `first`.

        If the run has made some of them and has a trace, nothing is traced: the same command must resume it.

        Raises:
          UserError: it has made some of them, and has no trace.
        """
        self._folder = uploads.folder / FOLDER
        self._place = uploads.workdir / FOLDER  # where it is sent
        self._first, self._last = steps or (0, 0)
        if 0 < self._first < first:
            done = f"--profile={self._first}:{self._last}: this run has made {first - 1} steps already"
            if not self._place.is_dir():
                raise UserError(f"{done}; trace later ones, or a new run")
            self._first, self._last = 0, 0
            print(f"note: {done}, and {self._place} has a trace; no other is made", file=sys.stderr)
        self._is_tracing = False

    def before(self, step: int, state: Any) -> None:
        """Starts the trace if this step is the first to be traced, after waiting for those before."""
        if step == self._first and is_main():
            jax.block_until_ready(state)
            jax.profiler.start_trace(self._folder)
            self._is_tracing = True

    def after(self, step: int, state: Any) -> list[str]:
        """Ends the trace after the last step to be traced; returns what to say about it, line by line."""
        if not (self._is_tracing and step == self._last):
            return []
        jax.block_until_ready(state)
        self.close()
        traces = sorted(self._folder.rglob("*.trace.json.gz"), key=lambda path: path.stat().st_mtime)
        shares = "; ".join(f"{name} {share:.1%}" for name, share in largest(traces[-1])[:_SHOWN])
        place = self._place / traces[-1].parent.relative_to(self._folder)
        return [f"profile of steps {self._first} to {step}: {place}", f"most time: {shares}"]

    def close(self) -> None:
        """Ends a trace that has begun."""
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()


def largest(trace: Path) -> list[tuple[str, float]]:
    """Returns each kind of operation in a trace (`*.trace.json.gz`) and its share of all their time, the largest first.

    Operations are XLA's, after fusion; `dot.12` is of the kind `dot`. What runs within another, as the body of a loop
    does, counts for itself only. The file is in Chrome's trace format; jax 0.12 ends the process while it reads the
    other one, `*.xplane.pb`.
    """
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    of_devices = {_thread(event) for event in events if event.get("args", {}).get("name") == "XLA Ops"}  # GPUs and TPUs
    threads: defaultdict[tuple[int, int], list[Operation]] = defaultdict(list)
    for event in events:
        is_complete = event.get("ph") == "X"  # it has a start and a duration
        is_from_xla = "hlo_op" in event.get("args", {}) or _thread(event) in of_devices
        if is_complete and is_from_xla:
            operation = Operation(event["name"], event["ts"], event.get("dur", 0.0))
            threads[_thread(event)].append(operation)
    times: defaultdict[str, float] = defaultdict(float)
    for operations in threads.values():
        for operation, own in _own_times(operations):
            kind = re.sub(r"[.\d]+$", "", operation.name)
            times[kind] += own
    total = sum(times.values())
    return [(name, times[name] / total) for name in sorted(times, key=times.__getitem__, reverse=True)]


def _thread(event: dict[str, Any]) -> tuple[int, int]:
    return event.get("pid", 0), event.get("tid", 0)


def _own_times(operations: Iterable[Operation]) -> list[tuple[Operation, float]]:
    """Returns the microseconds of each operation of a thread, excluding the operations within it."""
    ordered = sorted(operations, key=lambda operation: (operation.start, -operation.duration))
    own = [operation.duration for operation in ordered]
    around: list[int] = []  # the operations that are still open, as indices
    for number, operation in enumerate(ordered):
        while around and ordered[around[-1]].start + ordered[around[-1]].duration <= operation.start:
            around.pop()
        if around:
            own[around[-1]] -= operation.duration
        around.append(number)
    return list(zip(ordered, own, strict=True))
