"""Corrupts a text for a model to restore: single tokens masked (BERT), or spans left out (T5).

A record of the text becomes a pair, which is planned, packed and read like any other: the corrupted text, and what is
to be predicted. The corruption depends only on the seed, the epoch and the record's number. So every epoch masks other
tokens, and a resumed run, or one with several processes, masks the same ones as any other.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from vaswani.data.batching import Record
from vaswani.data.prepared import Prepared
from vaswani.data.tokenizer import STAND_IN, Tokenizer
from vaswani.errors import UserError
from vaswani.ids import EOS, PAD, UNK

MASK = UNK  # which no text has, since what a vocabulary lacks is spelled in bytes; `corruption` refuses others
_STREAM = 1  # tells these random numbers from those that plan an epoch


class Masking(NamedTuple):
    """Devlin et al. 2018, section 3.1: 80 % of the chosen tokens are masked, 10 % replaced and 10 % left as they are.

    The first side of a pair is the corrupted text; the second has the true tokens where they are to be predicted, and
    padding elsewhere. BOS and EOS are never chosen.
    """

    rate: float  # share of the tokens that are chosen, rounded, and at least one
    vocab_size: int

    def lengths(self, tokens_n: Int[np.ndarray, " n"]) -> Int[np.ndarray, "n 2"]:
        """Returns the lengths of both sides of a pair, given its text's length."""
        return np.stack([tokens_n, tokens_n], axis=1)

    def corrupt(self, ids: np.ndarray, random: np.random.Generator) -> Record:
        """Returns the pair of a text, which ends with EOS."""
        words = np.flatnonzero(ids > UNK)
        count = max(1, round(self.rate * len(words)))
        chosen = random.permutation(words)[:count]

        hidden = np.full_like(ids, PAD)
        hidden[chosen] = ids[chosen]

        uniform = random.random(len(chosen))
        replacements = random.integers(UNK + 1, self.vocab_size, len(chosen))
        replaced_or_kept = np.where(uniform < 0.9, replacements, ids[chosen])
        corrupted = ids.copy()
        corrupted[chosen] = np.where(uniform < 0.8, MASK, replaced_or_kept)
        return corrupted, hidden


class Spans(NamedTuple):
    """Raffel et al. 2020, section 3.1.4: spans are left out, each with a sentinel in its place.

    The second side of a pair has the spans, each after its sentinel, and one more sentinel. With the spans "b c" and
    "e" the text "a b c d e EOS" becomes "a <0> d <1> EOS" and "<0> b c <1> e <2> EOS".

    Their places and individual lengths are random; the length of the text decides how many spans there are, and how
    many tokens they have in total.
    """

    rate: float  # share of the tokens that are left out, rounded, and at least one of two
    mean: float  # tokens of a span; more where there are too few sentinels
    sentinels: tuple[int, ...]

    def counts(self, tokens_n: Int[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """Returns how many tokens are left out, and in how many spans, given each text's length, EOS counted."""
        words_n = tokens_n - 1
        most_hidden_n = np.maximum(words_n - 1, 0)
        hidden_n = np.clip(np.rint(self.rate * words_n), 1, most_hidden_n).astype(np.int32)

        # Each span has at least one token, and so does the text between two spans.
        fit_n = np.minimum(hidden_n, words_n - hidden_n + 1)
        most_spans_n = np.minimum(fit_n, len(self.sentinels) - 1)
        wanted_n = np.maximum(np.rint(hidden_n / self.mean), 1)
        spans_n = np.minimum(wanted_n, most_spans_n).astype(np.int32)
        return hidden_n, spans_n

    def lengths(self, tokens_n: Int[np.ndarray, " n"]) -> Int[np.ndarray, "n 2"]:
        """Returns the lengths of both sides of a pair, given its text's length."""
        hidden_n, spans_n = self.counts(tokens_n)
        return np.stack([tokens_n - hidden_n + spans_n, hidden_n + spans_n + 2], axis=1)

    def corrupt(self, ids: np.ndarray, random: np.random.Generator) -> Record:
        """Returns the pair of a text, which ends with EOS."""
        hidden_n, spans_n = self.counts(np.array([len(ids)]))
        hidden = int(hidden_n[0])
        spans = int(spans_n[0])
        kept = len(ids) - 1 - hidden
        kept_i = _composition(random, kept + 2, spans + 1)
        kept_i[0] -= 1  # nothing need be kept at either end, which is why two more were shared out
        kept_i[-1] -= 1
        hidden_i = _composition(random, hidden, spans)

        source: list[int] = []
        target: list[int] = []
        start = 0
        for sentinel, before, length in zip(self.sentinels, kept_i, [*hidden_i, 0], strict=False):
            span = start + before
            end = span + length
            source += [*ids[start:span], sentinel]
            target += [sentinel, *ids[span:end]]
            start = end
        source[-1] = EOS  # instead of the sentinel that ends the target
        return np.array(source, np.int32), np.array([*target, EOS], np.int32)


class Corrupted:
    """A prepared text whose records are corrupted, with the interface of a `Prepared` corpus of pairs."""

    def __init__(self, text: Prepared, corruption: Masking | Spans, seed: int = 0):
        self.manifest = text.manifest
        self.lengths = corruption.lengths(text.lengths[:, 0])
        self._text = text
        self._corruption = corruption
        self._seed = seed

    def records(self, indices: Sequence[int] | np.ndarray, epoch: int = 0) -> list[Record]:
        """Returns the pairs with these numbers, as they are in this epoch; raises as `Prepared.records`."""
        pairs = []
        for (ids,), number in zip(self._text.records(indices), indices, strict=True):
            random = np.random.default_rng([self._seed, epoch, int(number), _STREAM])
            pairs.append(self._corruption.corrupt(ids, random))
        return pairs


def corruption(task: str, cfg_data: ConfigDict, tokenizer: Tokenizer) -> Masking | Spans:
    """Returns the corruption of the task "masked_lm" or "denoising".

    Raises:
        UserError: the vocabulary lacks sentinels, is one of characters, which has no EOS, or reads what it lacks as
            `MASK`; or rows are windows.
    """
    if cfg_data.batching == "window":
        raise UserError(f"data.batching is window; task {task} reads whole lines: take bucket or pack")
    if tokenizer.units == "characters":
        raise UserError(f"config: task is {task}, which reads lines in subwords; data.train is in characters")
    if task == "masked_lm":
        if MASK in tokenizer.encode(STAND_IN):
            raise UserError(
                f"config: task is {task}, and the vocabulary of {cfg_data.tokenizer!r} does not spell in bytes what it"
                " lacks, which would be read as masked; train one with --byte_fallback"
            )
        return Masking(cfg_data.mask_rate, tokenizer.vocab_size)
    if len(tokenizer.sentinels) < 2:  # one for a span, and one for the end
        raise UserError(f"config: task is {task}, and the vocabulary of {cfg_data.tokenizer!r} lacks sentinels")
    return Spans(cfg_data.mask_rate, cfg_data.mean_span, tokenizer.sentinels)


def _composition(random: np.random.Generator, total: int, count: int) -> np.ndarray:
    """Returns a uniformly random composition of `total` into `count` positive parts."""
    if count == 0:
        return np.empty(0, np.int64)
    inner = np.sort(random.permutation(total - 1)[: count - 1]) + 1
    return np.diff([0, *inner, total])
