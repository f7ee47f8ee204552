"""A lock that allows only one training process per folder."""

import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.files import in_bucket, read_bytes

NAME = "lock"
_ATTEMPTS = 5
_PAUSE = 0.05  # seconds between them
# Once, for the name of a machine may change while it trains.
_HOST = socket.gethostname()
_SINCE = datetime.now(UTC).isoformat(timespec="microseconds")


@contextmanager
def lock(workdir: Path) -> Iterator[None]:
    """Holds `workdir/lock` for this process inside a `with` statement; readers of the run take no lock.

    The kernel releases it however the process ends, so a lock is never stale; the file stays and names the process that
    held it last. The lock is reliable on one machine, and on NFS 4 if the server supports locks. On a file system
    without locks (some network mounts, buckets mounted with gcsfuse) a note on stderr says so, and a second process is
    only noticed afterwards, by `check_ours`. A run in a bucket (gs://) belongs to the process that started last, since
    the one before may be gone with its machine; if it is not, it notices that in the same way.

    Raises:
      UserError: another process holds it; the message says which, and since when.
      OSError: the file cannot be written.
    """
    if in_bucket(workdir):
        _take_over(workdir / NAME)
        yield
        return
    with (workdir / NAME).open("a+", encoding="utf-8") as file:
        try:
            _take(file)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise UserError(
                f"--workdir={workdir}: another process is training in this folder ({holder}); wait for it, stop it, "
                "or use another --workdir"
            ) from error
        except OSError as error:
            print(f"note: {workdir} cannot be locked ({error.strerror}): run only one training in it", file=sys.stderr)
        file.truncate(0)
        file.write(_identity())
        file.flush()
        yield


def _take_over(file: Any) -> None:
    """Writes this process's name into the lock of a bucket: each one that does so has seen the one before."""
    while not file.write_over(file.generation(), _identity().encode()):
        time.sleep(_PAUSE)


def _take(file: Any) -> None:
    """Takes the lock; `is_held` of another process may hold it for a moment, on NFS for a while."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_PAUSE)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(workdir: Path) -> bool:
    """Returns whether a process is training in `workdir`, as far as this machine's locks tell; False in a bucket.

    It tries the lock, and holds it no longer than that takes.
    """
    if in_bucket(workdir):
        return False
    try:
        with (workdir / NAME).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock file, or the file system has no locks
        return False
    return False


def check_ours(workdir: Path) -> None:
    """Raises a `UserError` if another process has started training in `workdir` since this one did."""
    try:
        holder = read_bytes(workdir / NAME).decode(errors="replace").strip()
    except UserError:  # a bucket that does not answer
        raise
    except OSError:  # there is no lock file
        return
    if holder and holder != _identity():
        raise UserError(
            f"--workdir={workdir}: another process has started training in this folder ({holder}), "
            "whose file system has no locks to prevent it; this process stops now without saving"
        )


def _identity() -> str:
    return f"pid {os.getpid()} on {_HOST} since {_SINCE}"
