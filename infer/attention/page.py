"""The interactive page of attention maps: a single file, no network access; the sentences enter it only as data."""

import html
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

KINDS = ("encoder", "decoder", "cross")
TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "decoder over encoder"}
TEMPLATE = Path(__file__).with_name("attention_page.html")

# Title, query tokens, key tokens, weights of every layer and head.
Kind = tuple[str, list[str], list[str], Float[np.ndarray, "n h t s"]]


def page(title: str, kinds: Mapping[str, Kind]) -> str:
    """Returns the page as text. Weights are stored in thousandths, as precise as a screen can show."""
    data = {
        name: {
            "title": heading,
            "queries": queries,
            "keys": keys,
            "weights": np.rint(1000 * weights_nhts).astype(int).tolist(),
        }
        for name, (heading, queries, keys, weights_nhts) in kinds.items()
    }
    before, rest = TEMPLATE.read_text(encoding="utf-8").split("__TITLE__")
    between, after = rest.split("__DATA__")
    return f"{before}{html.escape(title)}{between}{_embed(data)}{after}"


def _embed(data: object) -> str:
    """Returns JSON that cannot close the script element around it, whatever the tokens are."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
