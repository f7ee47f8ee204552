"""Word alignments from the attention of the decoder over the encoder; see `infer.align` for the definition."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from base.errors import UserError
from base.ids import BOS, EOS
from base.tokens import Tokens
from data.batching import length_batches
from data.tokenizer import Tokenizer
from infer.runs import Run, open_run
from infer.scores.pairs import read_pair
from model.transformer import Transformer

WIDTH, TOKENS = 16, 2048  # row lengths are multiples of WIDTH, so that little is compiled; positions of a batch


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Returns the number of the word, from 0, that each subword belongs to."""
    return [max(0, word - 1) for word in np.cumsum(tokenizer.word_starts(ids)).tolist()]


def links_of(
    weights_ts: Float[np.ndarray, "t s"], source_words: Sequence[int], target_words: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns (source word, target word) for each target word; the first source word of equals."""
    if not source_words or not target_words:
        return []
    summed = np.zeros((target_words[-1] + 1, source_words[-1] + 1))
    for t, target in enumerate(target_words):
        for s, source in enumerate(source_words):
            summed[target, source] += weights_ts[t, s]
    best: Int[np.ndarray, " t"] = summed.argmax(axis=1)
    return [(int(source), target) for target, source in enumerate(best)]


def align(model_run: Run, pairs: Sequence[tuple[str, str]], layer: int) -> list[list[tuple[int, int]]]:
    """Returns the links of each pair, by the mean over the heads of decoder layer `layer`, from 0.

    Raises:
      UserError: a sentence is longer than the model's learned positions.
    """
    tokenizer, model = model_run.tokenizer, Transformer(model_run.model_config)
    ids = [(tokenizer.encode(source), tokenizer.target.encode(target)) for source, target in pairs]
    sources, targets = [[*source, EOS] for source, _ in ids], [[BOS, *target] for _, target in ids]
    found = jax.jit(
        lambda params, *sides: model.apply({"params": params}, *map(Tokens.of, sides), method="attention_maps")["cross"]
    )
    lengths = [max(map(len, sides)) for sides in zip(sources, targets, strict=True)]
    links: list[list[tuple[int, int]]] = [[] for _ in pairs]
    try:
        row_lengths, limit = range(WIDTH, max(lengths) + WIDTH, WIDTH), model_run.model_config.encoding.limit
        for batch in length_batches(lengths, row_lengths, tokens=TOKENS, limit=limit):
            mean_bts = np.asarray(found(model_run.params, batch.padded(sources), batch.padded(targets))[layer].mean(1))
            for row, pair in enumerate(batch.members):
                source_words = words_of(tokenizer, ids[pair][0])
                target_words = words_of(tokenizer.target, ids[pair][1])
                links[pair] = links_of(mean_bts[row], source_words, target_words)
    except ValueError as error:
        raise UserError(f"a sentence is too long for this model: {error}") from error
    return links


def main(options: Any) -> None:
    """Prints the links of each pair of two files, as `infer.align` says."""
    pairs = list(zip(*read_pair(options.source, options.target), strict=True))
    model_run = open_run(options.workdir, options.checkpoint)
    layers = model_run.model_config.N
    layer = max(1, layers - 1) if options.layer is None else options.layer
    if not 1 <= layer <= layers:
        raise UserError(f"--layer={layer}: the model's layers are 1 to {layers}")
    for links in align(model_run, pairs, layer - 1):
        print(" ".join(f"{source}-{target}" for source, target in links))
