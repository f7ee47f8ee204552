"""The attention weights of every layer and head for a pair of sentences.

Rows are queries and columns keys (section 3.2). A decoder row is labelled with the token that it predicts, a column of
decoder self-attention with its input token: `<s>`, then the target. Layers and heads count from 1, as in the paper; in
the arrays, and in the names of parameters, from 0.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from base.errors import UserError
from base.ids import BOS, EOS, PAD
from data.tokenizer import Tokenizer
from infer.attention.page import KINDS
from model.config import ModelConfig
from model.mixers import MIXERS
from model.tokens import Tokens
from model.transformer import Transformer

WIDTH = 16  # rows are padded to a multiple, so that another sentence seldom compiles anything


class AttentionMap(NamedTuple):
    """One kind of attention for a pair of sentences: the weights of each layer and head, and the tokens as text."""

    queries: list[str]
    keys: list[str]
    weights_nhts: Float[np.ndarray, "n h t s"]


def attention_maps(
    config: ModelConfig, params: Any, tokenizer: Tokenizer, source: str, target: str
) -> dict[str, AttentionMap]:
    """Returns the attention of every layer and head, by kind, with `target` as the translation (teacher forcing).

    Raises:
      UserError: the model's mixer has no weights.
      ValueError: a sentence is longer than the model's learned positions.
    """
    require_weights(config)
    source_ids, target_ids = [*tokenizer.encode(source), EOS], [*tokenizer.target.encode(target), EOS]
    read_ids = [BOS, *target_ids[:-1]]
    width = 1 if config.encoding.limit else WIDTH
    sides = (np.array([ids + [PAD] * (-len(ids) % width)], np.int32) for ids in (source_ids, read_ids))
    maps = {kind: np.asarray(weights[:, 0], np.float32) for kind, weights in _compiled(config)(params, *sides).items()}
    s, t = len(source_ids), len(read_ids)
    sizes = {"encoder": (s, s), "decoder": (t, t), "cross": (t, s)}
    read, written = tokenizer.pieces(read_ids), tokenizer.pieces(target_ids)
    pieces = tokenizer.pieces(source_ids)
    tokens = {"encoder": (pieces, pieces), "decoder": (written, read), "cross": (written, pieces)}
    return {kind: AttentionMap(*tokens[kind], maps[kind][:, :, : sizes[kind][0], : sizes[kind][1]]) for kind in KINDS}


@cache
def _compiled(config: ModelConfig) -> Any:
    model = Transformer(config)
    return jax.jit(
        lambda params, *sides: model.apply({"params": params}, *map(Tokens.of, sides), method="attention_maps")
    )


def require_weights(config: ModelConfig) -> None:
    """Raises a `UserError` if the model's mixer has no attention weights."""
    if not MIXERS[config.mixer].weights:
        having = ", ".join(name for name, can in MIXERS.items() if can.weights)
        raise UserError(f"model.mixer of this run is {config.mixer!r}, which has no attention weights; {having} have")


def select(attention: AttentionMap, layer: int | None, head: int | None) -> dict[tuple[int, int], np.ndarray]:
    """Returns the selected weights by (layer, head), which count from 1; None selects all.

    Raises:
      UserError: the model has no such layer or head.
    """
    n, h = attention.weights_nhts.shape[:2]
    for name, value, count in (("layer", layer, n), ("head", head, h)):
        if value is not None and not 1 <= value <= count:
            raise UserError(f"--{name}={value}: the model's {name}s are 1 to {count}")
    layers, heads = range(1, n + 1) if layer is None else (layer,), range(1, h + 1) if head is None else (head,)
    return {(i, j): attention.weights_nhts[i - 1, j - 1] for i in layers for j in heads}
