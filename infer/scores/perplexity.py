"""Perplexity of the references per subword, with teacher forcing and without label smoothing."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from base.errors import UserError
from base.ids import EOS
from base.numbers import from_nll
from data.batching import length_batches
from data.tokenizer import Tokenizer
from model.config import ModelConfig
from model.prefix_lm import translation_model
from model.search.scoring import forced_log_probs
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
    """Returns exp of the mean negative log-likelihood (nats) of the references' subwords, EOS included.

    It depends on the subwords, so compare it only between models with the same tokenizer; it is `inf` on overflow.
    `tokens` bounds the positions per side of a batch.

    Raises:
      UserError: a sentence is longer than the table of learned positions.
    """
    log_probs = line_log_probs(config, params, tokenizer, sources, references, tokens=tokens)
    count = sum(len(tokenizer.target.encode(text)) + 1 for text in references)
    return from_nll(-float(log_probs.sum()) / count)


def line_log_probs(
    config: ModelConfig,
    params: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    tokens: int = 4096,
) -> np.ndarray:
    """Returns the log-probability (nats) of each target given its source, EOS included: that of a forced translation.

    Raises:
      UserError: a sentence is longer than the table of learned positions.
    """
    both = ((tokenizer, sources), (tokenizer.target, targets))
    sides = [[[*side.encode(text), EOS] for text in texts] for side, texts in both]
    log_probs, mesh = jax.jit(partial(forced_log_probs, translation_model(config))), data_mesh()
    params, found = place_params(mesh, params), np.zeros(len(sources))
    try:
        lengths = [max(map(len, pair)) for pair in zip(*sides, strict=True)]
        multiple, limit = row_parts(mesh), config.encoding.limit
        for batch in length_batches(lengths, (SHORTEST_ROW,), tokens=tokens, multiple=multiple, limit=limit):
            with jax.set_mesh(mesh):
                found_bt = log_probs(params, *(cut_rows(mesh, batch.padded(side)) for side in sides))
            of_rows = fetch(found_bt).astype(np.float64).sum(axis=1)
            found[np.array(batch.members)] = of_rows[: len(batch.members)]
    except ValueError as error:
        raise UserError(f"a sentence is too long for this model: {error}") from error
    return found
