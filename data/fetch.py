"""Downloads a file whose size and SHA-256 are known: whole, or not at all."""

import fcntl
import io
import os
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from vaswani.data.corpora import File
from vaswani.data.lines import file_digest
from vaswani.errors import UserError
from vaswani.progress import Progress

_TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 1 << 16  # bytes


def fetch(file: File, folder: Path) -> Path:
    """Returns the file in `folder`, downloading it if it is missing; an interrupted download is resumed.

    Until the file is complete and its SHA-256 is right, its name ends in `.part`.

    Raises:
      UserError: a file that is already there has another SHA-256, the server or the folder cannot be used, the
        connection broke off, or the download has another size or SHA-256, and is deleted.
    """
    path = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        if path.exists():
            _check(path, file, "delete it, and it is downloaded again")
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as written:
            _lock(written, part)
            try:
                _receive(file, written, path)
                _check(part, file, "the download is deleted")
            except _WrongFileError:
                part.unlink()
                raise
            part.replace(path)
    except OSError as error:
        raise UserError(f"{error.filename or part}: cannot be written ({error.strerror})") from error
    return path


class _WrongFileError(UserError):
    """The bytes are not those that were pinned."""


def _check(path: Path, file: File, remedy: str) -> None:
    if file_digest(path) != file.sha256:
        raise _WrongFileError(f"{path}: its SHA-256 is not the one pinned for {file.url}; {remedy}")


def _lock(written: io.BufferedWriter, part: Path) -> None:
    try:
        fcntl.flock(written, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(f"{part}: another process is downloading it") from error
    # Before this one had the lock, the other may have given the file its name, or deleted it.
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(written.fileno()), part.stat()):
            return
    raise UserError(f"{part}: another process has just finished with it; give the same command again")


def _receive(file: File, written: io.BufferedWriter, path: Path) -> None:
    """Appends what is missing of the file; writes all of it if the server does not send a part."""
    done = written.tell()
    if done == file.size:
        return
    if done > file.size:  # begun for another version of the file
        written.truncate(0)
        done = 0
    shown = Progress(f"fetching {file.name}", "bytes", total=file.size)
    with _open_url(file, done, path) as response, shown as progress:
        if done and response.status != HTTPStatus.PARTIAL_CONTENT:
            written.truncate(0)
            done = 0
        while block := _read(response, file, done):
            done += len(block)
            if done > file.size:
                raise _WrongFileError(
                    f"{file.url}: longer than {file.size:,} bytes, its size when it was pinned; the download is deleted"
                )
            written.write(block)
            written.flush()
            progress.update(done)
        if done < file.size:
            raise _broken_off(file, done, "it ended")
        progress.finish(f"{done:,} bytes")


def _open_url(file: File, start: int, path: Path) -> HTTPResponse:
    """Asks the server for the bytes from `start` on."""
    request = Request(file.url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = urlopen(request, timeout=_TIMEOUT)
        return response
    except HTTPError as error:
        error.close()
        reason: object = f"HTTP {error.code}, {error.reason}"
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
    raise UserError(f"{file.url}: cannot be downloaded ({reason}); if you have it from elsewhere, put it at {path}")


def _read(response: HTTPResponse, file: File, done: int) -> bytes:
    try:
        return response.read(_BLOCK)
    except (OSError, HTTPException) as error:
        raise _broken_off(file, done, str(error)) from error


def _broken_off(file: File, done: int, reason: str) -> UserError:
    of_all = f"after {done:,} of {file.size:,} bytes"
    return UserError(f"{file.url}: the connection broke off {of_all} ({reason}); the same command resumes")
