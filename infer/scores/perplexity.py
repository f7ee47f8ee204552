"""How well a model expects the references: perplexity a subword, teacher-forced and without label smoothing."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from base.errors import UserError
from base.ids import EOS
from data.tokenizer import Tokenizer
from model.config import ModelConfig
from model.scoring import forced_log_probs
from model.transformer import Transformer
from run.sharding import cut_rows, data_mesh, fetch, place_params, row_parts

SHORTEST_ROW = 16


def perplexity(
    config: ModelConfig,
    params: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    tokens: int = 4096,
) -> float:
    """Returns exp of the mean negative log-likelihood (nats) of the references' subwords, every EOS counted.

    `tokens` bounds the positions a side of one batch. It depends on the subwords: compare it only between models with
    one tokenizer. `inf` where it exceeds what a float can hold.

    Raises:
      UserError: a sentence is longer than a model with learned positions can read.
    """
    encoded = [
        ([*tokenizer.encode(source), EOS], [*tokenizer.encode(reference), EOS])
        for source, reference in zip(sources, references, strict=True)
    ]
    log_probs, mesh = jax.jit(partial(forced_log_probs, Transformer(config))), data_mesh()
    params = place_params(mesh, params)
    total, count = 0.0, sum(len(target) for _, target in encoded)
    try:
        for source_bs, target_bt in _batches(encoded, tokens, row_parts(mesh)):
            with jax.set_mesh(mesh):
                found_bt = log_probs(params, cut_rows(mesh, source_bs), cut_rows(mesh, target_bt))
            total += float(fetch(found_bt).astype(np.float64).sum())
    except ValueError as error:
        raise UserError(f"a sentence is too long for this model: {error}") from error
    nll = -total / count
    return math.exp(nll) if nll < 700 else math.inf


def _batches(
    pairs: list[tuple[list[int], list[int]]], tokens: int, multiple: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of like length, one shape for every power of two, so that few programs are compiled."""
    by_length = defaultdict(list)
    for pair in pairs:
        longest = max(map(len, pair))
        by_length[max(SHORTEST_ROW, 1 << (longest - 1).bit_length())].append(pair)
    for length, group in sorted(by_length.items()):
        rows = -(-max(1, tokens // length) // multiple) * multiple
        for start in range(0, len(group), rows):
            batch_2bl = np.zeros((2, rows, length), np.int32)
            for row, pair in enumerate(group[start : start + rows]):
                for side, ids in enumerate(pair):
                    batch_2bl[side, row, : len(ids)] = ids
            yield batch_2bl[0], batch_2bl[1]
