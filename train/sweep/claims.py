"""Who works on which point of a grid, agreed in a folder that several machines share, without a server.

A claim on a point is a file with a number for a name, `claims/POINT/1`; the largest number counts. Its holder renews
the file's modification time while it works, and sets it to 0 when it lets go. Whoever finds the largest number let go,
or unchanged for `silence` seconds, creates the next one with O_EXCL: of any number of workers that try, one succeeds.
Nothing is ever renamed or removed, so what a slow worker found out a while ago cannot mislead it into a claim that
somebody renewed since: it tries to create a number that is there. Silence is judged by watching, each worker by its own
clock, so the machines' clocks may disagree. A holder that could not renew for half of `silence` (it was suspended, or
the folder was away) stops its own run before anybody else can start one.

What must hold: exclusive creation, hard links and modification times work as POSIX says, also between machines (local
disks, NFS 3 and later, Lustre, GPFS, CephFS; not a bucket mounted as a folder), and `silence` is longer than clients
cache file attributes (NFS: at most 60 s) plus a sixth of itself. No lock of the kernel is used: those of one machine
are often not seen on another.
"""

import json
import os
import socket
import uuid
from pathlib import Path
from time import monotonic
from typing import Any

from train.sweep.point import Lost


class Silence:
    """Judges by watching whether somebody has gone."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._seen: dict[str, tuple[Any, float]] = {}

    def of(self, name: str, sign: Any) -> bool:
        """Whether `sign` of `name`, which changes while somebody is there, has been seen unchanged for `seconds`."""
        now = monotonic()
        if name not in self._seen or self._seen[name][0] != sign:
            self._seen[name] = (sign, now)
        return now - self._seen[name][1] > self.seconds


class Renewal:
    """When a holder must show that it is there: every sixth of the silence; after half of it, it no longer may."""

    def __init__(self, silence: float) -> None:
        self._silence, self._last = silence, monotonic()

    def due(self) -> bool:
        """Whether it is time.

        Raises:
          Lost: it is too late.
        """
        late = monotonic() - self._last
        if late > self._silence / 2:
            raise Lost
        return late > self._silence / 6

    def done(self) -> None:
        """Says that the sign was given."""
        self._last = monotonic()


class Claim:
    """One worker's hold on a point."""

    def __init__(self, path: Path, silence: float) -> None:
        self._path, self._renewal = path, Renewal(silence)
        self.attempt = int(path.name)

    def renew(self) -> None:
        """Shows that the holder is there; may be called as often as one likes.

        Raises:
          Lost: another worker has the point, or may have it soon.
        """
        if self._renewal.due():
            try:
                if self._path.with_name(str(self.attempt + 1)).exists():
                    raise Lost
                os.utime(self._path)
                self._renewal.done()
            except FileNotFoundError as error:
                raise Lost from error
            except OSError:
                pass  # the folder may be back in a moment; after too long a moment `due` raises

    def release(self) -> None:
        """Lets go, so that anybody may take the point at once; harmless where the claim is lost already."""
        os.utime(self._path, (0, 0))


def take(folder: Path, silence: Silence) -> Claim | None:
    """Claims the point whose claims are in `folder`; None while somebody else has it."""
    folder.mkdir(parents=True, exist_ok=True)
    latest = latest_claim(folder)
    if latest:
        sign = (folder / str(latest)).stat().st_mtime_ns
        if sign and not silence.of(f"{folder}/{latest}", sign):
            return None
    path = folder / str(latest + 1)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
    except FileExistsError:
        return None
    return Claim(path, silence.seconds)


def latest_claim(folder: Path) -> int:
    """Number of the claim that counts, 0 where there has been none."""
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0)


def write_once(path: Path, value: dict[str, Any]) -> bool:
    """Writes JSON to `path`, whole or not at all, unless the file is there; returns whether this call wrote it."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    draft.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    try:
        path.hardlink_to(draft)
        return True
    except FileExistsError:
        return False
    finally:
        draft.unlink()
