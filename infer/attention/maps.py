"""The attention weights of every layer and head, for a pair of sentences or for one text.

Rows are queries and columns keys (section 3.2). A decoder row is labelled with the token that it predicts, a column of
decoder self-attention with its input token: `<s>`, then the target. Layers and heads count from 1, as in the paper; in
the arrays, and in the names of parameters, from 0.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from base.errors import UserError
from base.ids import BOS, EOS, PAD
from base.tokens import Tokens
from data.classes import classes_of
from data.corrupt import MASK
from data.tokenizer import Tokenizer
from infer.runs import Run, finite
from infer.texts.blanks import BLANK, masked
from infer.translate.translator import translate_one
from model.config import ModelConfig
from model.language_model import LanguageModel
from model.masked_lm import MaskedLM
from model.mixers import MIXERS
from model.prefix_lm import translation_model

TASKS = ("translation", "prefix_lm", "denoising", "language_model", "masked_lm", "classification")  # with texts
WIDTH = 16  # rows are padded to a multiple, so that another sentence seldom compiles anything


class AttentionMap(NamedTuple):
    """One kind of attention for a pair of sentences: the weights of each layer and head, and the tokens as text."""

    queries: list[str]
    keys: list[str]
    weights_nhts: Float[np.ndarray, "n h t s"]


def run_maps(run: Run, source: str, target: str | None) -> tuple[str, dict[str, AttentionMap]]:
    """Returns a title and the maps of a run of any of `TASKS`. The default of `target` is the model's own output.

    Raises:
      UserError: the parameters are not finite, the model's mixer has no weights, the source is empty where no EOS is
        added to it, or there is a target and the model reads one text.
      ValueError: a sentence is longer than the model's learned positions.
    """
    config, task, params = run.model_config, run.config.task, finite(run)
    if task in ("language_model", "masked_lm", "classification"):
        if target is not None:
            raise UserError(f"--target={target}: a model of task {task} reads one text, the source")
        classes = len(classes_of(run.config.data.classes)) if task == "classification" else 0
        model = LanguageModel(config) if task == "language_model" else MaskedLM(config, classes)
        return source, text_maps(model, params, run.tokenizer, source)
    require_weights(config)
    target = translate_one(run, source) if target is None else target
    return f"{source} → {target}", attention_maps(config, params, run.tokenizer, source, target)


def attention_maps(
    config: ModelConfig, params: Any, tokenizer: Tokenizer, source: str, target: str
) -> dict[str, AttentionMap]:
    """Returns the attention of every layer and head, by kind, with `target` as the translation (teacher forcing).

    The kinds are "encoder", "decoder" and "cross". A decoder alone (`config.prefix`) has "decoder" alone, with the
    source's tokens before the target's.

    Raises:
      UserError: the model's mixer has no weights.
      ValueError: a sentence is longer than the model's learned positions.
    """
    source_ids, target_ids = [*tokenizer.encode(source), EOS], [*tokenizer.target.encode(target), EOS]
    read_ids = [BOS, *target_ids[:-1]]
    maps, (s_places, t_places) = _weights(config, translation_model(config), params, source_ids, read_ids)
    pieces, read, written = map(tokenizer.pieces, (source_ids, read_ids, target_ids))
    if config.prefix != "none":
        places = np.concatenate([s_places, maps["decoder"].shape[-1] - _width(config, read_ids) + t_places])
        return {"decoder": _taken([*pieces, *written], [*pieces, *read], maps["decoder"], places, places)}
    return {
        "encoder": _taken(pieces, pieces, maps["encoder"], s_places, s_places),
        "decoder": _taken(written, read, maps["decoder"], t_places, t_places),
        "cross": _taken(written, pieces, maps["cross"], t_places, s_places),
    }


def text_maps(model: LanguageModel | MaskedLM, params: Any, tokenizer: Tokenizer, text: str) -> dict[str, AttentionMap]:
    """Returns the attention of a model of one text, as "decoder" of a language model and else as "encoder".

    What a masked language model is to fill in is written as in `infer.fill`. Raises as `attention_maps`, and
    `UserError` if a language model has no token to predict.
    """
    if isinstance(model, LanguageModel):
        if not (written_ids := tokenizer.encode(text)):
            raise UserError("--source: there is no token in it to predict")
        read_ids = [BOS, *written_ids[:-1]]
        written, read = map(tokenizer.pieces, (written_ids, read_ids))
    else:
        read_ids = [*(tokenizer.encode(text) if model.classes else masked(tokenizer, text)), EOS]
        pieces = zip(read_ids, tokenizer.pieces(read_ids), strict=True)
        written = read = [BLANK if token == MASK else piece for token, piece in pieces]
    maps, (places,) = _weights(model.config, model, params, read_ids)
    ((kind, weights_nhtt),) = maps.items()
    return {kind: _taken(written, read, weights_nhtt, places, places)}


def _weights(config: ModelConfig, model: Any, params: Any, *rows: list[int]) -> tuple[dict, list[Int[np.ndarray, "_"]]]:
    """Returns the weights "n h t s" of each kind, and the places of each row's tokens in it."""
    require_weights(config)
    padded = (np.array([row + [PAD] * (_width(config, row) - len(row))], np.int32) for row in rows)
    maps = {kind: np.asarray(of_kind[:, 0], np.float32) for kind, of_kind in _compiled(model)(params, *padded).items()}
    return maps, [np.arange(len(row)) for row in rows]


def _width(config: ModelConfig, row: list[int]) -> int:
    return len(row) if config.encoding.limit else -(-len(row) // WIDTH) * WIDTH


def _taken(queries: list[str], keys: list[str], weights_nhts: np.ndarray, rows: Any, columns: Any) -> AttentionMap:
    return AttentionMap(queries, keys, weights_nhts[:, :, rows[:, None], columns[None]])


@cache
def _compiled(model: Any) -> Any:
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
