"""The built-in corpus, from words to phrases: noun phrases with agreement, places, directions and times.

The endings of article and adjective follow from the noun's gender, case and number and the kind of article.
`clauses.py` combines phrases into clauses.
"""

from data.grammar.lexicon import (
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
from data.grammar.syntax import Draft, Phrase, Word, leaf
from data.trees.tree import Tree

PLACE_STYLES = ("the",) * 8 + ("a", "this", "own")
_PLURAL_ONLY, _SINGULAR_ONLY = {"number", "many", "bare", "any"}, {"a", "every", "no"}
_INDEFINITE = {"a", "number", "many", "bare", "any"}
_PLACE_PREPOSITIONS = {"in": "in", "at": "an", "on": "auf"}

_TIMES = {  # one German word per English word, so that they align
    "present": (("DT every NN day", "jeden Tag"), ("NN today", "heute"), ("IN at CD {} NN o'clock", "um {} Uhr")),
    "past": (("NN yesterday", "gestern"), ("JJ last NN week", "letzte Woche"), ("IN on NNP Monday", "am Montag")),
    "future": (("NN tomorrow", "morgen"), ("JJ next NN week", "nächste Woche"), ("IN on NNP Friday", "am Freitag")),
}


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
    return "", "", "", STRONG


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
    plural = style in _PLURAL_ONLY or (style not in _SINGULAR_ONLY and not singular and d.chance(25))
    gender = "p" if plural else noun.gender
    en: list[Tree] = []
    de: list[Word] = []
    endings = STRONG
    if style == "name's":
        name = d.word(tuple(d.lexicon.names))
        owner = leaf("NNP", name), leaf("POS", "'s")
        en, de = [Tree("NP", owner)], [Word(name + "s", owner)]
    elif style != "bare":
        label, english, german, endings = _determiner(d, style, noun, plural, case, not_leaf is not None)
        en = [leaf(label, english)]
        negated = not_leaf is not None and style in ("a", "any")
        de = [Word(german, (not_leaf, en[0]) if negated and not_leaf else (en[0],))]
    adjectives = d.lexicon.adjectives_for[noun.kinds]
    if adjectives and d.chance(15 if plain else 30):
        adjective = d.word(adjectives)
        en.append(leaf("JJ", adjective.en))
        de.append(Word(adjective_form(adjective.stem, endings[gender][case]), (en[-1],)))
    *modifiers, last = noun.en[plural].split()
    compound = *(leaf("NN", word) for word in modifiers), leaf("NNS" if plural else "NN", last)
    head, head_word = compound[-1], Word(noun.de[plural][case], compound)
    en, de = [*en, *compound], [*de, head_word]
    if style == "a" and str(en[1].children)[0] in "aeiou":
        an = leaf("DT", "an")
        de[0] = Word(de[0].text, tuple(an if source is en[0] else source for source in de[0].sources))
        en[0] = an
    tree = Tree("NP", tuple(en))
    if style == "the" and case != GENITIVE and not plain and "person" not in noun.kinds and d.chance(10):
        owner_phrase = noun_phrase(d, d.noun("person"), GENITIVE, "the", plain=True)
        of = leaf("IN", "of")
        first = owner_phrase.de[0]
        tree = Tree("NP", (tree, Tree("PP", (of, owner_phrase.en))))
        de += [Word(first.text, (of, *first.sources)), *owner_phrase.de[1:]]
    pronoun = "" if style in ("every", "no") else "they" if plural else noun.pronoun
    negative = style == "no" or (not_leaf is not None and style in ("a", "any"))
    return Phrase(
        tree, de, (), PLURAL if plural else ER, pronoun, noun.kinds, noun, (head, head_word),
        definite=style not in _INDEFINITE, negative=negative,
    )  # fmt: skip


def pronoun_phrase(key: str, case: int, noun: Noun | None = None) -> Phrase:
    """Returns a personal pronoun; the German for `it` has the gender of the noun it stands for."""
    if key == "it":
        assert noun is not None
        en = leaf("PRP", "it")
        word = Word(IT[noun.gender][case], (en,))
        return Phrase(Tree("NP", (en,)), [word], (), ER, "it", noun.kinds, noun, (en, word), light=True)
    pronoun = PRONOUNS[key]
    en = leaf("PRP", pronoun.subject if case == NOMINATIVE else pronoun.object)
    word = Word(pronoun.de[case], (en,))
    kinds = noun.kinds if noun else frozenset({"person"})
    return Phrase(Tree("NP", (en,)), [word], (), pronoun.agreement, key, kinds, noun, (en, word), light=True)


def name_phrase(d: Draft) -> Phrase:
    """Returns a name, which is the same in every case."""
    name = d.word(tuple(d.lexicon.names))
    en = leaf("NNP", name)
    word = Word(name, (en,))
    en_all, de_all = [en], [word]
    if d.lexicon.zipf and d.chance(40):
        en_all.append(leaf("NNP", d.word(d.lexicon.families)))
        de_all.append(Word(str(en_all[1].children), (en_all[1],)))
    tree, person = Tree("NP", tuple(en_all)), frozenset({"person"})
    return Phrase(tree, de_all, (), ER, d.lexicon.names[name], person, None, (en, word))


def preposition(english: str, german: str, phrase: Phrase) -> Phrase:
    """Returns a PP; German contracts preposition and article if possible (in dem = im)."""
    en = leaf("TO" if english == "to" else "IN", english)
    first, *rest = phrase.de
    joined = CONTRACTIONS.get((german, first.text))
    de = [Word(joined, (en, *first.sources)), *rest] if joined else [Word(german, (en,)), *phrase.de]
    return Phrase(Tree("PP", (en, phrase.en)), de)


def _town(d: Draft, english: str, german: str) -> Phrase:
    en, name = leaf("TO" if english == "to" else "IN", english), leaf("NNP", d.word(d.lexicon.towns))
    return Phrase(Tree("PP", (en, Tree("NP", (name,)))), [Word(german, (en,)), Word(str(name.children), (name,))])


def location(d: Draft, kinds: frozenset[str] = frozenset()) -> Phrase:
    """Returns a place: in / at / on something, in the dative; small things may also be on the table."""
    if kinds & {"thing", "food"} and d.chance(40):
        return preposition("on", "auf", noun_phrase(d, d.noun("onto"), DATIVE, "the", plain=True, singular=True))
    if d.lexicon.towns and d.chance(40):
        return _town(d, "in", "in")
    english = d.pick(("in", "in", "in", "in", "at", "on"))
    noun = d.noun(english)
    style = "the" if english != "in" else d.pick(PLACE_STYLES)
    if english == "at" and d.chance(25):
        return preposition("at", "an", _bank_of_the_river())
    return preposition(
        english, _PLACE_PREPOSITIONS[english], noun_phrase(d, noun, DATIVE, style, plain=True, singular=True)
    )


def _bank_of_the_river() -> Phrase:
    the, bank, of = leaf("DT", "the"), leaf("NN", "bank"), leaf("IN", "of")
    its, river = leaf("DT", "the"), leaf("NN", "river")
    en = Tree("NP", (Tree("NP", (the, bank)), Tree("PP", (of, Tree("NP", (its, river))))))
    return Phrase(en, [Word("dem", (the,)), Word("Ufer", (bank,)), Word("des", (of, its)), Word("Flusses", (river,))])


def direction(d: Draft, frame: str) -> list[Phrase]:
    """Returns goal and vehicle: `into` takes the accusative, `to` is zu; one swims to a river's bank, and walks to the
    other kind.
    """
    if frame == "put":
        return [
            preposition("onto", "auf", noun_phrase(d, d.noun("onto"), ACCUSATIVE, "the", plain=True, singular=True))
        ]
    if frame == "swim" or d.chance(10):
        bank = d.lexicon.nouns_of["shore" if frame == "swim" else "money"][0]
        goal = preposition("to", "zu", noun_phrase(d, bank, DATIVE, "the", plain=True, singular=True))
    elif d.lexicon.towns and d.chance(40):
        goal = _town(d, "to", "nach")
    elif d.chance(50):
        noun = d.noun("into")
        goal = preposition(
            "into", "in", noun_phrase(d, noun, ACCUSATIVE, d.pick(PLACE_STYLES), plain=True, singular=True)
        )
    else:
        noun = d.noun("to")
        goal = preposition("to", "zu", noun_phrase(d, noun, DATIVE, d.pick(PLACE_STYLES), plain=True, singular=True))
    if frame != "ride":
        return [goal]
    english = d.pick(tuple(RIDES))
    gender, german = RIDES[english].split()
    by, vehicle = leaf("IN", "by"), leaf("NN", english)
    ride = [Word("mit", (by,)), Word(DEFINITE[gender][DATIVE], (by,)), Word(german, (vehicle,))]
    return [goal, Phrase(Tree("PP", (by, Tree("NP", (vehicle,)))), ride)]


def time_phrase(d: Draft, tense: str) -> Phrase:
    """Returns a time that fits the tense."""
    group = "past" if tense in ("past", "could") else "future" if tense in ("will", "want", "should") else "present"
    english, german = d.pick(_TIMES[group])
    hour = d.pick(("7", "8", "9", "10", "11"))
    words = english.format(hour).split()
    leaves = [leaf(*pair) for pair in zip(words[::2], words[1::2], strict=True)]
    de = [Word(text, (source,)) for text, source in zip(german.format(hour).split(), leaves, strict=True)]
    prepositional = leaves[0].label == "IN"
    return Phrase(
        Tree("PP", (leaves[0], Tree("NP", tuple(leaves[1:])))) if prepositional else Tree("NP", tuple(leaves)), de
    )
