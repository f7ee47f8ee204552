"""Perplexity of the references per subword, with teacher forcing and without label smoothing."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from vaswani.data.tokenizer import Tokenizer
from vaswani.infer.scores.forced import line_sums
from vaswani.model.config import CommonConfig
from vaswani.numbers import from_nll
from vaswani.search.scoring import forced_log_probs

# Returns the log-probability (nats) of each target given its source, EOS included: a forced translation's.
line_log_probs = partial(line_sums, forced_log_probs)


def perplexity(
    config: CommonConfig | tuple[CommonConfig, ...],
    params: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    tokens: int = 4096,
) -> float:
    """Returns exp of the mean negative log-likelihood (nats) of the references' subwords, EOS included.

    It depends on the subwords, so compare it only between models with the same tokenizer; it is `inf` on overflow. The
    arguments and errors are as in `infer.scores.forced.line_sums`.
    """
    log_probs = line_log_probs(config, params, tokenizer, sources, references, tokens=tokens)
    count = sum(len(tokenizer.target.encode(text)) + 1 for text in references)
    return from_nll(-float(log_probs.sum()) / count)
