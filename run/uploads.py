"""The files of a run that grow while it trains; nothing can be appended to an object of a bucket."""

import tempfile
from pathlib import Path

from vaswani.files import in_bucket
from vaswani.run.lock import check_ours


class Uploads:
    """Has the folder that such files are written in: the run's own, or for one in a bucket a folder of this machine.

    `send` uploads what has changed since. A machine that is lost loses what was written after the last time.
    """

    def __init__(self, workdir: Path) -> None:
        """Makes the folder of this machine, if the run is in a bucket."""
        self.workdir = workdir
        self.folder = workdir
        self._sent: dict[Path, int] = {}  # size of each file
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if in_bucket(workdir):
            self._temporary = tempfile.TemporaryDirectory(prefix="vaswani-")
            self.folder = Path(self._temporary.name)

    def send(self) -> None:
        """Uploads the files that have grown.

        Raises:
          UserError: another process trains in the folder now, or the bucket cannot be written.
        """
        if self._temporary is None:
            return
        sizes = {path: path.stat().st_size for path in sorted(self.folder.rglob("*")) if path.is_file()}
        grown = [path for path, size in sizes.items() if self._sent.get(path) != size]
        if grown:
            check_ours(self.workdir)
        for path in grown:
            (self.workdir / path.relative_to(self.folder)).write_bytes(path.read_bytes())
            self._sent[path] = sizes[path]

    def close(self) -> None:
        """Removes the folder of this machine."""
        if self._temporary:
            self._temporary.cleanup()
