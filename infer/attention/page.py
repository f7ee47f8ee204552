"""The interactive page of attention maps: a single file, no network access; the sentences enter it only as data."""

import base64
import hashlib
import html
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

TEMPLATE = Path(__file__).with_name("attention_page.html")

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")

# Title, query tokens, key tokens, weights of every layer and head.
Kind = tuple[str, list[str], list[str], Float[np.ndarray, "n h t s"]]


def labels(pieces: Sequence[str]) -> list[str]:
    """Returns subwords as a reader should see them: a thin space where a word starts, and bytes as the text they spell.

    The first of the bytes of a character shows it, the others a ditto mark; bytes that spell none show a number.
    """
    shown = ["\u2009" + piece[1:] if piece.startswith("▁") and len(piece) > 1 else piece for piece in pieces]
    shown = ["\u2423" if label == "▁" else label for label in shown]
    at = 0
    while at < len(pieces):
        spelt = list(itertools.takewhile(bool, (_BYTE.fullmatch(piece) for piece in pieces[at:])))
        values = bytes(int(match[1], 16) for match in spelt if match)
        for text, size in _characters(values):
            shown[at : at + size] = [text] + ["″"] * (size - 1)
            at += size
        at += not values
    return shown


def _characters(values: bytes) -> Iterator[tuple[str, int]]:
    """Yields the characters that bytes spell and how many bytes each takes; a byte that spells none by its number."""
    while values:
        for size in range(1, min(4, len(values)) + 1):
            try:
                text = values[:size].decode()
            except UnicodeDecodeError:
                continue
            visible = text if text.isprintable() else f"U+{ord(text):04X}"
            yield visible, size
            break
        else:
            size = 1
            yield f"byte {values[0]}", size
        values = values[size:]


def script_policy(template: str) -> str:
    """Returns the source that a Content-Security-Policy allows for the template's one inline script: its hash."""
    (script,) = re.findall(r"<script>(.*?)</script>", template, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def page(title: str, kinds: Mapping[str, Kind]) -> str:
    """Returns the page as text. Weights are stored in thousandths, as precise as a screen can show."""
    data = {
        name: {
            "title": heading,
            "queries": labels(queries),
            "keys": labels(keys),
            "weights": np.rint(1000 * weights_nhts).astype(int).tolist(),
        }
        for name, (heading, queries, keys, weights_nhts) in kinds.items()
    }
    template = TEMPLATE.read_text(encoding="utf-8")
    before, rest = template.replace("__SCRIPT__", script_policy(template)).split("__TITLE__")
    between, after = rest.split("__DATA__")
    return f"{before}{html.escape(title)}{between}{_embed(data)}{after}"


def _embed(data: object) -> str:
    """Returns JSON that cannot close the script element around it, whatever the tokens are."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
