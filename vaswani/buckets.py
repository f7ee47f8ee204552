"""Folders in a bucket of Google Cloud Storage, `gs://BUCKET/NAME`, as paths with the methods of `pathlib`.

An object is written whole or not at all, and never appended to or renamed. Folders are prefixes of names: they need
not be made, and are there once something is in them. Every failure that is not an absent file is a `BucketError`.
"""

import errno
import fnmatch
import io
import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path, PosixPath
from typing import Any

# These libraries read them when they are imported or first used. TensorFlow, where it is installed, would be loaded to
# read buckets in place of gcsfs, and gcsfs would ask each bucket whether it is of an experimental kind.
os.environ.setdefault("EPATH_USE_TF", "false")
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

import fsspec
from etils.epath.gpath import PosixGPath

from vaswani.errors import UserError, one_line
from vaswani.extras import pip_install

PREFIX = "gs://"
_AT_ONCE = 32  # requests
_BOUNDARY = b"==0=="
_BLOCK = 1 << 25  # bytes of a large object that are read at once


class BucketError(UserError, OSError):
    """A bucket that cannot be read or written; `filename` and `strerror` say which, and why."""

    def __init__(self, path: str, reason: str) -> None:
        OSError.__init__(self, errno.EIO, reason, path)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class BucketPath(PosixGPath, PosixPath):
    """`gs://BUCKET/NAME`; raises `BucketError`, or `FileNotFoundError` of an object that is not there."""

    @property
    def _bucket(self) -> str:
        return str(self).removeprefix(PREFIX).partition("/")[0]

    @property
    def _name(self) -> str:
        """The name of the object, "" of the bucket itself."""
        return str(self).removeprefix(PREFIX).partition("/")[2]

    # Paths

    def absolute(self) -> "BucketPath":
        return self

    @property
    def parents(self) -> tuple["BucketPath", ...]:
        """The folders that this is in, up to the bucket."""
        return (self.parent, *self.parent.parents) if self._name else ()

    def resolve(self, strict: bool = False) -> "BucketPath":
        return self

    def expanduser(self) -> "BucketPath":
        return self

    def is_symlink(self) -> bool:
        return False

    def samefile(self, other: str | os.PathLike[str]) -> bool:
        return str(self) == os.fspath(other)

    # What is there

    def exists(self, **_: Any) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self, **_: Any) -> bool:
        return self._metadata() is not None

    def is_dir(self, **_: Any) -> bool:
        names, folders = self._listed(most=1)
        return bool(names or folders)

    def stat(self, **_: Any) -> os.stat_result:
        found = self._metadata()
        if found is None:
            if self._name and not self.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
            return os.stat_result((stat.S_IFDIR, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        written = datetime.fromisoformat(found["updated"]).timestamp()
        return os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, int(found["size"]), written, written, written))

    def iterdir(self) -> Iterator["BucketPath"]:
        names, folders = self._listed("/")
        for name in sorted({*names, *folders}):
            yield self / name

    def glob(self, pattern: str, **_: Any) -> Iterator["BucketPath"]:
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str, **_: Any) -> Iterator["BucketPath"]:
        names, _folders = self._listed()
        return (self / name for name in names if fnmatch.fnmatchcase(name.rpartition("/")[2], pattern))

    def walk(self, **_: Any) -> Iterator[tuple["BucketPath", list[str], list[str]]]:
        """Yields as `vaswani.files.walk`: all folders of a level, which are listed together, before those below."""
        level = [self]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            while level:
                below: list[BucketPath] = []
                listings = threads.map(lambda folder: folder._listed("/"), level)
                for folder, (names, folders) in zip(level, listings, strict=True):
                    yield folder, folders, names
                    below += [folder / name for name in folders]
                level = below

    def generation(self) -> int:
        """Returns the number of this version of the object, another one after each write; 0 if there is no object."""
        found = self._metadata()
        return 0 if found is None else int(found["generation"])

    # Reading and writing

    def read_bytes(self) -> bytes:
        return self._call(lambda: _files().cat_file(str(self)))

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def open(self, mode: str = "r", **_: Any) -> Any:
        if mode not in ("r", "rb"):
            raise io.UnsupportedOperation(f"{self}: an object of a bucket is written whole")
        opened = self._call(lambda: _files().open(str(self), "rb", block_size=_BLOCK, cache_type="readahead"))
        reader = io.BufferedReader(opened)
        return reader if mode == "rb" else io.TextIOWrapper(reader, encoding="utf-8")

    def write_bytes(self, data: Any) -> int:
        self._call(lambda: _files().pipe_file(str(self), bytes(data)))
        return len(data)

    def write_text(self, data: str, *_: Any, **__: Any) -> int:
        return self.write_bytes(data.encode())

    def write_over(self, generation: int, data: bytes) -> bool:
        """Writes the object unless it is no longer of this `generation` (0: absent); returns whether it did."""
        # One request of two parts, the object's name and its content.
        parts = [json.dumps({"name": self._name}).encode(), data]
        body = b"".join(b"--" + _BOUNDARY + b"\nContent-Type: application/json\n\n" + part + b"\n" for part in parts)

        def upload() -> bool:
            try:
                _files().call(
                    "POST",
                    f"{_files()._location}/upload/storage/v1/b/{{}}/o",
                    self._bucket,
                    uploadType="multipart",
                    ifGenerationMatch=str(generation),
                    headers={"Content-Type": f'multipart/related; boundary="{_BOUNDARY.decode()}"'},
                    data=body + b"--" + _BOUNDARY + b"--",
                )
            except FileExistsError:  # another generation. A request that was sent again may itself have made it.
                return self.read_bytes() == data
            return True

        return self._call(upload)

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Does nothing: a folder is there once something is in it."""

    def rmdir(self) -> None:
        """Does nothing: a folder is gone once nothing is in it."""

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._call(lambda: _files().call("DELETE", "b/{}/o/{}", self._bucket, self._name))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmtree(self, missing_ok: bool = True) -> None:
        self.map(lambda path: path.unlink(missing_ok=True), self.rglob("*"))

    def rename(self, target: Any) -> "BucketPath":
        """Copies what is below this folder, and then removes it: a process that is killed meanwhile leaves both."""
        other = BucketPath(target)
        self.map(lambda path: (other / path.relative_to(self)).write_bytes(path.read_bytes()), self.rglob("*"))
        self.rmtree()
        return other

    @staticmethod
    def map(work: Callable[["BucketPath"], Any], paths: Iterator["BucketPath"]) -> None:
        """Calls `work` on each of the paths, many at a time."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for _ in threads.map(work, paths):
                pass

    # Requests

    def _metadata(self) -> dict[str, Any] | None:
        if not self._name:
            return None
        try:
            return self._call(lambda: _files().call("GET", "b/{}/o/{}", self._bucket, self._name, json_out=True))
        except FileNotFoundError:
            return None

    def _listed(self, delimiter: str | None = None, most: int | None = None) -> tuple[list[str], list[str]]:
        """Returns the names below this folder, and with a delimiter those of the folders in it, relative to it."""
        prefix = f"{self._name}/" if self._name else ""
        names: list[str] = []
        folders: list[str] = []
        page = None
        while True:
            listed = self._page(prefix=prefix, delimiter=delimiter, maxResults=most, pageToken=page)
            names += [item["name"].removeprefix(prefix) for item in listed.get("items", [])]
            folders += [name.removeprefix(prefix).rstrip("/") for name in listed.get("prefixes", [])]
            page = listed.get("nextPageToken")
            if page is None or most is not None:
                return [name for name in names if name and not name.endswith("/")], folders

    def _page(self, **options: Any) -> dict[str, Any]:
        asked = {name: str(value) for name, value in options.items() if value is not None}
        try:
            return self._call(lambda: _files().call("GET", "b/{}/o", self._bucket, json_out=True, **asked))
        except FileNotFoundError as error:
            raise BucketError(str(self), f"there is no bucket {self._bucket}") from error

    def _call(self, request: Callable[[], Any]) -> Any:
        with explained(str(self)):
            return request()


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns the errors of a bucket's libraries into a `BucketError`, or one of an absent file into Python's own."""
    try:
        yield
    except BucketError:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except Exception as error:
        raise BucketError(path, _reason(error)) from error


def _reason(error: Exception) -> str:
    """Returns in a line why a request failed, and what helps."""
    said = one_line(str(error).splitlines()[-1] if str(error) else type(error).__name__)[:200]
    if getattr(error, "code", None) in (401, "401"):
        return (
            f"Google does not accept the credentials ({said}): run gcloud auth application-default login, or give the "
            "machine a service account"
        )
    if str(error).startswith("Forbidden"):
        return f"permission denied ({said}): the account needs the role Storage Object User on the bucket"
    return f"the bucket cannot be reached ({said})"


@cache
def _files() -> Any:
    """Returns gcsfs; it keeps no list of what is in a folder, for other machines write there, too."""
    for name in ("gcsfs", "google.auth"):  # they print what is raised as well
        logging.getLogger(name).setLevel(logging.CRITICAL)
    fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False  # also where orbax asks etils
    try:
        return fsspec.filesystem("gcs")
    except ImportError as error:
        raise UserError(f"{PREFIX}: the package gcsfs is not installed; {pip_install('gcs')}") from error


def bucket_path(text: str) -> Path:
    """Returns the path of a folder or an object in a bucket.

    Raises:
      UserError: there is no bucket's name in it, or gcsfs is not installed.
    """
    path = BucketPath(text)
    if not path._bucket:
        raise UserError(f"{text}: name a bucket: gs://BUCKET/FOLDER")
    _files()
    return path
