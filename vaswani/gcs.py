"""Folders in a bucket of Google Cloud Storage, `gs://BUCKET/NAME`, as paths with the methods of `pathlib`.

The paths extend etils', which orbax reads, and the requests are gcsfs', but for one: only the lock needs an object
that is written if nobody else has written it since. An object is written whole or not at all, and never appended to.
Folders are prefixes of names: they need not be made, and exist once they contain something. Every failure that is not
an absent file is a `BucketError`.
"""

import errno
import fnmatch
import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path, PosixPath
from typing import Any

# These libraries read them when they are imported or first used. Otherwise TensorFlow, where it is installed, would be
# loaded to read buckets instead of gcsfs, and gcsfs would ask each bucket whether it is of an experimental kind.
os.environ.setdefault("EPATH_USE_TF", "false")
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

import fsspec
from etils.epath.gpath import PosixGPath

from vaswani.errors import UserError, one_line, pip_install

PREFIX = "gs://"
_BOUNDARY = b"==0=="
_BLOCK = 1 << 25  # bytes of a large object that are read at once


class BucketError(UserError, OSError):
    """A bucket that cannot be read or written; `filename` and `strerror` say which, and why."""

    def __init__(self, path: str, reason: str) -> None:
        OSError.__init__(self, errno.EIO, reason, path)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class BucketPath(PosixGPath, PosixPath):
    """`gs://BUCKET/NAME`; raises `BucketError`, or `FileNotFoundError` for a missing object."""

    # Paths

    def absolute(self) -> "BucketPath":
        return self

    def resolve(self, strict: bool = False) -> "BucketPath":
        return self

    @property
    def parents(self) -> tuple["BucketPath", ...]:
        """The folders that this is in, up to the bucket."""
        return (self.parent, *self.parent.parents) if self._name else ()

    def is_symlink(self) -> bool:
        return False

    # Listing

    def exists(self, **_: Any) -> bool:
        return self._info() is not None

    def is_file(self, **_: Any) -> bool:
        info = self._info()
        return info is not None and info["type"] == "file"

    def is_dir(self, **_: Any) -> bool:
        info = self._info()
        return info is not None and info["type"] == "directory"

    def stat(self, **_: Any) -> os.stat_result:
        info = self._call("info", str(self))
        if info["type"] == "directory":
            return os.stat_result((stat.S_IFDIR, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        written = datetime.fromisoformat(info["updated"]).timestamp()
        return os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, int(info["size"]), written, written, written))

    def generation(self) -> int:
        """Returns the number of this version of the object, another one after each write; 0 if there is no object."""
        info = self._info()
        return int(info["generation"]) if info else 0

    def iterdir(self) -> Iterator["BucketPath"]:
        folders, names = self._list()
        for name in sorted(folders + names):
            yield self / name

    def glob(self, pattern: str, **_: Any) -> Iterator["BucketPath"]:
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str, **_: Any) -> Iterator["BucketPath"]:
        found = (BucketPath(PREFIX + name) for name in self._call("find", str(self)))
        return (path for path in found if fnmatch.fnmatchcase(path.name, pattern))

    def walk(self, **_: Any) -> Iterator[tuple["BucketPath", list[str], list[str]]]:
        """Yields as `vaswani.files.walk`."""
        folders, names = self._list()
        yield self, folders, names
        for name in folders:
            yield from (self / name).walk()

    # Reading and writing

    def read_bytes(self) -> bytes:
        return self._call("cat_file", str(self))

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def open(self, mode: str = "r", **_: Any) -> Any:
        if mode not in ("r", "rb"):
            raise ValueError(f"{self}: an object of a bucket is written whole")
        return self._call("open", str(self), mode, block_size=_BLOCK, cache_type="readahead")

    def write_bytes(self, data: Any) -> int:
        self._call("pipe_file", str(self), bytes(data))
        return len(data)

    def write_text(self, data: str, *_: Any, **__: Any) -> int:
        return self.write_bytes(data.encode())

    def write_over(self, generation: int, data: bytes) -> bool:
        """Writes the object unless it is no longer of this `generation` (0: absent); returns whether it did."""
        # gcsfs can only ask that there be none. One request of two parts, the object's name and its content.
        parts = [json.dumps({"name": self._name}).encode(), data]
        body = b"".join(b"--" + _BOUNDARY + b"\nContent-Type: application/json\n\n" + part + b"\n" for part in parts)
        try:
            self._call(
                "call",
                "POST",
                f"{_files()._location}/upload/storage/v1/b/{{}}/o",  # gcsfs puts the bucket where {} is
                self._bucket,
                uploadType="multipart",
                ifGenerationMatch=str(generation),
                headers={"Content-Type": f'multipart/related; boundary="{_BOUNDARY.decode()}"'},
                data=body + b"--" + _BOUNDARY + b"--",
            )
        except FileExistsError:  # another generation. A request that was sent again may itself have made it.
            return self.read_bytes() == data
        return True

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Does nothing: a folder exists once it contains something."""

    def rmdir(self) -> None:
        """Does nothing: a folder is gone once it is empty."""

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._call("rm_file", str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmtree(self, missing_ok: bool = True) -> None:
        with suppress(FileNotFoundError):
            self._call("rm", str(self), recursive=True)

    def rename(self, target: Any) -> "BucketPath":
        """Copies what is below this folder, and then removes it: a process that is killed meanwhile leaves both."""
        other = BucketPath(target)
        for path in self.rglob("*"):
            self._call("cp_file", str(path), str(other / path.relative_to(self)))
        self.rmtree()
        return other

    # Requests

    @property
    def _bucket(self) -> str:
        return str(self).removeprefix(PREFIX).partition("/")[0]

    @property
    def _name(self) -> str:
        """The name of the object; "" for the bucket itself."""
        return str(self).removeprefix(PREFIX).partition("/")[2]

    def _info(self) -> dict[str, Any] | None:
        """Returns gcsfs' facts about an object or a folder; None if there is neither."""
        with suppress(FileNotFoundError):
            return self._call("info", str(self))
        return None

    def _list(self) -> tuple[list[str], list[str]]:
        """Returns the names of the folders and of the objects in this folder; none if it does not exist."""
        entries: list[dict[str, Any]] = []
        with suppress(FileNotFoundError):
            entries = self._call("ls", str(self), detail=True)
        names: dict[str, list[str]] = {"directory": [], "file": []}
        for entry in entries:
            path = BucketPath(PREFIX + entry["name"])
            if path != self:  # an object of a folder's own name, which consoles make
                names[entry["type"]].append(path.name)
        return names["directory"], names["file"]

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        with translate_errors(self):
            return getattr(_files(), method)(*args, **options)


@contextmanager
def translate_errors(path: BucketPath) -> Iterator[None]:
    """Turns the errors of gcsfs into a `BucketError`; a missing or a newer object, into Python's own error."""
    try:
        yield
    except FileExistsError:
        raise
    except FileNotFoundError as error:
        if str(error).endswith(f"b/{path._bucket}/o"):  # the request for a list, which may be empty
            raise BucketError(str(path), f"there is no bucket {path._bucket}") from error
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except Exception as error:
        raise BucketError(str(path), _reason(error)) from error


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
    """Returns gcsfs; it caches no listing of a folder, because other machines also write there."""
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
