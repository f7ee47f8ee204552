"""Files: paths that users give, atomic writes, SHA-256, and JSON that is checked against a schema.

Every fault is a one-line error. Files are read if they are regular: a device or a pipe in their place may never end.

    >>> read_json(Path("run.json"), {"launches": [{"step": int}]})["launches"][0]["step"]

A schema is a type (`int`, `float`, which accepts whole numbers, `str`, `bool`, `dict`, `list`, or `object` for
anything), a dict of required keys and their schemas, or a list of one schema for all items. Extra keys are allowed.
"""

import contextlib
import errno
import hashlib
import io
import json
import math
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
LARGEST = 1 << 28  # bytes of a file that is read whole: ours are far smaller
WIDEST = 1 << 63  # whole numbers in JSON are below it: what our own code writes fits in 64 bits
_LARGEST_FLOAT = 1e306  # a hundred can be added; what is larger without being infinite was never measured
_DEEPEST = 100  # levels of JSON
_LONGEST_NAME = 255  # bytes
_DRAFTED = 50  # characters of a file's name in that of its draft, which must not be too long where the name is not
_LONGEST_PATH = 4_000  # bytes: some room below Linux's 4,096 for the names of files inside
_SURROGATE = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)")  # which may be half of a pair; and zero, which ends a C string
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')  # of JSON
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
      UserError: the path is a URL, which would silently become a local folder named `gs:`, or as `expanded`.
    """
    if re.match(r"[A-Za-z][\w+.-]+:/", str(path)):
        raise UserError(
            f"--{flag}={path}: this is a URL; only mounted file systems are supported: mount the bucket (gs:// with "
            "gcsfuse) and give its mount point"
        )
    return expanded(path, f"--{flag}={path}")


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
        folder(flag, path)
        found.append(path)
        pieces = pieces[count:]
    return found


def _is_folder(path: str) -> bool:
    """Returns whether there is such a folder; False also of what no folder can be named."""
    with contextlib.suppress(UserError):
        return folder("", path).is_dir()
    return False


def output_file(flag: str, path: str | Path, suffixes: tuple[str, ...] = ()) -> Path:
    """Returns the file that the flag `--FLAG` names, with `~` expanded, once it is known that it may be written there.

    To be called before the work whose result the file gets.

    Raises:
      UserError: its folder does not exist, it is itself a folder or none of what `write_bytes` writes to, its name ends
        in none of `suffixes`, or as `folder`.
    """
    file = folder(flag, path)
    if suffixes and file.suffix not in suffixes:
        raise UserError(f"--{flag}={path}: its name must end in {' or '.join(suffixes)}")
    try:
        written_in_place = _descriptor(file) is not None or _is_special(file)
        target = file if written_in_place else Path(os.path.realpath(file))
    except IsADirectoryError as error:
        raise UserError(f"--{flag}={path}: this is a folder; name a file") from error
    except OSError as error:
        raise UserError(f"--{flag}={path}: cannot be written ({error.strerror})") from error
    if not target.parent.is_dir():
        named = target if file.is_symlink() else file
        raise UserError(f"--{flag}={path}: there is no such folder: {named.parent}")
    return file


def output_folder(flag: str, path: str | Path) -> Path:
    """Returns the folder that the flag `--FLAG` names, with `~` expanded, once it is known that it may be made there.

    Raises:
      UserError: it, or what it would be in, is a file, or as `folder`.
    """
    place = folder(flag, path)
    nearest = next((ancestor for ancestor in (place, *place.parents) if ancestor.exists()), place)
    if nearest.exists() and not nearest.is_dir():
        raise UserError(f"--{flag}={path}: {nearest} is a file; name a folder")
    return place


def expanded(path: str | Path, where: str) -> Path:
    """Returns `path` with `~` expanded; it need not exist.

    Raises:
      UserError: no file can have this path, or it begins with the home of a user whom there is not; the message begins
        with `where`.
    """
    text = str(path)
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: no file can have this name; it is not Unicode") from error
    if not text.strip():
        raise UserError(f"{where}: the path is empty; name a file or a folder (. is the current one)")
    if b"\0" in encoded:
        raise UserError(f"{where}: no file can have this name; it has a zero byte")
    longest_name = max(len(name) for name in encoded.split(b"/"))
    if len(encoded) > _LONGEST_PATH or longest_name > _LONGEST_NAME:
        raise UserError(
            f"{where}: no file can have this name; names have up to {_LONGEST_NAME} bytes, paths {_LONGEST_PATH:,}"
        )
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        user = text.partition("/")[0].removeprefix("~")
        raise UserError(f"{where}: there is no user {user}, whose home this names") from error


def user_cache() -> str:
    """Returns the folder of this project among the user's caches, with `~` for his home; it need not exist."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return f"{caches}/vaswani" if Path(caches).is_absolute() else "~/.cache/vaswani"


def open_regular(path: Path) -> io.BufferedReader:
    """Opens a file for reading; never waits, as opening a pipe would.

    Raises:
      OSError: it cannot be read, or is a folder, a device, a pipe or a socket.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_bytes(path: Path) -> bytes:
    """Returns the content of a regular file of up to `LARGEST` bytes; raises as `open_regular`, or if it is larger."""
    with open_regular(path) as file:
        too_large = os.fstat(file.fileno()).st_size > LARGEST
        if not too_large:
            content = file.read(LARGEST + 1)
            too_large = len(content) > LARGEST  # it has grown since
    if too_large:
        raise OSError(errno.EOVERFLOW, f"larger than {LARGEST >> 20} MiB", str(path))
    return content


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically: to a temporary name beside it, which is then renamed.

    A symbolic link stays, and the file that it names is written. What is not a file cannot be renamed to: a terminal or
    another character device, a pipe that is being read, `/dev/stdout` and `/dev/fd/N` are written to directly.

    Raises:
      OSError: it cannot be written. A file is then unchanged, and the temporary one removed.
    """
    try:
        descriptor = _descriptor(path)
        if descriptor is not None:
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
    numbered = re.fullmatch(r"(?:/dev|/proc/self)/fd/([1-9][0-9]{0,4})", str(path))
    if numbered:
        return int(numbered[1])
    return {"/dev/stdout": 1, "/dev/stderr": 2}.get(str(path))


def _is_special(path: Path) -> bool:
    """Returns whether `path` exists and is a character device or a pipe.

    Raises:
      OSError: it is a folder, a disk or a socket, or a link that leads nowhere but to itself.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
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


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal; raises as `open_regular`."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, schema: Schema, widest: int = WIDEST) -> Any:
    """Returns the JSON value in a file, in which every whole number is below `widest`.

    Raises:
      UserError: the file is absent, unreadable or not a regular one, is not JSON, holds a number or text that nothing
        of ours can be, or does not match the schema; the message names the file and the place in it.
    """
    value = _parsed(path, "", _content(path), widest)
    return check(path, "", value, schema)


def read_json_lines(path: Path, schema: Schema) -> list[Any]:
    """Returns the value of each line of a file; [] if the file is absent.

    A last line without a newline is skipped: a process was killed, or is still busy, writing it.

    Raises:
      UserError: as `read_json`; the message names the line.
    """
    if not path.exists():
        return []
    values = []
    for number, line in enumerate(_content(path).split(b"\n")[:-1], start=1):
        where = f"line {number}"
        value = _parsed(path, where, line)
        values.append(check(path, where, value, schema))
    return values


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _parsed(path: Path, where: str, content: bytes, widest: int = WIDEST) -> Any:
    """Returns the value of JSON: whole numbers are below `widest`, text is Unicode, and no level is too deep."""
    has_wide_number = False

    def number(text: str) -> Any:
        nonlocal has_wide_number
        # Python refuses to read thousands of digits.
        value = int(text) if len(text) <= len(str(-widest)) else widest
        has_wide_number = has_wide_number or abs(value) >= widest
        return value

    try:
        value = json.loads(content.decode("utf-8-sig"), parse_int=number)
    except (ValueError, RecursionError) as error:  # bad UTF-8, or bad JSON
        raise UserError(f"{_damaged(path, where)}, not JSON ({str(error)[:120]})") from error
    # Walking the value is slow, and the content of nearly every file shows that there is no need to.
    has_many_brackets = content.count(b"[") + content.count(b"{") > _DEEPEST
    is_deep = has_many_brackets and _depth(content) > _DEEPEST
    if has_wide_number or is_deep or _SURROGATE.search(content):
        fault = _impossible(value, widest)
        if fault:
            raise UserError(f"{_damaged(path, where)}: {fault}")
    return value


def _depth(content: bytes) -> int:
    """Returns how many levels of objects and lists JSON has."""
    depth = deepest = 0
    for bracket in re.findall(rb"[\[{}\]]", _STRING.sub(b"", content)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _damaged(path: Path, where: str) -> str:
    """Returns how a message about a damaged file begins; `where` is the place in it, "" for the whole file."""
    return f"{path}: damaged in {where}" if where else f"{path}: damaged"


def _impossible(value: Any, widest: int) -> str | None:
    """Returns which number, text or level of a JSON value is nothing that our own code writes, and why."""
    waiting: list[tuple[Any, str, int]] = [(value, "", 0)]
    while waiting:
        item, at, depth = waiting.pop()
        what = at or "it"
        if depth > _DEEPEST:
            return f"{at[:60]}... is nested too deeply"
        if isinstance(item, int) and abs(item) >= widest:
            return f"{what} is a number of more than {(widest - 1).bit_length() + 1} bits"
        if isinstance(item, str) and not is_text(item):
            return f"{what} is not Unicode"
        if isinstance(item, dict):
            waiting += [(key, f"the name of {at}.{key!a}", depth) for key in item]
            waiting += [(inner, _key_in(at, key), depth + 1) for key, inner in item.items()]
        elif isinstance(item, list):
            waiting += [(inner, f"{at}[{number}]", depth + 1) for number, inner in enumerate(item)]
    return None


def _key_in(at: str, key: str) -> str:
    """Returns the place of `key` in the object at the place `at`, "" for the outermost."""
    return f"{at}.{key}" if at else key


def is_text(value: str) -> bool:
    """Returns whether a string is Unicode, or may name a file, of which names need not be."""
    with contextlib.suppress(UnicodeEncodeError):
        return b"\0" not in os.fsencode(value)
    return False


def check(path: Path, where: str, value: Any, schema: Schema) -> Any:
    """Returns `value`, read from `path` at the place `where` ("" for the whole file), if it matches the schema.

    Raises:
      UserError: it does not; the message names the file and the place in it.
    """
    fault = _fault(value, schema, "")
    if fault:
        raise UserError(f"{_damaged(path, where)}: {fault}")
    return value


def _fault(value: Any, schema: Schema, at: str) -> str | None:
    """Returns what is wrong with `value`, found at the place `at`; None if nothing is."""
    what = at or "it"
    kind: type = schema if isinstance(schema, type) else type(schema)
    fits = isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
    is_bool_for_number = isinstance(value, bool) and kind in (int, float)
    if not fits or is_bool_for_number:
        shown = json.dumps(value)
        if len(shown) >= 60:
            shown = f"{shown[:60]}..."
        return f"{what} is {shown}; it must be {_NAMES[kind]}"
    if kind is float and _LARGEST_FLOAT < abs(value) < math.inf:
        return f"{what} is {value}; it must be a number below {_LARGEST_FLOAT}"
    inside: Iterable[tuple[Any, Schema, str]] = ()
    if isinstance(schema, dict):
        missing = next((key for key in schema if key not in value), None)
        if missing is not None:
            return f"{what} has no {missing!r}"
        inside = ((value[key], schema[key], _key_in(at, key)) for key in schema)
    elif isinstance(schema, list):
        inside = ((item, schema[0], f"{at}[{number}]") for number, item in enumerate(value))
    for item, item_schema, place in inside:
        fault = _fault(item, item_schema, place)
        if fault:
            return fault
    return None
