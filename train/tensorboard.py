"""A run's metrics for TensorBoard: a file of scalars in `WORKDIR/tensorboard` for each launch."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def _without(library: str) -> Iterator[None]:
    """Makes the import of a library fail, unless it was imported before."""
    hide = library not in sys.modules
    if hide:
        sys.modules[library] = None  # type: ignore[assignment]  # as the import system's documentation says
    try:
        yield
    finally:
        if hide:
            del sys.modules[library]


# tensorboardX would import it for one type hint, which takes longer than all else that training imports.
with _without("torch"):
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.record_writer import directory_check
    from tensorboardX.summary import scalar

_SECONDS_BETWEEN_FLUSHES = 30.0


class EventFile:
    """Writes TensorBoard scalars in the calling thread: tensorboardX's own thread hangs forever on a full disk."""

    def __init__(self, folder: Path, first: int) -> None:
        """Creates a file in `folder`, which is created if absent, for the records from step `first` on."""
        directory_check(str(folder))
        self._writer = EventsWriter(str(folder / "events"))
        # Makes TensorBoard hide what earlier launches wrote about this step and later ones.
        self._writer.write_event(Event(step=first, session_log=SessionLog(status=SessionLog.START)))
        self._flushed_at = time.monotonic()

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Writes the metrics of a step by their names, such as "train/loss"."""
        for name, value in metrics.items():
            summary = scalar(name, value)
            self._writer.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        if time.monotonic() > self._flushed_at + _SECONDS_BETWEEN_FLUSHES:
            self._writer.flush()  # which waits for the disk
            self._flushed_at = time.monotonic()

    def flush(self) -> None:
        """Writes what is left to the file."""
        self._writer.flush()

    def close(self) -> None:
        """Writes what is left and closes the file."""
        self._writer.close()
