"""Keys of a config, which is a tree: their dotted names, and the one that a mistyped key may have meant."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

# What other programs call our keys, where the names have little in common.
ELSEWHERE = {
    "batch_size": "data.tokens_per_batch",
    "beam_size": "decode.beam",
    "dropout": "model.P_drop",
    "epochs": "steps",
    "heads": "model.h",
    "hidden_size": "model.d_model",
    "label_smoothing": "loss.eps_ls",
    "layers": "model.N",
    "learning_rate": "optim.lr",
    "max_steps": "steps",
    "num_heads": "model.h",
    "num_layers": "model.N",
    "warmup_steps": "optim.warmup",
}


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns {"model.N": 6, ...} for {"model": {"N": 6, ...}, ...}."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves


def changed_values(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Returns the leaves of `after` that `before` has with another value, by their dotted names."""
    old, new = flat(before), flat(after)
    return {key: new[key] for key in old if new[key] != old[key]}


def short_names(keys: Sequence[str], taken: Sequence[str] = (), separator: str = ".") -> list[str]:
    """Returns the last part of each key (or path), or all of it where two end alike or that name is taken."""
    endings = [key.rpartition(separator)[2] for key in keys]
    names = [*taken, *endings]
    return [ending if names.count(ending) == 1 else key for ending, key in zip(endings, keys, strict=True)]


def suggestion(key: str, keys: Iterable[str]) -> str:
    """Returns "; did you mean ...?" with the `nearest` of `keys`, or says where all of them are listed."""
    near = nearest(key, keys)
    return f"; did you mean {near}?" if near else "; configs/common.py lists them all"


def nearest(key: str, keys: Iterable[str]) -> str | None:
    """Returns the one of `keys` that a mistyped key may have meant; None if none is like it."""
    names = [*keys]
    same = namesake(key, names)
    if same:
        return same
    near = difflib.get_close_matches(key, names, n=1)
    if near:
        return near[0]
    by_last = {_last(name): name for name in names}
    near = difflib.get_close_matches(_last(key), by_last, n=1)
    return by_last[near[0]] if near else None


def namesake(key: str, keys: Sequence[str]) -> str | None:
    """Returns the only one of `keys` that ends as `key` does, or is what other programs call by that name, or None."""
    alike = [name for name in keys if _last(name) == _last(key)]
    if len(alike) == 1:
        return alike[0]
    ours = ELSEWHERE.get(_last(key))
    return ours if ours in keys else None


def _last(key: str) -> str:
    return key.rpartition(".")[2]
