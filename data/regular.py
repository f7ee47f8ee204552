"""Reads regular files of a bounded size: a device or a pipe in a file's place may never end."""

import errno
import os
import stat
from pathlib import Path

LARGEST = 1 << 28  # bytes of a file that is read whole: tokenizers and settings are far smaller


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file; never waits, as opening a pipe would.

    Raises:
      OSError: it cannot be read, is not a regular file, or is larger than `LARGEST`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EOVERFLOW, f"larger than {LARGEST >> 20} MiB", str(path))
    return content
