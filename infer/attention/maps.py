"""The attention weights of every layer and head, for a pair of sentences or for one text.

Rows are queries and columns keys (section 3.2). A decoder row is labelled with the token that it predicts, a column of
decoder self-attention with its input token: `<s>`, then the target. Layers and heads count from 1, as in the paper; in
the arrays, and in the names of parameters, from 0.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from vaswani.configs.rules import WITH_WEIGHTS
from vaswani.data.corrupt import MASK
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.attention.kinds import TITLES
from vaswani.infer.attention.page import Kind
from vaswani.infer.runs import Run, finite
from vaswani.infer.texts.blanks import BLANK, masked
from vaswani.model.baselines.recurrent_translator import RecurrentConfig
from vaswani.model.config import CommonConfig, ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.translation import translation_model
from vaswani.tasks import TRANSLATION, task_of
from vaswani.tokens import Tokens

ONE_TEXT = ("language_model", "masked_lm", "classification")  # tasks whose models read a text alone
TASKS = (*TRANSLATION, "denoising", *ONE_TEXT)
WIDTH = 16  # rows are padded to a multiple, so that another sentence seldom compiles anything


class AttentionMap(NamedTuple):
    """One kind of attention for a pair of sentences: the weights of each layer and head, and the tokens.

    These are pieces of the vocabulary (`Tokenizer.pieces`): in subwords, `▁` marks the start of a word.
    """

    queries: list[str]
    keys: list[str]
    weights_nhts: Float[np.ndarray, "n h t s"]


def run_maps(run: Run, source: str, target: str | None) -> tuple[str, dict[str, AttentionMap]]:
    """Returns a title and the maps of a run of any of `TASKS`; those of `ONE_TEXT` have no target.

    Raises:
      UserError: the parameters are not finite, the model has no weights, the source is empty where no EOS is
        added to it, or there is a target and the model reads one text.
      ValueError: a sentence is longer than the model's learned positions.
    """
    config = run.model_config
    task = run.config.task
    params = finite(run)
    if task in ONE_TEXT:
        if target is not None:
            raise UserError(f"--target={target}: a model of task {task} reads one text, the source")
        model = task_of(task).objective(run.config, config).model
        assert isinstance(model, LanguageModel | MaskedLM)
        return source, text_maps(model, params, run.tokenizer, source)
    assert target is not None, "a model of two texts has a target"
    return f"{source} → {target}", attention_maps(config, params, run.tokenizer, source, target)


def attention_maps(
    config: CommonConfig, params: Any, tokenizer: Tokenizer, source: str, target: str | Sequence[int]
) -> dict[str, AttentionMap]:
    """Returns the attention of every layer and head, by kind, with `target` as the translation (teacher forcing).

    A target is a text, or the subwords that a model has written, which need not be those of its text.

    The kinds are "encoder", "decoder" and "cross". A decoder alone (`config.prefix`) has "decoder" alone, with the
    source's tokens before the target's; recurrent networks with attention have "cross" alone.

    Raises:
      UserError: the model's mixer has no weights.
      ValueError: a sentence is longer than the model's learned positions.
    """
    source_ids = tokenizer.source_ids(source)
    predicted_ids = [*output_ids(tokenizer, target), EOS]
    input_ids = [BOS, *predicted_ids[:-1]]
    maps = _weights(config, translation_model(config), params, source_ids, input_ids)
    s_places = np.arange(len(source_ids))
    t_places = np.arange(len(input_ids))
    source_pieces = tokenizer.pieces(source_ids)
    input_pieces = tokenizer.target.pieces(input_ids)
    predicted = tokenizer.target.pieces(predicted_ids)
    if isinstance(config, RecurrentConfig):
        return {"cross": _without_padding(predicted, source_pieces, maps["cross"], t_places, s_places)}
    assert isinstance(config, ModelConfig)
    if config.prefix != "none":
        start = maps["decoder"].shape[-1] - _width(config, input_ids)  # of the target, in the decoder's one row
        places = np.concatenate([s_places, start + t_places])
        queries = source_pieces + predicted
        keys = source_pieces + input_pieces
        return {"decoder": _without_padding(queries, keys, maps["decoder"], places, places)}
    return {
        "encoder": _without_padding(source_pieces, source_pieces, maps["encoder"], s_places, s_places),
        "decoder": _without_padding(predicted, input_pieces, maps["decoder"], t_places, t_places),
        "cross": _without_padding(predicted, source_pieces, maps["cross"], t_places, s_places),
    }


def text_maps(model: LanguageModel | MaskedLM, params: Any, tokenizer: Tokenizer, text: str) -> dict[str, AttentionMap]:
    """Returns the attention of a model of one text, as "decoder" of a language model and else as "encoder".

    What a masked language model is to fill in is written as in `infer.fill`. Raises as `attention_maps`, and
    `UserError` if a language model has no token to predict.
    """
    if isinstance(model, LanguageModel):
        predicted_ids = tokenizer.encode(text)
        if not predicted_ids:
            raise UserError("--source: there is no token in it to predict")
        input_ids = [BOS, *predicted_ids[:-1]]
        queries = tokenizer.pieces(predicted_ids)
        keys = tokenizer.pieces(input_ids)
    else:
        ids = tokenizer.encode(text) if model.classes else masked(tokenizer, text)
        input_ids = [*ids, EOS]
        pieces = zip(input_ids, tokenizer.pieces(input_ids), strict=True)
        queries = [BLANK if token == MASK else piece for token, piece in pieces]
        keys = queries
    maps = _weights(model.config, model, params, input_ids)
    places = np.arange(len(input_ids))
    ((kind, weights_nhtt),) = maps.items()
    return {kind: _without_padding(queries, keys, weights_nhtt, places, places)}


def _weights(
    config: CommonConfig, model: Any, params: Any, *rows: list[int]
) -> dict[str, Float[np.ndarray, "n h t s"]]:
    """Returns the weights of each kind, those of padding among them."""
    require_weights(config)
    sides = [padded_row(config, row) for row in rows]
    # Waited for: where memory has run out, jax aborts the process if the result is used first.
    batch_maps = jax.block_until_ready(compiled_maps(model)(params, *sides))
    maps = {}
    for kind, weights_nbhts in batch_maps.items():
        maps[kind] = np.asarray(weights_nbhts[:, 0], np.float32)
    return maps


def output_ids(tokenizer: Tokenizer, target: str | Sequence[int]) -> list[int]:
    """Returns the ids of a target, a text or ids already, without EOS."""
    if isinstance(target, str):
        return tokenizer.target.encode(target)
    return [*target]


def titled(maps: Mapping[str, AttentionMap]) -> dict[str, Kind]:
    """Returns the maps with the titles of their kinds, as the page takes them."""
    return {kind: (TITLES[kind], *attention) for kind, attention in maps.items()}


def padded_row(config: CommonConfig, row: list[int]) -> Int[np.ndarray, "1 _"]:
    """Returns a batch of one row of ids, padded so that few widths are compiled."""
    padding = [PAD] * (_width(config, row) - len(row))
    return np.array([row + padding], np.int32)


def _width(config: CommonConfig, row: list[int]) -> int:
    if config.limit:  # padding could exceed it
        return len(row)
    return math.ceil(len(row) / WIDTH) * WIDTH


def _without_padding(
    queries: list[str], keys: list[str], weights_nhts: np.ndarray, rows: Any, columns: Any
) -> AttentionMap:
    """Returns the weights of these rows and columns, those of tokens."""
    return AttentionMap(queries, keys, weights_nhts[:, :, rows[:, None], columns[None]])


@cache
def compiled_maps(model: Any) -> Any:
    """Returns the jitted function of parameters and ids [b,_] of each side that returns the weights by kind."""
    return jax.jit(
        lambda params, *sides: model.apply({"params": params}, *map(Tokens.of, sides), method="attention_maps")
    )


def require_weights(config: CommonConfig) -> None:
    """Raises a `UserError` if the model's mixer, or a recurrent translator, has no attention weights."""
    if isinstance(config, RecurrentConfig):
        if config.recurrent == "fixed":
            raise UserError(
                "model.recurrent of this run is 'fixed', which has no attention weights; additive and dot have them"
            )
        return
    assert isinstance(config, ModelConfig)
    if config.mixer not in WITH_WEIGHTS:
        having = ", ".join(WITH_WEIGHTS)
        raise UserError(
            f"model.mixer of this run is {config.mixer!r}, which has no attention weights; {having} have them"
        )


def select(attention: AttentionMap, layer: int | None, head: int | None) -> dict[tuple[int, int], np.ndarray]:
    """Returns the selected weights by (layer, head), which count from 1; None selects all.

    Raises:
      UserError: the model has no such layer or head.
    """
    n, h = attention.weights_nhts.shape[:2]
    for name, value, count in (("layer", layer, n), ("head", head, h)):
        if value is not None and not 1 <= value <= count:
            raise UserError(f"--{name}={value}: the model's {name}s are 1 to {count}")
    layers = range(1, n + 1) if layer is None else (layer,)
    heads = range(1, h + 1) if head is None else (head,)
    selected = {}
    for i in layers:
        for j in heads:
            selected[i, j] = attention.weights_nhts[i - 1, j - 1]
    return selected
