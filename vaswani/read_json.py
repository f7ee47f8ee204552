"""Reads JSON and checks it against a schema; a fault is a one-line error that names the place in the file.

    >>> read_json(Path("run.json"), {"launches": [{"step": int}]})["launches"][0]["step"]

A schema is a type (`int`, `float`, which accepts whole numbers, `str`, `bool`, `dict`, `list`, or `object` for
anything), a dict of required keys and their schemas, or a list of one schema for all items. Extra keys are allowed.
"""

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.files import in_bucket, open_regular, read_bytes

Schema = Any
_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "an object",
    list: "a list",
}


def read_json(path: Path, schema: Schema) -> Any:
    """Returns the JSON value in a file.

    Raises:
      UserError: the file is absent, unreadable or not a regular one, is not JSON, or does not match the schema; the
        message names the file and the place in it.
    """
    try:
        content = read_bytes(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    return check(path, "", _parse(path, "", content), schema)


def read_json_lines(path: Path, schema: Schema) -> list[Any]:
    """Returns the value of each line of a file of any size; [] if the file is absent.

    A last line without a newline is skipped: a process was killed, or is still busy, writing it.

    Raises:
      UserError: as `read_json`; the message names the line.
    """
    values = []
    try:
        # From a bucket it is read at once: opening an object and then reading it takes more requests.
        with closing(io.BytesIO(path.read_bytes()) if in_bucket(path) else open_regular(path)) as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break  # had it grown since, its rest would be the next line
                where = f"line {number}"
                values.append(check(path, where, _parse(path, where, line), schema))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(path, error) from error
    return values


def check(path: Path, where: str, value: Any, schema: Schema) -> Any:
    """Returns `value`, read from `path` at the place `where` ("" for the whole file), if it matches the schema.

    Raises:
      UserError: it does not; the message names the file and the place in it.
    """
    fault = _fault(value, schema, "")
    if fault:
        raise UserError(f"{_damage(path, where)}: {fault}")
    return value


def _unreadable(path: Path, error: OSError) -> UserError:
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path}: no such file")
    return UserError(f"{path}: cannot be read ({error.strerror})")


def _parse(path: Path, where: str, content: bytes) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # bad UTF-8, or bad JSON
        raise UserError(f"{_damage(path, where)}, not JSON ({str(error)[:120]})") from error


def _damage(path: Path, where: str) -> str:
    return f"{path}: damaged in {where}" if where else f"{path}: damaged"


def _fault(value: Any, schema: Schema, at: str) -> str | None:
    """Returns the first error in `value`, found at the place `at`; None if there is none."""
    what = at or "it"
    kind: type = schema if isinstance(schema, type) else type(schema)
    if not _is_of_kind(value, kind):
        shown = json.dumps(value)
        if len(shown) >= 60:
            shown = f"{shown[:60]}..."
        return f"{what} is {shown}; it must be {_NAMES[kind]}"
    faults: list[str | None] = []
    if isinstance(schema, dict):
        missing = [key for key in schema if key not in value]
        if missing:
            return f"{what} has no {missing[0]!r}"
        faults = [_fault(value[key], inner, f"{at}.{key}" if at else key) for key, inner in schema.items()]
    elif isinstance(schema, list):
        faults = [_fault(item, schema[0], f"{at}[{number}]") for number, item in enumerate(value)]
    return next(filter(None, faults), None)


def _is_of_kind(value: Any, kind: type) -> bool:
    if kind in (int, float) and isinstance(value, bool):  # which Python counts among the whole numbers
        return False
    return isinstance(value, (int, float) if kind is float else kind)
