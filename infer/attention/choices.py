"""How probable a model finds each subword of a given output, and what it would rather write (teacher forcing)."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from vaswani.data.tokenizer import Tokenizer
from vaswani.ids import BOS, EOS
from vaswani.infer.attention.maps import AttentionMap, output_ids, padded_row
from vaswani.infer.attention.page import Choice
from vaswani.infer.runs import Run
from vaswani.model.config import CommonConfig
from vaswani.model.translation import translation_model
from vaswani.tokens import Tokens

ALTERNATIVES = 5


def translation_choices(
    config: CommonConfig, params: Any, tokenizer: Tokenizer, source: str, target: str | Sequence[int]
) -> tuple[list[Choice], float]:
    """Returns the choice at each subword of `target` and at the EOS after it, and the sum of their log p (natural).

    Raises:
      ValueError: a sentence is longer than the model's learned positions.
    """
    source_ids = tokenizer.source_ids(source)
    predicted_ids = [*output_ids(tokenizer, target), EOS]
    input_ids = [BOS, *predicted_ids[:-1]]
    source_bs = padded_row(config, source_ids)
    input_bt = padded_row(config, input_ids)
    log_probs_of = _compiled(translation_model(config))
    padded_btv = np.asarray(log_probs_of(params, source_bs, input_bt))
    length = len(predicted_ids)
    log_probs_tv = padded_btv[0, :length]
    log_probs_t = log_probs_tv[np.arange(length), predicted_ids]
    return _choices(log_probs_tv, predicted_ids, tokenizer), float(log_probs_t.sum(dtype=np.float64))


def run_choices(run: Run, maps: Mapping[str, AttentionMap], source: str, target: str) -> dict[str, list[Choice | None]]:
    """Returns the choices of a run at each query of its maps, which `infer.attention.maps.run_maps` has returned."""
    choices, _ = translation_choices(run.model_config, run.params, run.tokenizer, source, target)
    return choices_of_kinds(maps, choices)


def choices_of_kinds(maps: Mapping[str, AttentionMap], choices: list[Choice]) -> dict[str, list[Choice | None]]:
    """Returns the choice at each query of each kind whose queries end with the subwords of the output."""
    kinds: dict[str, list[Choice | None]] = {}
    for kind, attention in maps.items():
        if kind != "encoder":
            given = len(attention.queries) - len(choices)  # the source, which a decoder alone reads first
            kinds[kind] = [None] * given + [*choices]
    return kinds


def _choices(log_probs_tv: Float[np.ndarray, "t v"], ids: list[int], tokenizer: Tokenizer) -> list[Choice]:
    best_tk = np.argsort(-log_probs_tv, axis=1, kind="stable")[:, :ALTERNATIVES]
    choices = []
    for token, log_probs_v, best_k in zip(ids, log_probs_tv, best_tk, strict=True):
        pieces = tokenizer.target.pieces(best_k.tolist())
        probabilities = np.exp(log_probs_v[best_k]).tolist()
        is_better_v = log_probs_v > log_probs_v[token]
        rank = 1 + int(is_better_v.sum())
        probability = float(np.exp(log_probs_v[token]))
        choices.append(Choice(probability, rank, list(zip(pieces, probabilities, strict=True))))
    return choices


@cache
def _compiled(model: Any) -> Any:
    def log_probs(params: Any, source_bs: Int[jax.Array, "b s"], input_bt: Int[jax.Array, "b t"]) -> jax.Array:
        logits_btv = model.apply({"params": params}, Tokens.of(source_bs), Tokens.of(input_bt))
        return jax.nn.log_softmax(logits_btv, axis=-1)

    return jax.jit(log_probs)
