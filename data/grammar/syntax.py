"""The parts of the grammar: random choices, trees, German words aligned with English, and the three clause orders.

English is built as a constituency tree. German is built as words in the *topological fields* of the German clause,
which makes its word order simple:

    main clause      [first field]  FINITE  [subject]  middle field  RIGHT BRACKET          [after-field]
    question         [question word] FINITE  subject   middle field  RIGHT BRACKET          [after-field]
    subordinate      , weil                  subject   middle field  RIGHT BRACKET  FINITE  [after-field]

The right bracket holds what German puts at the end: participle, infinitive, or the particle of a separable verb
(joined to the finite verb when they are adjacent: `ruft ... an`, `weil ... anruft`).
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple, TypeVar

from vaswani.data.grammar.lexicon import BASE, ER, Lexicon, Noun
from vaswani.data.trees.tree import Tree

Item = TypeVar("Item")


class Word(NamedTuple):
    """A German word and the English leaves that it translates (by identity; none for a comma only German has)."""

    text: str
    sources: tuple[Tree, ...] = ()


class Phrase(NamedTuple):
    """A constituent in both languages, with the features that the rest of the sentence must agree with.

    `after` is its relative clause in German, which may move after the right bracket. `agreement` is the verb form that
    it takes as a subject; `pronoun` the English pronoun that may refer back to it ("" = none); `kinds` what it is;
    `heads` the English leaf and the German word of its noun. A `light` phrase is a pronoun, first in the middle field;
    a `definite` one precedes `nicht`, any other follows it; a `negative` one includes the negation (kein).
    """

    en: Tree
    de: list[Word]
    after: Sequence[Word] = ()
    agreement: int = ER
    pronoun: str = ""
    kinds: frozenset[str] = frozenset()
    noun: Noun | None = None
    heads: tuple[Tree, Word] | None = None
    light: bool = False
    definite: bool = True
    negative: bool = False


class Clause(NamedTuple):
    """A clause whose word order is not yet chosen.

    English: `layers` are the auxiliaries from the outside in, each with its `not` or adverb, above the `head` verb and
    its `complements`; `adverb` precedes them all. German: the fields named above; `pronouns` and `middle` form the
    middle field, with the time between them. `time` may move to the first field in both languages.
    """

    subject: Phrase
    layers: list[tuple[Tree, ...]]
    adverb: Tree | None
    head: Tree
    complements: list[Tree]
    time: Phrase | None
    finite: Word
    particle: Word | None
    bracket: list[Word]
    pronouns: list[Word]
    middle: list[Word]
    after: list[Word]


@cache
def _zipf(count: int) -> tuple[int, ...]:
    """Returns the sums of 1 / rank, in millionths."""
    return tuple(accumulate(1_000_000 // rank for rank in range(1, count + 1)))


class Draft:
    """The random choices of one sentence, and the links recorded while it is built.

    Every choice is a digit, in a mixed radix, of a number hashed from the key, so the same key gives the same sentence
    on every machine and Python. `links` holds (name, token, token) as objects until positions are known.
    """

    def __init__(self, key: str, lexicon: Lexicon = BASE) -> None:
        self.key = key
        self.page = 0
        self.number = 0
        self.lexicon = lexicon
        self.links: list[tuple[str, Tree | Word, Tree | Word]] = []

    def below(self, n: int) -> int:
        """Returns a whole number in [0, n)."""
        if self.number < 1 << 32:  # nearly used up: the remaining digits would be biased
            self.number = int.from_bytes(blake2b(f"{self.key}/{self.page}".encode()).digest(), "little")
            self.page += 1
        self.number, digit = divmod(self.number, n)
        return digit

    def pick(self, items: Sequence[Item]) -> Item:
        """Returns one of the items, all equally likely."""
        return items[self.below(len(items))]

    def word(self, words: Sequence[Item]) -> Item:
        """Returns one of these words of the lexicon, as likely as the lexicon says."""
        if not self.lexicon.zipf:
            return self.pick(words)
        sums = _zipf(len(words))
        return words[bisect_right(sums, self.below(sums[-1]))]

    def noun(self, kind: str) -> Noun:
        """Returns a noun of this kind."""
        return self.word(self.lexicon.nouns_of[kind])

    def chance(self, percent: int) -> bool:
        """Returns True in `percent` of 100 cases."""
        return self.below(100) < percent

    def link(self, name: str, token: Tree | Word, related: Tree | Word) -> None:
        """Records that two tokens of one language are related; `name` is a field of `sentences.Links`."""
        self.links.append((name, token, related))


def leaf(label: str, word: str) -> Tree:
    """Returns one English token."""
    return Tree(label, word)


def comma() -> Word:
    """Returns a German comma; double commas, and one before final punctuation, are removed at the end."""
    return Word(",")


def _verb_phrase(clause: Clause, skip_first: bool, with_time: bool) -> Tree:
    complements = list(clause.complements)
    if clause.time and with_time:
        complements.append(clause.time.en)
    layers = clause.layers
    if skip_first and layers:
        layers = [layers[0][1:], *layers[1:]]
    phrase = Tree("VP", (clause.head, *complements))
    for words in reversed(layers):
        if words:
            phrase = Tree("VP", (*words, phrase))
        if words and words[0].label == "TO":
            phrase = Tree("S", (phrase,))
    return phrase


def _adverb(clause: Clause) -> list[Tree]:
    return [clause.adverb] if clause.adverb else []


def _german_subject(clause: Clause) -> list[Word]:
    return [*clause.subject.de, *clause.subject.after]


def predicate(clause: Clause, with_time: bool = True) -> list[Tree]:
    """Returns the English clause without its subject, as children of the S above it."""
    return [*_adverb(clause), _verb_phrase(clause, skip_first=False, with_time=with_time)]


def _link_subject(d: Draft, clause: Clause, finite: Word) -> None:
    """Records the subject of the finite verb, in both languages.

    Two people together have no single word that the verb agrees with.
    """
    if clause.subject.heads:
        english, german = clause.subject.heads
        d.link("english_subjects", clause.layers[0][0] if clause.layers else clause.head, english)
        d.link("german_subjects", finite, german)


def _right_bracket(d: Draft, clause: Clause) -> list[Word]:
    if clause.particle:
        d.link("german_particles", clause.finite, clause.particle)
        return [clause.particle]
    return clause.bracket


def _middle(clause: Clause, with_time: bool) -> list[Word]:
    time = clause.time.de if clause.time and with_time else []
    return [*clause.pronouns, *time, *clause.middle]


def main_clause(d: Draft, clause: Clause, time_first: bool = False, inverted: bool = False) -> tuple[Tree, list[Word]]:
    """Builds a statement, verb second; `inverted` if something else (a subordinate clause) is in the first field."""
    _link_subject(d, clause, clause.finite)
    subject = _german_subject(clause)
    if time_first and clause.time:
        en = Tree("S", (clause.time.en, clause.subject.en, *predicate(clause, with_time=False)))
        opening = [*clause.time.de, clause.finite, *subject]
        middle = _middle(clause, with_time=False)
    else:
        en = Tree("S", (clause.subject.en, *predicate(clause)))
        opening = [clause.finite, *subject] if inverted else [*subject, clause.finite]
        middle = _middle(clause, with_time=True)
    return en, [*opening, *middle, *_right_bracket(d, clause), *clause.after]


def verb_last(d: Draft, clause: Clause) -> list[Word]:
    """Returns the German words of a subordinate clause, after its first word."""
    finite = clause.finite
    if clause.particle:  # weil er anruft: one word
        others = [source for source in clause.particle.sources if source not in finite.sources]
        finite = Word(clause.particle.text + finite.text, (*finite.sources, *others))
    _link_subject(d, clause, finite)
    return [*_german_subject(clause), *_middle(clause, with_time=True), *clause.bracket, finite, *clause.after]


def question(d: Draft, clause: Clause) -> tuple[Tree, list[Word]]:
    """Builds an SQ, verb first, from a clause with an auxiliary to invert; the caller puts a question word first."""
    _link_subject(d, clause, clause.finite)
    auxiliary = clause.layers[0][0]
    rest = _verb_phrase(clause, skip_first=True, with_time=True)
    if isinstance(clause.head.children, str) or isinstance(rest.children, str):
        parts: tuple[Tree, ...] = (rest,)
    else:  # "was he tired": after the copula moves to the front, no verb is left to head a verb phrase
        parts = rest.children
    en = Tree("SQ", (auxiliary, clause.subject.en, *_adverb(clause), *parts))
    de = [clause.finite, *_german_subject(clause), *_middle(clause, with_time=True)]
    return en, [*de, *_right_bracket(d, clause), *clause.after]
