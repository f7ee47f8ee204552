"""Exact match with the oracle length: of greedy search that is told the length of each output.

Newman et al. 2020 (arXiv 2010.07174) score models so, to tell those that end too early or too late from those whose
words are wrong. A model that has lost count may be right here: what it would still repeat is cut off. Their models
are trained with EOS or without; ours always with it.
"""

from collections.abc import Sequence
from typing import Any

from vaswani.data.tokenizer import Tokenizer
from vaswani.infer.scores.bleu import Score
from vaswani.infer.scores.forced import line_sums
from vaswani.model.config import CommonConfig
from vaswani.search.scoring import forced_errors


def exact_match(
    config: CommonConfig | tuple[CommonConfig, ...],
    params: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    references: Sequence[str],
) -> Score:
    """Computes the percentage of lines whose tokens are the reference's, with as many as it has.

    The search runs no steps: a line is right if, after the reference's first t tokens, the next one is the
    likeliest of all but the special ones, for each t. The limit on the length of an output does not apply. The
    arguments and errors are as in `infer.scores.forced.line_sums`.
    """
    errors = line_sums(forced_errors, config, params, tokenizer, sources, references)
    return Score(100 * float((errors == 0).mean()), "search:greedy|length:of the reference|equal:tokens")
