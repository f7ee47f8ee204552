"""Sentences of the built-in grammar that differ in one noun, and so do their translations."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from vaswani.data.grammar import sentences as grammar
from vaswani.data.grammar.lexicon import NOUNS, VERBS, Noun, Verb

_WORDS: tuple[Noun | Verb, ...] = (*NOUNS, *VERBS)
_FORMS = Counter(form for word in _WORDS for form in set(word.en))
# A noun whose forms no other word has means the same in every sentence.
_CLEAR = [noun for noun in NOUNS if all(_FORMS[form] == 1 for form in noun.en)]


class MinimalPair(NamedTuple):
    """Two sentences and their translations, (English, German), that differ in a noun."""

    first: tuple[str, str]
    second: tuple[str, str]


def minimal_pairs(split: str) -> Iterator[MinimalPair]:
    """Yields pairs for ever, at most one of each sentence of the split."""
    for index in itertools.count():
        example = grammar.pair(split, index)
        pairs = _of_sentence(example.english, example.german)
        chosen = next(itertools.islice(pairs, index % 7, None), None)  # not always the first noun of the list
        if chosen:
            yield chosen


def _of_sentence(english: str, german: str) -> Iterator[MinimalPair]:
    for noun, plural in itertools.product(_CLEAR, (False, True)):
        word = noun.en[plural]
        translations = [form for form in set(noun.de[plural]) if _occurs_once(form, german)]
        if not _occurs_once(word, english) or len(translations) != 1:
            continue
        for other in _CLEAR:
            replacement = _translation(noun, other, plural, translations[0])
            if _is_exchangeable(noun, other) and replacement and not _occurs(other.en[plural], english):
                second_english = _replaced(word, other.en[plural], english)
                second_german = _replaced(translations[0], replacement, german)
                yield MinimalPair((english, german), (second_english, second_german))


def _is_exchangeable(noun: Noun, other: Noun) -> bool:
    """Returns whether nothing else changes: not a or an, an article, a pronoun or the sense of another word."""
    if noun == other or _takes_an(noun) != _takes_an(other):
        return False
    return (noun.gender, noun.kinds, noun.pronoun) == (other.gender, other.kinds, other.pronoun)


def _takes_an(noun: Noun) -> list[bool]:
    """Returns of each form whether it begins with a vowel, and so follows "an"."""
    return [form[0] in "aeiou" for form in noun.en]


def _translation(noun: Noun, other: Noun, plural: bool, form: str) -> str | None:
    """Returns the other noun in the case of `form`, unless that depends on which of several cases it is."""
    cases = zip(noun.de[plural], other.de[plural], strict=True)
    forms = {theirs for ours, theirs in cases if ours == form}
    return forms.pop() if len(forms) == 1 else None


def _occurs(word: str, text: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


def _occurs_once(word: str, text: str) -> bool:
    return len(re.findall(rf"\b{word}\b", text)) == 1


def _replaced(word: str, other: str, text: str) -> str:
    return re.sub(rf"\b{word}\b", other, text)
