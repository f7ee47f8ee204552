"""The built-in corpus, from words to phrases: noun phrases with agreement, places, directions and times.

The endings of article and adjective follow from the noun's gender, case and number and the kind of article.
`clauses.py` combines phrases into clauses.
"""

from typing import NamedTuple

from vaswani.data.grammar.lexicon import (
    ACCUSATIVE,
    CONTRACTIONS,
    DATIVE,
    DEFINITE,
    DIESER,
    EIN,
    ER,
    GENITIVE,
    IT,
    MIXED,
    NOMINATIVE,
    PLURAL,
    POSSESSIVES,
    PRONOUNS,
    RIDES,
    STRONG,
    WEAK,
    Noun,
    adjective_form,
)
from vaswani.data.grammar.syntax import Draft, Phrase, Word, leaf
from vaswani.data.trees.tree import Tree

PLACE_STYLES = (*("the",) * 8, "a", "this", "own")
_PLURAL_ONLY = {"number", "many", "bare", "any"}
_SINGULAR_ONLY = {"a", "every", "no"}
_INDEFINITE = {"a", "number", "many", "bare", "any"}
_PLACE_PREPOSITIONS = {"in": "in", "at": "an", "on": "auf"}

_TIMES = {  # one German word per English word, so that they align
    "present": (("DT every NN day", "jeden Tag"), ("NN today", "heute"), ("IN at CD {} NN o'clock", "um {} Uhr")),
    "past": (("NN yesterday", "gestern"), ("JJ last NN week", "letzte Woche"), ("IN on NNP Monday", "am Montag")),
    "future": (("NN tomorrow", "morgen"), ("JJ next NN week", "nächste Woche"), ("IN on NNP Friday", "am Freitag")),
}


class _Opening(NamedTuple):
    """What a noun phrase begins with, and the table of the endings that adjectives have after it."""

    en: list[Tree]
    de: list[Word]
    endings: dict[str, tuple[str, ...]]


def _opening(d: Draft, style: str, noun: Noun, plural: bool, case: int, not_leaf: Tree | None) -> _Opening:
    """Returns the determiner of a style, a name's genitive, or nothing; kein translates `not_leaf` too."""
    if style == "bare":
        return _Opening([], [], STRONG)
    if style == "name's":
        name = d.word(tuple(d.lexicon.names))
        owner = (leaf("NNP", name), leaf("POS", "'s"))
        return _Opening([Tree("NP", owner)], [Word(name + "s", owner)], STRONG)
    label, english, german, endings = _determiner(d, style, noun, plural, case, not_leaf is not None)
    determiner = leaf(label, english)
    if not_leaf is not None and style in ("a", "any"):
        word = Word(german, (not_leaf, determiner))
    else:
        word = Word(german, (determiner,))
    return _Opening([determiner], [word], endings)


def _determiner(d: Draft, style: str, noun: Noun, plural: bool, case: int, negated: bool) -> tuple[str, str, str, dict]:
    """Returns Penn label, English, German, and the table of adjective endings after it."""
    gender = "p" if plural else noun.gender
    if style == "the":
        return "DT", "the", DEFINITE[gender][case], WEAK
    if style == "this":
        return "DT", "these" if plural else "this", "dies" + DIESER[gender][case], WEAK
    if style == "every":
        return "DT", "every", "jed" + DIESER[gender][case], WEAK
    if style == "own":
        english = d.pick(tuple(POSSESSIVES))
        return "PRP$", english, POSSESSIVES[english] + EIN[gender][case], MIXED
    if style == "a":
        return "DT", "a", ("kein" if negated else "ein") + EIN[gender][case], MIXED
    if style in ("any", "no"):
        return "DT", style, "kein" + EIN[gender][case], MIXED
    if style == "number":
        english = d.word(tuple(d.lexicon.numbers))
        return "CD", english, d.lexicon.numbers[english], STRONG
    if style == "many":
        return "JJ", "many", "viel" + STRONG[gender][case], STRONG
    raise ValueError(f"no noun phrase has the style {style!r}")


def _is_plural(d: Draft, style: str, singular: bool) -> bool:
    if style in _PLURAL_ONLY:
        return True
    if style in _SINGULAR_ONLY or singular:
        return False
    return d.chance(25)


def noun_phrase(
    d: Draft,
    noun: Noun,
    case: int,
    style: str,
    not_leaf: Tree | None = None,
    plain: bool = False,
    singular: bool = False,
) -> Phrase:
    """Returns determiner, optional adjective, noun, optional genitive; kein translates the English `not_leaf`."""
    plural = _is_plural(d, style, singular)
    gender = "p" if plural else noun.gender
    en, de, endings = _opening(d, style, noun, plural, case, not_leaf)
    adjectives = d.lexicon.adjectives_for[noun.kinds]
    if adjectives and d.chance(15 if plain else 30):
        adjective = d.word(adjectives)
        adjective_leaf = leaf("JJ", adjective.en)
        en.append(adjective_leaf)
        de.append(Word(adjective_form(adjective.stem, endings[gender][case]), (adjective_leaf,)))

    # English writes a compound as several words, of which the last is inflected.
    *modifiers, last = noun.en[plural].split()
    head = leaf("NNS" if plural else "NN", last)
    compound = (*(leaf("NN", word) for word in modifiers), head)
    head_word = Word(noun.de[plural][case], compound)
    en += compound
    de.append(head_word)
    if style == "a" and str(en[1].children).startswith(tuple("aeiou")):
        _write_an(en, de)

    tree = Tree("NP", tuple(en))
    if style == "the" and case != GENITIVE and not plain and "person" not in noun.kinds and d.chance(10):
        tree, owner_words = _of_somebody(d, tree)
        de += owner_words
    pronoun = "they" if plural else noun.pronoun
    return Phrase(
        en=tree,
        de=de,
        agreement=PLURAL if plural else ER,
        pronoun="" if style in ("every", "no") else pronoun,
        kinds=noun.kinds,
        noun=noun,
        heads=(head, head_word),
        definite=style not in _INDEFINITE,
        negative=style == "no" or (not_leaf is not None and style in ("a", "any")),
    )


def _write_an(en: list[Tree], de: list[Word]) -> None:
    """Replaces the leaf `a`, the first, by `an`."""
    an = leaf("DT", "an")
    *negation, _ = de[0].sources
    en[0] = an
    de[0] = Word(de[0].text, (*negation, an))


def _of_somebody(d: Draft, thing: Tree) -> tuple[Tree, list[Word]]:
    """Returns "the thing of the person", and the German genitive, whose article translates `of` too."""
    person = noun_phrase(d, d.noun("person"), GENITIVE, "the", plain=True)
    preposition_leaf = leaf("IN", "of")
    tree = Tree("NP", (thing, Tree("PP", (preposition_leaf, person.en))))
    article, *others = person.de
    return tree, [Word(article.text, (preposition_leaf, *article.sources)), *others]


def pronoun_phrase(key: str, case: int, noun: Noun | None = None) -> Phrase:
    """Returns a personal pronoun; the German for `it` has the gender of the noun it stands for."""
    if key == "it":
        assert noun is not None
        english = "it"
        german = IT[noun.gender][case]
        agreement = ER
    else:
        pronoun = PRONOUNS[key]
        english = pronoun.subject if case == NOMINATIVE else pronoun.object
        german = pronoun.de[case]
        agreement = pronoun.agreement
    pronoun_leaf = leaf("PRP", english)
    word = Word(german, (pronoun_leaf,))
    return Phrase(
        en=Tree("NP", (pronoun_leaf,)),
        de=[word],
        agreement=agreement,
        pronoun=key,
        kinds=noun.kinds if noun else frozenset({"person"}),
        noun=noun,
        heads=(pronoun_leaf, word),
        light=True,
    )


def name_phrase(d: Draft) -> Phrase:
    """Returns a name, which is the same in every case."""
    name = d.word(tuple(d.lexicon.names))
    name_leaf = leaf("NNP", name)
    name_word = Word(name, (name_leaf,))
    en = [name_leaf]
    de = [name_word]
    if d.lexicon.zipf and d.chance(40):
        family = d.word(d.lexicon.families)
        family_leaf = leaf("NNP", family)
        en.append(family_leaf)
        de.append(Word(family, (family_leaf,)))
    return Phrase(
        en=Tree("NP", tuple(en)),
        de=de,
        pronoun=d.lexicon.names[name],
        kinds=frozenset({"person"}),
        heads=(name_leaf, name_word),
    )


def preposition(english: str, german: str, phrase: Phrase) -> Phrase:
    """Returns a PP; German contracts preposition and article if possible (in dem = im)."""
    preposition_leaf = leaf("TO" if english == "to" else "IN", english)
    first, *others = phrase.de
    contracted = CONTRACTIONS.get((german, first.text))
    if contracted:
        de = [Word(contracted, (preposition_leaf, *first.sources)), *others]
    else:
        de = [Word(german, (preposition_leaf,)), *phrase.de]
    return Phrase(Tree("PP", (preposition_leaf, phrase.en)), de)


def _town(d: Draft, english: str, german: str) -> Phrase:
    town = d.word(d.lexicon.towns)
    town_leaf = leaf("NNP", town)
    return preposition(english, german, Phrase(Tree("NP", (town_leaf,)), [Word(town, (town_leaf,))]))


def _place(d: Draft, english: str, german: str, kind: str, case: int, vary: bool = False) -> Phrase:
    """Returns a preposition and a noun of this kind, with `the` or, if it may `vary`, in one of `PLACE_STYLES`."""
    noun = d.noun(kind)
    style = d.pick(PLACE_STYLES) if vary else "the"
    return preposition(english, german, noun_phrase(d, noun, case, style, plain=True, singular=True))


def location(d: Draft, kinds: frozenset[str] = frozenset()) -> Phrase:
    """Returns a place: in / at / on something, in the dative; small things may also be on the table."""
    if kinds & {"thing", "food"} and d.chance(40):
        return _place(d, "on", "auf", "onto", DATIVE)
    if d.lexicon.towns and d.chance(40):
        return _town(d, "in", "in")
    english = d.pick(("in", "in", "in", "in", "at", "on"))
    noun = d.noun(english)
    style = d.pick(PLACE_STYLES) if english == "in" else "the"
    if english == "at" and d.chance(25):
        return preposition("at", "an", _bank_of_the_river())
    phrase = noun_phrase(d, noun, DATIVE, style, plain=True, singular=True)
    return preposition(english, _PLACE_PREPOSITIONS[english], phrase)


def _bank_of_the_river() -> Phrase:
    the = leaf("DT", "the")
    bank = leaf("NN", "bank")
    of_leaf = leaf("IN", "of")
    second_the = leaf("DT", "the")
    river = leaf("NN", "river")
    of_the_river = Tree("PP", (of_leaf, Tree("NP", (second_the, river))))
    en = Tree("NP", (Tree("NP", (the, bank)), of_the_river))
    de = [Word("dem", (the,)), Word("Ufer", (bank,)), Word("des", (of_leaf, second_the)), Word("Flusses", (river,))]
    return Phrase(en, de)


def direction(d: Draft, frame: str) -> list[Phrase]:
    """Returns goal and vehicle: `into` takes the accusative, `to` is zu; one swims to a river's bank, and walks to the
    other kind.
    """
    if frame == "put":
        return [_place(d, "onto", "auf", "onto", ACCUSATIVE)]
    if frame == "swim" or d.chance(10):
        bank = d.lexicon.nouns_of["shore" if frame == "swim" else "money"][0]
        goal = preposition("to", "zu", noun_phrase(d, bank, DATIVE, "the", plain=True, singular=True))
    elif d.lexicon.towns and d.chance(40):
        goal = _town(d, "to", "nach")
    elif d.chance(50):
        goal = _place(d, "into", "in", "into", ACCUSATIVE, vary=True)
    else:
        goal = _place(d, "to", "zu", "to", DATIVE, vary=True)
    return [goal, _ride(d)] if frame == "ride" else [goal]


def _ride(d: Draft) -> Phrase:
    english = d.pick(tuple(RIDES))
    gender, german = RIDES[english].split()
    by = leaf("IN", "by")
    vehicle = leaf("NN", english)
    de = [Word("mit", (by,)), Word(DEFINITE[gender][DATIVE], (by,)), Word(german, (vehicle,))]
    return Phrase(Tree("PP", (by, Tree("NP", (vehicle,)))), de)


def time_phrase(d: Draft, tense: str) -> Phrase:
    """Returns a time that fits the tense."""
    if tense in ("past", "could"):
        times = _TIMES["past"]
    elif tense in ("will", "want", "should"):
        times = _TIMES["future"]
    else:
        times = _TIMES["present"]
    english, german = d.pick(times)
    hour = d.pick(("7", "8", "9", "10", "11"))
    labels_and_words = english.format(hour).split()
    leaves = [leaf(*pair) for pair in zip(labels_and_words[::2], labels_and_words[1::2], strict=True)]
    de = [Word(text, (source,)) for text, source in zip(german.format(hour).split(), leaves, strict=True)]
    if leaves[0].label == "IN":
        en = Tree("PP", (leaves[0], Tree("NP", tuple(leaves[1:]))))
    else:
        en = Tree("NP", tuple(leaves))
    return Phrase(en, de)
