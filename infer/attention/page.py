"""The interactive page of attention maps: a single file, no network access; the sentences enter it only as data."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vaswani.infer.html import inline_scripts, read_template, script_json, script_policy

TEMPLATE = Path(__file__).with_name("attention_page.html")

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")

# Title, query tokens, key tokens, weights of every layer and head.
Kind = tuple[str, list[str], list[str], Float[np.ndarray, "n h t s"]]


class Choice(NamedTuple):
    """How probable the model found a subword: from 0 to 1, the rank from 1, and the most probable pieces instead."""

    probability: float
    rank: int
    best: list[tuple[str, float]]


def labels(pieces: Sequence[str]) -> list[str]:
    """Returns subwords as a reader should see them: a thin space where a word starts, and bytes as the text they spell.

    The first of the bytes of a character shows it, the others a ditto mark; bytes that spell none show a number.
    """
    shown = [_spaced(piece) for piece in pieces]
    place = 0
    while place < len(pieces):
        values = _leading_bytes(pieces[place:])
        if not values:
            place += 1
        for text, size in _characters(values):
            shown[place : place + size] = [text] + ["″"] * (size - 1)
            place += size
    return shown


def _spaced(piece: str) -> str:
    """Returns a subword with a thin space where a word starts; a space that is one itself, or a control, is shown."""
    if piece in ("▁", " "):
        return "\u2423"
    if len(piece) == 1:
        return _visible(piece)
    if piece.startswith("▁"):
        return "\u2009" + piece[1:]
    return piece


def _visible(character: str) -> str:
    """Returns a character, or its number if it cannot be printed."""
    return character if character.isprintable() else f"U+{ord(character):04X}"


def _leading_bytes(pieces: Sequence[str]) -> bytes:
    """Returns the bytes that the first pieces stand for, up to the first that stands for none."""
    values = bytearray()
    for piece in pieces:
        match = _BYTE.fullmatch(piece)
        if match is None:
            break
        values.append(int(match[1], 16))
    return bytes(values)


def _characters(values: bytes) -> Iterator[tuple[str, int]]:
    """Yields the characters that bytes spell and how many bytes each takes; a byte that spells none by its number."""
    while values:
        text, size = _first_character(values)
        yield text, size
        values = values[size:]


def _first_character(values: bytes) -> tuple[str, int]:
    """Returns the character that the first bytes spell, and how many they are; else the number of the first byte."""
    for size in range(1, min(4, len(values)) + 1):
        try:
            text = values[:size].decode()
        except UnicodeDecodeError:
            continue
        return _visible(text), size
    return f"byte {values[0]}", 1


def as_json(kinds: Mapping[str, Kind], choices: Mapping[str, Sequence[Choice | None]] | None = None) -> dict[str, Any]:
    """Returns what viewer.js draws: weights and probabilities in thousandths, as precise as a screen can show.

    `choices` has one for each query of a kind, None for a subword that was not predicted; not every kind needs any.
    """
    shown = {}
    for name, (heading, queries, keys, weights_nhts) in kinds.items():
        shown[name] = {
            "title": heading,
            "queries": labels(queries),
            "keys": labels(keys),
            "weights": np.rint(1000 * np.nan_to_num(weights_nhts)).astype(int).tolist(),
        }
        if choices and name in choices:
            shown[name]["choices"] = [_choice_as_json(choice) for choice in choices[name]]
    return shown


def _choice_as_json(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    pieces = [labels([piece])[0] for piece, _ in choice.best]  # one by one: alternatives are no text
    thousandths = [round(1000 * probability, 4) for _, probability in choice.best]
    return {
        "probability": round(1000 * choice.probability, 4),
        "rank": choice.rank,
        "best": list(zip(pieces, thousandths, strict=True)),
    }


def page(title: str, kinds: Mapping[str, Kind], choices: Mapping[str, Sequence[Choice | None]] | None = None) -> str:
    """Returns the page as text; the arguments are those of `as_json`."""
    template = read_template(TEMPLATE)
    before, rest = template.replace("__SCRIPT__", script_policy(inline_scripts(template))).split("__TITLE__")
    between, after = rest.split("__DATA__")
    return f"{before}{html.escape(title)}{between}{script_json(as_json(kinds, choices))}{after}"
