"""What a builder of tensorflow-datasets downloads and unpacks with; its own extractor needs TensorFlow."""

import gzip
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from vaswani.data.corpora import File
from vaswani.data.fetch import fetch
from vaswani.errors import UserError

_TAR = (".tar", ".tar.bz2", ".tar.gz", ".tar.xz", ".tgz")


class Archives:
    """Stands for a DownloadManager of tensorflow-datasets: a download resumes, and has its pinned size and SHA-256.

    Each method but `iter_archive` takes one address or path, or a list or dict of them, also nested.
    """

    def __init__(self, manager: Any, pinned: Mapping[str, File], downloads: Path, unpacked: Path) -> None:
        """Keeps where files go: `downloads` and `unpacked`; `manager` has what else a builder may look for."""
        self._manager = manager
        self._pinned = pinned
        self._downloads = downloads
        self._unpacked = unpacked

    def __getattr__(self, name: str) -> Any:
        """Returns one of the manager's attributes, such as `manual_dir`."""
        return getattr(self._manager, name)

    def download(self, urls: Any) -> Any:
        """Downloads files; returns the same structure with paths instead of addresses.

        Raises:
            UserError: an address has no known SHA-256, or as `fetch`.
        """
        return _each(self._fetch, urls)

    def extract(self, paths: Any) -> Any:
        """Unpacks archives: each becomes a folder, a `.gz` becomes a file, and other files stay as given."""
        return _each(self._unpack, paths)

    def download_and_extract(self, urls: Any) -> Any:
        """Downloads archives and unpacks them, as `download` and `extract`."""
        return self.extract(self.download(urls))

    def iter_archive(self, path: Path) -> Iterator[tuple[str, BinaryIO]]:
        """Yields the files of an archive: their names in it, and the open files."""
        folder = self._unpack(path)
        for member in sorted(folder.rglob("*")):
            if member.is_file():
                with member.open("rb") as file:
                    yield member.relative_to(folder).as_posix(), file

    def _fetch(self, url: str) -> Path:
        if url not in self._pinned:
            raise UserError(f"{url}: tensorflow-datasets has no SHA-256 of it, so it cannot be downloaded safely")
        return fetch(self._pinned[url], self._downloads)

    def _unpack(self, path: Path) -> Path:
        path = Path(path)
        target = self._unpacked / path.name.removesuffix(".gz")
        if target.exists():
            return target
        if path.name.endswith(_TAR):
            with tarfile.open(path) as tar:
                tar.extractall(target, filter="data")  # nothing outside of the folder, no devices
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                archive.extractall(target)  # which drops what leads out of the folder
        elif path.suffix == ".gz":
            with gzip.open(path) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file)
        else:
            return path
        return target


def _each(function: Callable[[Any], Path], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _each(function, value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_each(function, value) for value in tree]
    return function(tree)
