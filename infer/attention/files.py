"""Attention maps as files for other tools: JSON as BertViz takes it, and arrays for NumPy."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vaswani.files import write_bytes, write_text, writing
from vaswani.infer.attention.kinds import KINDS
from vaswani.infer.attention.maps import AttentionMap

AXES = ("layer", "head", "query", "key")


def bertviz(maps: Mapping[str, AttentionMap]) -> dict[str, Any]:
    """Returns the arguments of BertViz's `model_view` and `head_view`, whose tensors are lists here: a layer [1,h,t,s].

    Of an encoder-decoder they are `encoder_attention`, `decoder_attention`, `cross_attention`, `encoder_tokens` and
    `decoder_tokens`; else `attention` and `tokens`. A token of a decoder is what it has read, as in transformers: its
    row predicts the next one. Recurrent networks have `cross_attention` alone, and their decoder's tokens are those
    that it predicts.
    """
    layers = {kind: _layers(attention.weights_nhts) for kind, attention in maps.items()}
    if set(maps) == {"cross"}:
        return {
            "cross_attention": layers["cross"],
            "encoder_tokens": maps["cross"].keys,
            "decoder_tokens": maps["cross"].queries,
        }
    if set(maps) != set(KINDS):
        ((kind, attention),) = maps.items()
        return {"attention": layers[kind], "tokens": attention.keys}
    return {
        "encoder_attention": layers["encoder"],
        "decoder_attention": layers["decoder"],
        "cross_attention": layers["cross"],
        "encoder_tokens": maps["encoder"].keys,
        "decoder_tokens": maps["decoder"].keys,
    }


def _layers(weights_nhts: Float[np.ndarray, "n h t s"]) -> list[Any]:
    return weights_nhts[:, None].astype(np.float64).round(7).tolist()


def arrays(maps: Mapping[str, AttentionMap]) -> dict[str, np.ndarray]:
    """Returns the weights of each kind by its name, the tokens as KIND_queries and KIND_keys, and `axes`."""
    named: dict[str, np.ndarray] = {"axes": np.array(AXES)}
    for kind, attention in maps.items():
        named[kind] = attention.weights_nhts
        named[f"{kind}_queries"] = _texts(attention.queries)
        named[f"{kind}_keys"] = _texts(attention.keys)
    return named


def _texts(tokens: Sequence[str]) -> np.ndarray:
    return np.array(tokens, np.str_)


def write(maps: Mapping[str, AttentionMap], output: Path) -> None:
    """Writes NAME.json or NAME.npz.

    Raises:
      UserError: the file cannot be written.
    """
    with writing(f"--output={output}"):
        if output.suffix == ".json":
            write_text(output, json.dumps(bertviz(maps), ensure_ascii=False))
        else:
            named: dict[str, Any] = arrays(maps)  # for NumPy's types, of which some have more keywords
            packed = io.BytesIO()
            np.savez_compressed(packed, **named)
            write_bytes(output, packed.getvalue())
