"""JSON that is checked against a schema when it is read; a fault is a one-line error that names the place in the file.

    >>> read_json(Path("run.json"), {"launches": [{"step": int}]})["launches"][0]["step"]

A schema is a type (`int`, `float`, which accepts whole numbers, `str`, `bool`, `dict`, `list`, or `object` for
anything), a dict of required keys and their schemas, or a list of one schema for all items. Extra keys are allowed.
"""

import contextlib
import io
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.files import in_bucket, open_regular, read_bytes

Schema = Any
WIDEST = 1 << 63  # whole numbers in JSON are below it: what our own code writes fits in 64 bits
_LARGEST_FLOAT = 1e306  # a sum of a hundred is still finite; nothing that is measured is larger, unless infinite
_DEEPEST = 100  # levels of JSON
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


def read_json(path: Path, schema: Schema, widest: int = WIDEST) -> Any:
    """Returns the JSON value in a file, in which every whole number is below `widest`.

    Raises:
      UserError: the file is absent, unreadable or not a regular one, is not JSON, holds a number or text that our
        code never writes, or does not match the schema; the message names the file and the place in it.
    """
    value = _parsed(path, "", _content(path), widest)
    return check(path, "", value, schema)


def read_json_lines(path: Path, schema: Schema) -> list[Any]:
    """Returns the value of each line of a file; [] if the file is absent.

    A last line without a newline is skipped: a process was killed, or is still busy, writing it.

    Raises:
      UserError: as `read_json`; the message names the line.
    """
    values = []
    for number, line in enumerate(_whole_lines(path), start=1):
        where = f"line {number}"
        value = _parsed(path, where, line)
        values.append(check(path, where, value, schema))
    return values


def _content(path: Path) -> bytes:
    with _one_line_error(path):
        return read_bytes(path)


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a file of any size that end in a line feed, without it; none of an absent file."""
    with _one_line_error(path), contextlib.ExitStack() as stack:
        try:
            # Of a bucket at once: to open an object and to read it takes more requests.
            opened = io.BytesIO(path.read_bytes()) if in_bucket(path) else open_regular(path)
        except FileNotFoundError:
            return
        for line in stack.enter_context(opened):
            if not line.endswith(b"\n"):
                return  # had it grown since, its rest would be the next line
            yield line[:-1]


@contextlib.contextmanager
def _one_line_error(path: Path) -> Iterator[None]:
    """Turns the error of a file that cannot be read into a `UserError`."""
    try:
        yield
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
    """Returns whether a string is Unicode, or could be the name of a file, which need not be Unicode."""
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
    if not _is_of_kind(value, kind):
        shown = json.dumps(value)
        if len(shown) >= 60:
            shown = f"{shown[:60]}..."
        return f"{what} is {shown}; it must be {_NAMES[kind]}"
    if kind is float and _LARGEST_FLOAT < abs(value) < math.inf:
        return f"{what} is {value}; it must be a number below {_LARGEST_FLOAT}"
    if isinstance(schema, dict):
        for key in schema:
            if key not in value:
                return f"{what} has no {key!r}"
    faults = (_fault(*inner) for inner in _inside(value, schema, at))
    return next(filter(None, faults), None)


def _is_of_kind(value: Any, kind: type) -> bool:
    """Returns whether a JSON value is of the kind that a schema names."""
    if kind in (int, float) and isinstance(value, bool):  # which Python counts among the whole numbers
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _inside(value: Any, schema: Schema, at: str) -> Iterator[tuple[Any, Schema, str]]:
    """Yields each value inside one that the schema describes further, with its schema and its place."""
    if isinstance(schema, dict):
        for key, inner in schema.items():
            yield value[key], inner, _key_in(at, key)
    elif isinstance(schema, list):
        for number, item in enumerate(value):
            yield item, schema[0], f"{at}[{number}]"
