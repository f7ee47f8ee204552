"""A trace of some steps by jax's profiler."""

import sys
from typing import Any

import jax

from vaswani.errors import UserError
from vaswani.run.distributed import is_main
from vaswani.run.uploads import Uploads

FOLDER = "profile"  # of the run


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

    def after(self, step: int, state: Any) -> str:
        """Ends the trace after the last step to be traced; returns what to say about it, or ""."""
        if not (self._is_tracing and step == self._last):
            return ""
        jax.block_until_ready(state)
        self.close()
        return f"profile of steps {self._first} to {step}: {self._place}"

    def close(self) -> None:
        """Ends a trace that has begun."""
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()
