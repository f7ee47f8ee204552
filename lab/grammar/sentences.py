"""Sentence pairs of the rich grammar, and of the built-in one by the same names.

rich:train, rich:valid and rich:test have several thousand words by Zipf's law, with compounds and names (`words.py`),
and sentences whose words are decided from afar (`rules.py`).
"""

from lab.grammar.rules import RICH_RULES
from lab.grammar.words import RICH
from vaswani.data.grammar import sentences as plain
from vaswani.data.grammar.lexicon import BASE, Lexicon
from vaswani.data.grammar.sentences import Example, Split, draw

RICH_SPLITS = {f"rich:{split}": Split(RICH_RULES, bucket=split, lexicon=RICH) for split in plain.SPLITS}


def lexicon_of(split: str) -> Lexicon:
    """Returns the words that the sentences of a split are drawn from."""
    return RICH if split in RICH_SPLITS else BASE


def pair(split: str, index: int) -> Example:
    """Returns pair number `index` of a split; raises ValueError for an unknown split."""
    if split in RICH_SPLITS:
        return draw(RICH_SPLITS[split], f"0/{split}/{index}")
    return plain.pair(split, index)
