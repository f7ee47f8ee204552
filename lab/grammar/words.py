"""The words of the rich grammar: several thousand, drawn by Zipf's law.

Each list begins with the words of the built-in grammar, which are the common ones; then come those of the tables
`tables/rich_*.tsv`, and then what is formed by rule: German compounds, which English writes as two words (garden door,
Gartentür), numbers, family names and towns. Some English nouns have several meanings (`SENSES`): who else the sentence
is about decides.
"""

import itertools
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from vaswani.data.grammar.lexicon import (
    ADJECTIVES,
    BASE,
    NOUNS,
    NUMBER_WORDS,
    VERBS,
    Lexicon,
    Noun,
    compound_numbers,
    make_adjective,
    make_noun,
    make_verb,
    table,
)

TABLES = Path(__file__).with_name("tables")
_DISHES = ("soup", "cake")  # of the built-in grammar, whose food has no kind `dish`
_NO_HEADS = ("T-shirt", "email", "city")  # of no compound
_OWN_MODIFIERS = {"clothing", "machine", "text", "vehicle"}  # kinds of things that do not take those of every thing


class Sense(NamedTuple):
    """One meaning of an ambiguous noun, and the people whose presence says that it is meant."""

    noun: Noun
    cues: tuple[Noun, ...]


def _shuffled(words: list[str]) -> list[str]:
    """Returns the words in an order that means nothing, the same always."""
    return sorted(words, key=lambda word: blake2b(word.encode()).digest())


def _takes(head: Noun, head_kinds: set[str]) -> bool:
    """Returns whether a noun forms compounds with the modifiers of these kinds of heads."""
    if head.en[0] in _NO_HEADS:
        return False
    if "thing" in head_kinds and head.kinds & (_OWN_MODIFIERS - head_kinds):
        return False
    return bool(head.kinds & head_kinds) or ("dish" in head_kinds and head.en[0] in _DISHES)


def _compound(english: str, german: str, head: Noun) -> Noun:
    singular, plural = (tuple(german + form[0].lower() + form[1:] for form in forms) for forms in head.de)
    return head._replace(en=(f"{english} {head.en[0]}", f"{english} {head.en[1]}"), de=(singular, plural))


def _compounds(nouns: list[Noun]) -> list[Noun]:
    """Returns all compounds of one modifier with a head of its kind, in an order that means nothing."""
    modifiers: dict[str, list[dict[str, str]]] = {}
    for row in table("rich_compounds", TABLES):
        modifiers.setdefault(row["head_kinds"], []).append(row)
    compounds: dict[str, Noun] = {}
    for head_kinds, rows in modifiers.items():
        heads = [head for head in nouns if _takes(head, set(head_kinds.split()))]
        for head, row in itertools.product(heads, rows):
            if row["english"] != head.en[0]:
                compound = _compound(row["english"], row["german"], head)
                compounds[compound.en[0]] = compound
    return [compounds[name] for name in _shuffled(list(compounds))]


def _numbers() -> dict[str, str]:
    """Returns the numbers from two to ninety-nine."""
    words = list(NUMBER_WORDS.items())
    units = dict(words[:9])
    numbers = dict(words[1:19])
    for english, german in words[19:]:
        numbers[english] = german
        numbers |= compound_numbers({english: german}, units)
    return numbers


def _rich() -> Lexicon:
    nouns = [*NOUNS, *map(make_noun, table("rich_nouns", TABLES))]
    verbs = [*VERBS, *map(make_verb, table("rich_verbs", TABLES))]
    adjectives = [*ADJECTIVES, *map(make_adjective, table("rich_adjectives", TABLES))]
    names = BASE.names | {row["name"]: row["pronoun"] for row in table("rich_names", TABLES)}

    parts: dict[str, list[str]] = {"start": [], "town": [], "family": []}
    for row in table("rich_name_parts", TABLES):
        parts[row["place"]].append(row["part"])
    families = [start + end for start in parts["start"] for end in parts["family"]]
    towns = [start + end for start in parts["start"] for end in parts["town"] if start.lower() != end]

    return Lexicon(
        [*nouns, *_compounds(nouns), *(sense.noun for sense in SENSES)],
        tuple(verbs),
        tuple(adjectives),
        names,
        (*BASE.families, *_shuffled(families)),
        _numbers(),
        towns=tuple(_shuffled(towns)),
        zipf=True,
    )


def _senses() -> tuple[Sense, ...]:
    cues: dict[str, list[Noun]] = {}
    for row in table("rich_cues", TABLES):
        cues.setdefault(row["domain"], []).append(make_noun(row))
    return tuple(Sense(make_noun(row), tuple(cues[row["domain"]])) for row in table("rich_senses", TABLES))


SENSES = _senses()
RICH = _rich()
