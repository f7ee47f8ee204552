"""Keys of a config, which is a tree: their dotted names, and the one that a mistyped key may have meant."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns {"model.N": 6, ...} for {"model": {"N": 6, ...}, ...}."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Returns the leaves of `after` that `before` has with another value, by their dotted names."""
    old, new = flat(before), flat(after)
    return {key: new[key] for key in old if new[key] != old[key]}


def short_names(keys: Sequence[str], taken: Sequence[str] = (), separator: str = ".") -> list[str]:
    """Returns the last part of each key (or path), or all of it where two end alike or that name is taken."""
    endings = [key.rpartition(separator)[2] for key in keys]
    names = [*taken, *endings]
    return [ending if names.count(ending) == 1 else key for ending, key in zip(endings, keys, strict=True)]


def suggestion(key: str, keys: Iterable[str]) -> str:
    """Returns "; did you mean ...?" with the closest of `keys`, or says where all of them are listed."""
    by_last = {known.rpartition(".")[2]: known for known in keys}
    near = difflib.get_close_matches(key, by_last.values(), n=1)
    if not near:
        last = key.rpartition(".")[2]
        near = [by_last[name] for name in difflib.get_close_matches(last, by_last, n=1)]
    return f"; did you mean {near[0]}?" if near else "; configs/common.py lists them all"
