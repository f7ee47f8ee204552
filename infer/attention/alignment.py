"""Word alignments from the attention of the decoder over the encoder; see `infer.align` for the definition."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from vaswani.data.tokenizer import Tokenizer
from vaswani.ids import BOS
from vaswani.infer.runs import Run, finite
from vaswani.infer.scores.forced import forced_batches
from vaswani.model.transformer import Transformer
from vaswani.progress import Progress
from vaswani.tokens import Tokens

WIDTH = 16  # row lengths are multiples of this, so that little is compiled
TOKENS = 2048  # positions of a batch


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Returns the number of the word, from 0, that each subword belongs to."""
    return [max(0, word - 1) for word in np.cumsum(tokenizer.word_starts(ids)).tolist()]


def words_of_line(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[int]:
    """Returns the number of the word of a line, from 0, that each of its subwords belongs to.

    NFKC makes two words of one with ´ in it, which is a space and an accent. Of a tokenizer with words of its own, such
    as Moses', the numbers are theirs.
    """
    words = words_of(tokenizer, ids)
    of_line: list[int] = []
    for number, word in enumerate(text.split()):
        of_line += [number] * len(tokenizer.normalise(word).split())
    if not words or words[-1] + 1 != len(of_line):
        return words
    return [of_line[word] for word in words]


def links_of(
    weights_ts: Float[np.ndarray, "t s"], source_words: Sequence[int], target_words: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns (source word, target word) for each target word; of source words that tie, the first."""
    if not source_words or not target_words:
        return []
    words = np.array(target_words)[:, None], np.array(source_words)[None]
    of_subwords = weights_ts[: len(target_words), : len(source_words)]
    summed = np.zeros((target_words[-1] + 1, source_words[-1] + 1))
    np.add.at(summed, words, of_subwords)
    best: Int[np.ndarray, " t"] = summed.argmax(axis=1)
    return [(int(best[target]), target) for target in dict.fromkeys(target_words)]


def align(model_run: Run, pairs: Sequence[tuple[str, str]], layer: int) -> list[list[tuple[int, int]]]:
    """Returns the links of each pair, by the mean over the heads of decoder layer `layer`, from 0.

    Raises:
      UserError: the parameters are not finite, or a sentence is longer than the model's learned positions.
    """
    params = finite(model_run)
    tokenizer = model_run.tokenizer
    model = Transformer(model_run.model_config)
    source_ids = [tokenizer.encode(source) for source, _ in pairs]
    target_ids = [tokenizer.target.encode(target) for _, target in pairs]
    sources = [[*ids, *tokenizer.source_end] for ids in source_ids]
    targets = [[BOS, *ids] for ids in target_ids]

    @jax.jit
    def cross_attention(
        params: dict, source_bs: Int[Array, "b s"], target_bt: Int[Array, "b t"]
    ) -> Float[Array, "n b h t s"]:
        source = Tokens.of(source_bs)
        target = Tokens.of(target_bt)
        return model.apply({"params": params}, source, target, method="attention_maps")["cross"]

    def mean_over_heads(source_bs: np.ndarray, target_bt: np.ndarray) -> np.ndarray:
        # Waited for: where memory has run out, jax aborts the process if the result is used first.
        weights_nbhts = jax.block_until_ready(cross_attention(params, source_bs, target_bt))
        return np.asarray(weights_nbhts[layer].mean(1))

    limit = model_run.model_config.limit
    batches = forced_batches(mean_over_heads, sources, targets, width=WIDTH, tokens=TOKENS, limit=limit)
    links: list[list[tuple[int, int]]] = [[] for _ in pairs]
    done = 0
    with Progress("aligning", "pairs", total=len(pairs), is_summarised=False) as progress:
        for members, mean_bts in batches:
            for mean_ts, number in zip(mean_bts, members, strict=False):  # padding rows come last
                source, target = pairs[number]
                source_words = words_of_line(tokenizer, source, source_ids[number])
                target_words = words_of_line(tokenizer.target, target, target_ids[number])
                links[number] = links_of(mean_ts, source_words, target_words)
            done += len(members)
            progress.update(done)
    return links
