"""Files: paths that users give, reading what is regular, atomic writes, and SHA-256.

Every fault is a one-line error. Files are read if they are regular: a device or a pipe in their place may never end.
What belongs to a run may be in a bucket (gs://); its path is then a `vaswani.gcs.BucketPath`.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vaswani.errors import UserError

LARGEST = 1 << 28  # bytes of a file that is read whole: ours are far smaller
BUILTIN = "builtin:"  # begins the name of a bundled run (`run.builtin`)
_DRAFTED = 50  # characters of a file's name in its draft's name, which must not be too long where the name is not


def folder(flag: str, path: str | Path) -> Path:
    """Returns the folder that the flag `--FLAG` names, on a disk or in a bucket; it need not exist.

    Raises:
      UserError: as `place`.
    """
    return place(path, f"--{flag}={path}")


def folders(flag: str, paths: str) -> list[str]:
    """Returns the folders that the flag `--FLAG` names, separated by commas; they need not exist.

    The name of a folder that exists may have commas itself, as a sweep's points do (`runs/heads/h=1,seed=0`).

    Raises:
      UserError: as `folder`.
    """
    pieces = paths.split(",")
    found: list[str] = []
    while pieces:
        count = len(pieces)
        while count > 1 and not _is_folder(",".join(pieces[:count])):
            count -= 1
        path = ",".join(pieces[:count])
        if not path.startswith(BUILTIN):
            folder(flag, path)
        found.append(path)
        pieces = pieces[count:]
    return found


def _is_folder(path: str) -> bool:
    """Returns whether there is such a folder; False also of what no folder can be named, such as a very long name."""
    with contextlib.suppress(UserError, OSError):
        return folder("", path).is_dir()
    return False


def output_file(flag: str, path: str | Path, suffixes: tuple[str, ...] = ()) -> Path:
    """Returns the file that the flag `--FLAG` names, with `~` expanded, once it is known that it may be written there.

    To be called before the work whose result the file gets.

    Raises:
      UserError: its folder does not exist, it is itself a folder, its name ends in none of `suffixes`, or as `folder`.
    """
    file = folder(flag, path)
    if suffixes and file.suffix not in suffixes:
        raise UserError(f"--{flag}={path}: its name must end in {' or '.join(suffixes)}")
    if in_bucket(file):
        return file
    if file.is_dir():
        raise UserError(f"--{flag}={path}: this is a folder; name a file")
    target = Path(os.path.realpath(file)) if file.is_symlink() else file
    if not (file.exists() or target.parent.is_dir()):
        raise UserError(f"--{flag}={path}: there is no such folder: {target.parent}")
    return file


def output_folder(flag: str, path: str | Path) -> Path:
    """Returns the folder that the flag `--FLAG` names, with `~` expanded, once it is known that it may be made there.

    Raises:
      UserError: it, or what it would be in, is a file, or as `folder`.
    """
    output = folder(flag, path)
    nearest = next((ancestor for ancestor in (output, *output.parents) if ancestor.exists()), output)
    if nearest.exists() and not nearest.is_dir():
        raise UserError(f"--{flag}={path}: {nearest} is a file; name a folder")
    return output


def place(path: str | Path, where: str) -> Path:
    """Returns `path`, which may be in a bucket of Google Cloud Storage (gs://BUCKET/NAME); it need not exist.

    Raises:
      UserError: as `expanded`, or what reads buckets is not installed.
    """
    if in_bucket(path):
        from vaswani.gcs import bucket_path  # which costs what few commands need

        return bucket_path(str(path))
    return local_path(path, where)


def in_bucket(path: str | Path) -> bool:
    """Returns whether this is the path of something in a bucket, which is not on this machine's disk."""
    return str(path).startswith("gs://")


def as_path(path: str | Path) -> Path:
    """Returns a path as it is, and a text as one; `Path` would make a local one of a bucket's."""
    return path if isinstance(path, Path) else place(path, path)


def walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yields each folder at and below this one, with the names of its folders and files.

    Nothing is searched in the folders whose names the caller removes from the list.
    """
    if in_bucket(folder):
        yield from folder.walk()  # type: ignore[attr-defined]  # pathlib has it since Python 3.12
        return
    for path, folders, files in os.walk(folder):
        yield Path(path), folders, files


def remove_tree(folder: Path) -> None:
    """Removes a folder with all that is in it, as far as that can be removed."""
    if in_bucket(folder):
        with contextlib.suppress(OSError):
            folder.rmtree()  # type: ignore[attr-defined]  # only in a bucket
    else:
        shutil.rmtree(folder, ignore_errors=True)


def local_path(path: str | Path, where: str) -> Path:
    """Returns `path` with `~` expanded; it need not exist.

    Raises:
      UserError: it is empty, a URL, which would silently become a local folder named `s3:`, or a model that comes with
        the code, or it begins with the home of a user who does not exist; the message begins with `where`.
    """
    text = str(path)
    if text.startswith(BUILTIN):
        raise UserError(f"{where}: this model is bundled and read-only; name a folder")
    if in_bucket(text):
        raise UserError(f"{where}: this must be on the machine's own disk: copy it from the bucket, or mount that")
    if re.match(r"[A-Za-z][\w+.-]+:/", text):
        raise UserError(
            f"{where}: this is a URL; only gs:// and mounted file systems are supported: mount the bucket, and give "
            "its mount point"
        )
    if not text.strip():
        raise UserError(f"{where}: the path is empty; name a file or a folder (. is the current one)")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        user = text.partition("/")[0].removeprefix("~")
        if not user:
            raise UserError(f"{where}: ~ stands for HOME, which is not set") from error
        raise UserError(f"{where}: there is no user {user}, whose home this names") from error


def user_cache() -> str:
    """Returns the folder of this project among the user's caches, with `~` for the home; it need not exist."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return f"{caches}/vaswani" if Path(caches).is_absolute() else "~/.cache/vaswani"


def open_regular(path: Path) -> io.BufferedReader:
    """Opens a file for reading; never waits, as opening a pipe would.

    Raises:
      OSError: it cannot be read, or is a folder, a device, a pipe or a socket.
    """
    if in_bucket(path):
        return path.open("rb")
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.open("rb")


def read_bytes(path: Path) -> bytes:
    """Returns the content of a regular file of up to `LARGEST` bytes; raises as `open_regular`, or if it is larger."""
    if in_bucket(path):
        return path.read_bytes()
    with open_regular(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EOVERFLOW, f"larger than {LARGEST >> 20} MiB", str(path))
    return content


def content_of(path: Path) -> bytes:
    """Returns what `read_bytes` does; raises a `UserError` instead of its errors."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically: to a temporary file next to it, which is then renamed; in a bucket, at once.

    A symbolic link stays, and the file that it names is written. What is no file, such as `/dev/null` or a terminal,
    is written to directly.

    Raises:
      OSError: it cannot be written. A file is then unchanged, and the temporary one removed.
    """
    try:
        if in_bucket(path) or (path.exists() and not path.is_file()):
            path.write_bytes(content)
        else:
            _replace(Path(os.path.realpath(path)), content)
    except OSError as error:
        error.filename = error.filename or str(path)  # a failing write names no file
        raise


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name[:_DRAFTED]}.{uuid.uuid4().hex}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically; what is not Unicode in a file's name is escaped, as JSON does."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON, with a trailing newline, atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Turns the error of a file that cannot be written into a `UserError`, which begins with `name`, such as a flag."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{name}: cannot be written ({error.strerror})") from error


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal; raises as `open_regular`."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
