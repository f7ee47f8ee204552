"""Perplexity of the references per subword, with teacher forcing and without label smoothing."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from base.ids import EOS
from base.numbers import from_nll
from base.progress import Progress
from data.tokenizer import Tokenizer
from infer.scores.forced import forced_batches
from model.config import ModelConfig
from model.search.ensemble import searched
from model.search.scoring import forced_log_probs
from run.distributed import is_main
from run.sharding import cut_rows, data_mesh, fetch, place_params, row_parts

SHORTEST_ROW = 16


def perplexity(
    config: ModelConfig | tuple[ModelConfig, ...],
    params: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    tokens: int = 4096,
) -> float:
    """Returns exp of the mean negative log-likelihood (nats) of the references' subwords, EOS included.

    It depends on the subwords, so compare it only between models with the same tokenizer; it is `inf` on overflow.
    `tokens` bounds the positions per side of a batch. Of several configs, with a tuple of parameters, it is that of
    their ensemble.

    Raises:
      UserError: a sentence is longer than the table of learned positions.
    """
    log_probs = line_log_probs(config, params, tokenizer, sources, references, tokens=tokens)
    count = sum(len(tokenizer.target.encode(text)) + 1 for text in references)
    return from_nll(-float(log_probs.sum()) / count)


def line_log_probs(
    config: ModelConfig | tuple[ModelConfig, ...],
    params: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    tokens: int = 4096,
) -> np.ndarray:
    """Returns the log-probability (nats) of each target given its source, EOS included: that of a forced translation.

    The arguments are those of `perplexity`.

    Raises:
      UserError: a sentence is longer than the table of learned positions.
    """
    source_ids = [[*tokenizer.encode(text), EOS] for text in sources]
    target_ids = [[*tokenizer.target.encode(text), EOS] for text in targets]
    mesh = data_mesh()
    placed = place_params(mesh, params)
    token_log_probs = jax.jit(partial(forced_log_probs, searched(config)))
    configs = config if isinstance(config, tuple) else (config,)
    limits = [one.encoding.limit for one in configs if one.encoding.limit]

    def apply(source_bs: np.ndarray, target_bt: np.ndarray) -> np.ndarray:
        with jax.set_mesh(mesh):
            return fetch(token_log_probs(placed, cut_rows(mesh, source_bs), cut_rows(mesh, target_bt)))

    batches = forced_batches(
        apply,
        source_ids,
        target_ids,
        width=SHORTEST_ROW,
        doubled=True,
        tokens=tokens,
        limit=min(limits, default=None),
        multiple=row_parts(mesh),
    )
    log_probs = np.zeros(len(sources))
    done = 0
    shown = Progress("scoring", "sentences", total=len(sources), is_summarised=False, enabled=is_main())
    with shown as progress:
        for members, log_probs_bt in batches:
            row_sums = log_probs_bt.astype(np.float64).sum(axis=1)
            log_probs[members] = row_sums[: len(members)]
            done += len(members)
            progress.update(done)
    return log_probs
