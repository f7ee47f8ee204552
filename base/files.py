"""Files: atomic writes, SHA-256, and JSON that is checked against a schema, with a one-line error for any fault.

    >>> read_json(Path("run.json"), {"launches": [{"step": int}]})["launches"][0]["step"]

A schema is a type (`int`, `float`, which accepts whole numbers, `str`, `bool`, `dict`, `list`, or `object` for
anything), a dict of required keys and their schemas, or a list of one schema for all items. Extra keys are allowed.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from base.errors import UserError

Schema = Any
_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "an object",
    list: "a list",
}


def folder(flag: str, path: str | Path) -> Path:
    """Returns the folder that the flag `--FLAG` names, with `~` expanded; it need not exist.

    Raises:
      UserError: the path is a URL, which would silently become a local folder named `gs:`.
    """
    if re.match(r"[A-Za-z][\w+.-]+:/", str(path)):
        raise UserError(
            f"--{flag}={path}: this is a URL; only mounted file systems are supported: mount the bucket (gs:// with "
            "gcsfuse) and give its mount point"
        )
    return Path(path).expanduser()


def output_file(flag: str, path: str | Path) -> Path:
    """Returns the file that the flag `--FLAG` names, with `~` expanded; for a check before anything is computed.

    Raises:
      UserError: its folder does not exist, it is a folder, or it is none of what `write_bytes` writes to.
    """
    file = folder(flag, path)
    try:
        if not file.name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        target = file if _descriptor(file) or _is_special(file) else Path(os.path.realpath(file))
        if not target.parent.is_dir():
            raise UserError(f"--{flag}={path}: there is no such folder: {target.parent}")
    except OSError as error:
        raise UserError(f"--{flag}={path}: cannot be written ({error.strerror})") from error
    return file


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically: to a temporary name beside it, which is then renamed.

    A symbolic link stays, and the file that it names is written. What is not a file cannot be renamed to: a terminal or
    another character device, a pipe that is being read, `/dev/stdout` and `/dev/fd/N` are written to directly.

    Raises:
      OSError: it cannot be written. A file is then unchanged, and the temporary one removed.
    """
    try:
        if descriptor := _descriptor(path):
            sys.stdout.flush()
            _write_to(os.dup(descriptor), content)
        elif _is_special(path):
            # Without O_NONBLOCK, opening a pipe that nothing reads would wait for ever.
            opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(opened, True)
            _write_to(opened, content)
        else:
            _replace(Path(os.path.realpath(path)), content)
    except OSError as error:
        error.filename = error.filename or str(path)  # a failing write names no file
        raise


def _descriptor(path: Path) -> int | None:
    """Returns the number of this process's open file that `path` names as a device; None if it names none."""
    names = {"/dev/stdout": 1, "/dev/stderr": 2}
    match = re.fullmatch(r"(?:/dev|/proc/self)/fd/([1-9][0-9]{0,4})", str(path))
    return int(match[1]) if match else names.get(str(path))


def _is_special(path: Path) -> bool:
    """Returns whether `path` exists and is a character device or a pipe.

    Raises:
      OSError: it is a folder, a disk or a socket, or a link that leads nowhere but to itself.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "it is a disk or a socket, not a file")
    return not stat.S_ISREG(mode)


def _write_to(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON, with a trailing newline, atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, schema: Schema) -> Any:
    """Returns the JSON value in a file.

    Raises:
      UserError: the file is absent or unreadable, is not JSON, or does not match the schema; the message names the
        file and the place in it.
    """
    return check(path, "", _parsed(path, "", _content(path)), schema)


def read_json_lines(path: Path, schema: Schema) -> list[Any]:
    """Returns the value of each line of a file; [] if the file is absent.

    A last line without a newline is skipped: a process was killed, or is still busy, writing it.

    Raises:
      UserError: as `read_json`; the message names the line.
    """
    if not path.exists():
        return []
    lines = _content(path).split(b"\n")[:-1]
    return [check(path, f"line {n}", _parsed(path, f"line {n}", line), schema) for n, line in enumerate(lines, 1)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _parsed(path: Path, where: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # bad UTF-8, bad JSON, or numbers with thousands of digits
        raise UserError(f"{path}: damaged{where and f' in {where}'}, not JSON ({str(error)[:120]})") from error


def check(path: Path, where: str, value: Any, schema: Schema) -> Any:
    """Returns `value`, read from `path` at the place `where` ("" for the whole file), if it matches the schema.

    Raises:
      UserError: it does not; the message names the file and the place in it.
    """
    if wrong := _fault(value, schema, ""):
        raise UserError(f"{path}: damaged{where and f' in {where}'}: {wrong}")
    return value


def _fault(value: Any, schema: Schema, at: str) -> str | None:
    """Returns what is wrong with `value`, found at the place `at`; None if nothing is."""
    kind: type = schema if isinstance(schema, type) else type(schema)
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind in (int, float)):
        shown = json.dumps(value)
        return f"{at or 'it'} is {shown if len(shown) < 60 else shown[:60] + '...'}; it must be {_NAMES[kind]}"
    inside: Iterable[tuple[Any, Schema, str]] = ()
    if isinstance(schema, dict):
        missing = next((key for key in schema if key not in value), None)
        if missing is not None:
            return f"{at + ' has' if at else 'it has'} no {missing!r}"
        inside = ((value[key], schema[key], f"{at}.{key}" if at else key) for key in schema)
    elif isinstance(schema, list):
        inside = ((item, schema[0], f"{at}[{number}]") for number, item in enumerate(value))
    return next(filter(None, (_fault(*one) for one in inside)), None)
