"""German sentences with one wrong word, whose right form another word decides, near or far.

A translator that knows the rule finds the right sentence more probable than the wrong one; so it is measured without
decoding (Sennrich 2017, arXiv 1612.04629; by distance: Tang et al. 2018, arXiv 1808.08946).
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple
from zlib import crc32

from vaswani.data.grammar.lexicon import AUXILIARIES, ER, IT, NOMINATIVE, PLURAL, Lexicon
from vaswani.data.grammar.sentences import Example, written

RELATIONS = {  # name: what is wrong
    "agreement": "the number of a finite verb",
    "particle": "the particle of a separable verb",
    "it": "the gender of er, sie or es, which translates `it`",
}
_IT = frozenset(IT[gender][NOMINATIVE] for gender in "mfn")


class Contrast(NamedTuple):
    """A wrong translation: what is wrong, how many tokens away what decides it is, and the whole German sentence."""

    relation: str
    distance: int
    wrong: str


def contrasts(example: Example, lexicon: Lexicon) -> Iterator[Contrast]:
    """Yields the wrong translations of a sentence pair, one for each word that a relation decides.

    A verb is left out if its other form is the same or its number cannot be told from the form alone. `lexicon` is that
    which the pair was drawn from.
    """
    tokens = example.german_tokens
    forms = _forms(lexicon)
    for verb, subject in example.links.german_subjects:
        other = forms.other_number.get(tokens[verb].lower())
        if other:
            yield _contrast("agreement", example, verb, subject, other)
    for verb, particle in example.links.german_particles:
        fitting = forms.particles_of[tokens[verb].lower()]
        others = [other for other in forms.particles if other not in fitting]
        yield _contrast("particle", example, particle, verb, _one_of(others, example.german))
    leaves = example.tree.leaves()
    english_of = {german: english for english, german in example.alignment}
    for pronoun, antecedent in example.links.german_pronouns:
        if leaves[english_of[pronoun]].lower() == "it":
            others = sorted(_IT - {tokens[pronoun].lower()})
            yield _contrast("it", example, pronoun, antecedent, _one_of(others, example.german))


def _contrast(relation: str, example: Example, place: int, decided_by: int, other: str) -> Contrast:
    """Returns the sentence with another word in one place."""
    tokens = list(example.german_tokens)
    tokens[place] = other
    return Contrast(relation, abs(place - decided_by), written(tokens))


def _one_of(words: list[str], german: str) -> str:
    """Returns one of the words, always the same for this sentence."""
    return words[crc32(german.encode()) % len(words)]


class _Forms(NamedTuple):
    """Finite forms with their other number; all particles of separable verbs, and those that go with a form."""

    other_number: dict[str, str]
    particles: list[str]
    particles_of: dict[str, frozenset[str]]


@cache
def _forms(lexicon: Lexicon) -> _Forms:
    verbs = {verb for verbs in lexicon.verbs_of.values() for verb in verbs}
    others: dict[str, set[str]] = {}
    particles_of: dict[str, set[str]] = {}
    pairs = [(forms[ER], forms[PLURAL]) for forms in AUXILIARIES.values()]
    for verb in verbs:
        singular, plural = verb.present[ER], verb.present[PLURAL]
        pairs.append((singular, plural))
        for form in verb.present:
            particles_of.setdefault(form, set()).update({verb.particle} - {""})
        if verb.particle:  # a subordinate clause has both as one word
            pairs.append((verb.particle + singular, verb.particle + plural))
    for singular, plural in pairs:
        others.setdefault(singular, set()).add(plural)
        others.setdefault(plural, set()).add(singular)
    return _Forms(
        other_number={form: min(found) for form, found in others.items() if len(found) == 1 and found != {form}},
        particles=sorted({verb.particle for verb in verbs} - {""}),
        particles_of={form: frozenset(found) for form, found in particles_of.items()},
    )
