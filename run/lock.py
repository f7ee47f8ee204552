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


@contextmanager
def lock(workdir: Path) -> Iterator[None]:
    """Holds `workdir/lock` for this process inside a `with` statement; readers of the run take no lock.

    The kernel lets go of it when the process ends, however it ends, so no lock is ever left behind; the file stays. On
    one machine, and on NFS 4 where the server passes locks on, it is exact. Where the file system has no locks (some
    network mounts, buckets mounted by gcsfuse) a line on stderr says that nobody guards the folder.

    Raises:
      UserError: another process holds it; the message says which one, and since when.
      OSError: the file cannot be written.
    """
    with (workdir / NAME).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "it has not said which"
            raise UserError(
                f"--workdir={workdir}: another process is training in this folder ({holder}); wait for it, stop it, "
                "or use another --workdir"
            ) from error
        except OSError as error:
            print(
                f"note: {workdir} cannot be locked ({error.strerror}): train in it only once at a time", file=sys.stderr
            )
        file.truncate(0)
        file.write(
            f"pid {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC).isoformat(timespec='seconds')}"
        )
        file.flush()
        yield
