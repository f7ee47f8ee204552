"""Detects changed files: `SHA256SUMS` beside them, in the format of `sha256sum --check SHA256SUMS`."""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from vaswani.files import read_bytes, sha256, write_text

NAME = "SHA256SUMS"


def write_sums(folder: Path, known: dict[str, str], names: Iterable[str]) -> None:
    """Writes `folder/SHA256SUMS` atomically: the `known` sums, and those of the files `names`."""
    sums = dict(known)
    for name in names:
        sums[name] = sha256(folder / name)
    lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
    write_text(folder / NAME, "".join(lines))


def read_sums(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file name.

    Raises:
      OSError: `SHA256SUMS` cannot be read, or is no regular file.
      ValueError: it is damaged, or names a file outside the folder: a run may come from an untrusted source.
    """
    lines = read_bytes(folder / NAME).decode(errors="replace").splitlines()
    if not lines:
        raise ValueError(f"{NAME} is damaged")
    sums = {}
    for line in lines:
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if not match:
            raise ValueError(f"{NAME} is damaged")
        digest, name = match.groups()
        sums[name] = digest
    for path in map(PurePosixPath, sums):
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{NAME} names a file outside this folder")
    return sums


def fault(folder: Path, below: str = "") -> str | None:
    """Returns which file of `folder` has changed and how, among names that start with `below`; None if none has."""
    try:
        sums = read_sums(folder)
    except FileNotFoundError:
        return f"{NAME} is missing"
    except (OSError, ValueError) as error:
        return str(error)
    names = [name for name in sums if name.startswith(below)]
    if not names:
        return f"{NAME} lists no file of {below or 'this folder'}"
    with ThreadPoolExecutor() as threads:  # hashing and reading release the GIL
        faults = threads.map(lambda name: _fault(folder, name, sums[name]), names)
        return next(filter(None, faults), None)


def _fault(folder: Path, name: str, recorded: str) -> str | None:
    path = folder / name
    try:
        if path.exists() and not path.is_file():  # a device or a pipe may never end
            return f"{name} is not a file"
        if sha256(path) == recorded:
            return None
        return f"{name} has changed" if path.stat().st_size else f"{name} is empty"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror or error}"
