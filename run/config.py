"""Checks the keys and types of a config, from a file in `configs/` or the `config.json` of a run."""

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.errors import UserError, format_value
from vaswani.keys import flat, suggestion
from vaswani.read_json import read_json

SPLITS = ("test", "valid", "train")  # keys of `config.data` that name corpora
LARGEST = 2**31 - 1  # sizes, ids, step numbers and seeds are 32 bits wide on the device
_KINDS = {
    bool: "true or false",
    int: f"a whole number up to {LARGEST}",
    float: "a finite number",
    str: "text in Unicode",
    tuple: "whole numbers",
}


def read_config(workdir: Path) -> ConfigDict:
    """Returns the config that a run was started with, `with_defaults`.

    Raises:
      UserError: this is not a run folder, or its `config.json` is damaged.
    """
    path = workdir / "config.json"
    if not path.is_file():
        if not workdir.is_dir():
            raise UserError(f"workdir={workdir}: no such folder")
        raise UserError(f"workdir={workdir}: not the folder of a run; it has no config.json")
    config = with_defaults(read_json(path, dict))
    check_keys(config, default().to_dict(), f"{path}: damaged")
    return ConfigDict(config)


def with_defaults(recorded: dict[str, Any]) -> dict[str, Any]:
    """Returns a recorded config with today's keys: one that it lacks has its default, and a switch of old is left out.

    A key that a run lacks is younger than the run, and the default of a younger key is what runs did before it: a
    variant that is off, or the only way that there was (subwords, an exact search). A key that there is no more is
    left out if it is False, for then the run was trained as if there had been none; with any other value it is refused
    (`check_keys`). A key that someone took out of a run's file gets its default as well; `run.unchanged` then finds
    that the file differs from the checkpoint's own.
    """
    # As in a file, where a tuple is a list.
    whole = json.loads(json.dumps(default().to_dict()))
    for key, value in recorded.items():
        if isinstance(value, dict) and isinstance(whole.get(key), dict):
            value = whole[key] | value
        if key in whole or value is not False:
            whole[key] = value
    return whole


def check_keys(config: dict[str, Any], example: dict[str, Any], where: str) -> None:
    """Checks the keys of a config, and the types of their values, against an example that has every key.

    Raises:
      UserError: a key is unknown or missing, a value has the wrong type, a whole number does not fit in 32 bits, or a
        number is not finite; the message begins with `where`.
    """
    known = flat(example)
    given = flat(config)
    for key in given:
        if key not in known:
            raise UserError(f"{where}: there is no key {key}{suggestion(key, known)}")
    for key in known:
        if key not in given:
            raise UserError(f"{where}: {key} is missing; configs.common.default() has every key")
    check_types(given, known, where)


def check_types(given: dict[str, Any], known: dict[str, Any], where: str) -> None:
    """Checks the types of the values of those `known` keys that there are; both by dotted name. Raises as above."""
    for key, example in known.items():
        if key in given and not _fits(given[key], example):
            kind = _KINDS[type(example)]
            raise UserError(f"{where}: {key} is {format_value(given[key])}; it must be {kind}, like {example!r}")


def _fits(value: Any, example: Any) -> bool:
    if isinstance(example, tuple):
        return isinstance(value, (tuple, list)) and all(_fits(item, example[0]) for item in value)
    if isinstance(example, float) and isinstance(value, float):
        return math.isfinite(value)
    if isinstance(example, str):
        return isinstance(value, str) and _is_text(value)
    if isinstance(example, bool):
        return isinstance(value, bool)
    # A whole number, also where a float is expected. `bool` is a subclass of `int`.
    return type(value) is int and abs(value) <= LARGEST


def _is_text(value: str) -> bool:
    """Returns whether a string is Unicode, or could be the name of a file, which need not be Unicode."""
    with suppress(UnicodeEncodeError):
        return b"\0" not in os.fsencode(value)
    return False
