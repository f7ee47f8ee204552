"""Whether files are still what was written: `SHA256SUMS` beside them, as `sha256sum --check SHA256SUMS` reads it."""

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NAME = "SHA256SUMS"


def write_sums(folder: Path) -> None:
    """Writes the SHA-256 of every file in the folders below `folder` to `folder/SHA256SUMS`; not of those beside it."""
    files = sorted(path for path in folder.glob("*/**/*") if path.is_file())
    replace_sums(folder, {path.relative_to(folder).as_posix(): sha256(path) for path in files})


def replace_sums(folder: Path, sums: dict[str, str]) -> None:
    """Writes `folder/SHA256SUMS`, whole or not at all, from the SHA-256 of each file name."""
    replacement = folder / f"{NAME}.tmp"
    replacement.write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()), encoding="utf-8")
    replacement.replace(folder / NAME)


def read_sums(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file name, as it was written; `ValueError` where the file is damaged itself."""
    lines = (folder / NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    matches = [re.fullmatch(r"([0-9a-f]{64})  (.+)", line) for line in lines]
    if not matches or None in matches:
        raise ValueError(f"{NAME} is damaged")
    return {match[2]: match[1] for match in matches if match}


def fault(folder: Path, below: str = "") -> str | None:
    """Says which file of `folder` is not what was written, of those whose name starts with `below`, and how.

    None where all are, and where no sums were written: older checkpoints have none.
    """
    if not (folder / NAME).exists():
        return None
    try:
        wanted = {name: digest for name, digest in read_sums(folder).items() if name.startswith(below)}
    except (OSError, ValueError) as error:
        return str(error)
    with ThreadPoolExecutor() as threads:  # hashing and reading let other threads run
        faults = threads.map(lambda name: _fault(folder / name, name, wanted[name]), wanted)
        return next(filter(None, faults), None)


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fault(path: Path, name: str, wanted: str) -> str | None:
    try:
        if sha256(path) == wanted:
            return None
        return f"{name} has changed" if path.stat().st_size else f"{name} is empty"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror or error}"
