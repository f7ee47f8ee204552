"""What the translation of a line must be like, and the rules of a search that see to it (`--require`)."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array

from vaswani.data.tokenizer import STAND_IN, Tokenizer
from vaswani.errors import UserError
from vaswani.ids import UNK
from vaswani.infer.translate.breaks import begins_in_chinese_or_japanese
from vaswani.infer.translate.spelling import Beginning, beginning_of, spelling_of
from vaswani.search.rules import Rules, Spelling


class Required(NamedTuple):
    """What the translation of a line must be like: begin with `prefix`, and contain each of `phrases`.

    It begins with the subwords of `prefix`; or, if that `may_go_on`, with its characters, whose last word may go on.
    """

    prefix: str = ""
    phrases: tuple[str, ...] = ()
    may_go_on: bool = False


class RequiredIds(NamedTuple):
    """The same in subwords: `rest` are the bytes of the last word of a beginning that may go on."""

    prefix: list[int]
    rest: bytes
    phrases: list[list[int]]

    @property
    def size(self) -> int:
        """The most subwords that it takes, EOS among them: each byte may be a separate one."""
        return len(self.prefix) + len(self.rest) + sum(map(len, self.phrases)) + 1


NONE_REQUIRED = RequiredIds([], b"", [])


def required_ids(target: Tokenizer, required: Required, line: int) -> RequiredIds:
    """Returns what is required of a line, in subwords of the target's tokenizer, which may itself begin a translation.

    Raises:
      UserError: it has a symbol of which no text is made, or a beginning that the vocabulary cannot spell.
    """
    prefix, rest = Beginning(target.encode(required.prefix) or list(target.begin), b"")
    if required.may_go_on and required.prefix:
        prefix, rest = beginning_of(target, required.prefix, line)
    phrases = [ids for ids in (_phrase(target, text) for text in required.phrases) if ids]
    if any(min(ids, default=UNK + 1) <= UNK for ids in (prefix, *phrases)):
        fault = "has a symbol that is not in the vocabulary, or is special"
        raise UserError(f"line {line}: what is required of its translation {fault}")
    return RequiredIds(prefix, rest, phrases)


def _phrase(target: Tokenizer, text: str) -> list[int]:
    """Returns the ids of a phrase within a sentence: a space comes before it, except in Chinese and Japanese."""
    ids = target.encode(text)
    if target.units != "subwords" or not ids or UNK in ids:
        return ids
    space = "" if begins_in_chinese_or_japanese(text) else " "
    before = target.encode(STAND_IN)
    return target.encode(f"{STAND_IN}{space}{text}")[len(before) :]


def with_required(
    rules: Rules, target: Tokenizer, required: Sequence[RequiredIds], rows: int, place: Callable[[np.ndarray], Array]
) -> Rules:
    """Returns the rules with what is required of the first of `rows` rows; `place` puts arrays where the batch is."""
    prefixes, rests, phrases = zip(*required, strict=True)
    if any(prefixes):
        rules = dataclasses.replace(rules, prefix_bp=place(_padded_prefixes(prefixes, rows)))
    if any(rests):
        spelling = Spelling(*map(place, spelling_of(target, rests, rows)))
        rules = dataclasses.replace(rules, spelling=spelling)
    if any(phrases):
        rules = dataclasses.replace(rules, phrases_bcl=place(_padded_phrases(phrases, rows)))
    return rules


def _padded_prefixes(prefixes: Sequence[list[int]], rows: int) -> np.ndarray:
    """Returns the ids of each row's prefix [b,p], with zeros behind them."""
    longest = max(map(len, prefixes))
    prefix_bp = np.zeros((rows, _rounded(longest)), np.int32)
    for row, prefix in enumerate(prefixes):
        prefix_bp[row, : len(prefix)] = prefix
    return prefix_bp


def _padded_phrases(phrases: Sequence[list[list[int]]], rows: int) -> np.ndarray:
    """Returns the ids of each row's phrases [b,phrases,l], with zeros behind them."""
    most = max(map(len, phrases))
    longest = max(len(ids) for row_phrases in phrases for ids in row_phrases)
    phrases_bcl = np.zeros((rows, _rounded(most, 2), _rounded(longest, 4)), np.int32)
    for row, row_phrases in enumerate(phrases):
        for number, ids in enumerate(row_phrases):
            phrases_bcl[row, number, : len(ids)] = ids
    return phrases_bcl


def _rounded(size: int, multiple: int = 8) -> int:
    """Returns the next multiple, so that few shapes are compiled."""
    return -(-size // multiple) * multiple
