"""One training process to a folder: the second is refused."""

import fcntl
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from base.errors import UserError

NAME = "lock"
_SINCE = datetime.now(UTC).isoformat(timespec="microseconds")


@contextmanager
def lock(workdir: Path) -> Iterator[None]:
    """Holds `workdir/lock` for this process inside a `with` statement; readers of the run take no lock.

    The kernel releases it when the process ends, however it ends, so no stale lock is left; the file stays, and says
    which process held it last. On one machine, and on NFS 4 where the server supports locks, this is exact. Where the
    file system has no locks (some network mounts, buckets mounted by gcsfuse) a note on stderr says so, and a second
    process is only noticed afterwards, by `other_holder`.

    Raises:
      UserError: another process holds it; the message says which one, and since when.
      OSError: the file cannot be written.
    """
    with (workdir / NAME).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise UserError(
                f"--workdir={workdir}: another process is training in this folder ({holder}); wait for it, stop it, "
                "or use another --workdir"
            ) from error
        except OSError as error:
            print(
                f"note: {workdir} cannot be locked ({error.strerror}): train in it only once at a time", file=sys.stderr
            )
        file.truncate(0)
        file.write(_identity())
        file.flush()
        yield


def other_holder(workdir: Path) -> str | None:
    """Returns which other process has begun to train in `workdir` since this one did; None if none has."""
    try:
        holder = (workdir / NAME).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # nobody has locked it
        return None
    return holder if holder and holder != _identity() else None


def _identity() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()} since {_SINCE}"
