"""The built-in corpus: a synchronous English-German grammar with unlimited sentence pairs by (split, index, seed).

    >>> pair("train", 0).english, pair("train", 0).german

Every rule builds both languages at once (`syntax.py` shows how their word orders differ), so word alignment,
antecedents and particles are known by construction. English determines German: if an English word is ambiguous (bank,
know, go, put, leave, light, when, if, you, it, her), other words of the sentence decide. A hash of the German sentence
decides the split, so no sentence of either language is in two splits. `I` and `you` occur only with auxiliaries, modals
and a few verbs of thinking, which keeps the vocabulary small.

Three more splits are for tests of what a model makes of the rules that it has learnt:

| split | sentences |
|---|---|
| deeper | clauses inside clauses inside clauses; in train no clause is more than one level deep |
| longer | 31 to 60 words a side; in train 3 to 30 |
| unseen | test sentences with a verb and an object, or an object and its case, that train_seen never combines |

train_seen is train without the sentences that have one of those combinations, a tenth of all there are.

rich:train, rich:valid and rich:test are a harder corpus by the same rules: several thousand words by Zipf's law, with
compounds and names (`rich.py`), and sentences whose words are decided from afar (`rich_rules.py`).
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from vaswani.data.grammar.lexicon import BASE, Lexicon
from vaswani.data.grammar.rich import RICH
from vaswani.data.grammar.rich_rules import RICH_RULES
from vaswani.data.grammar.rules import DEEPER, LONGER, RULES, Sides
from vaswani.data.grammar.syntax import Draft, Word
from vaswani.data.trees.tree import Tree

SPLITS = ("train", "valid", "test")
_VALID_FROM = 80  # of 100 hash buckets: below it train, then valid
_TEST_FROM = 90
_HELD_OUT = 10  # of 100 combinations
_LENGTHS = range(3, 31)  # words per side, without punctuation
_LONGER_LENGTHS = range(31, 61)
_PUNCTUATION = {",", ".", "?"}


class Links(NamedTuple):
    """Pairs of related token positions: (relative pronoun, its noun), (verb, its separated particle), (pronoun, its
    antecedent) and (finite verb, its subject).
    """

    english_relatives: tuple[tuple[int, int], ...] = ()
    german_relatives: tuple[tuple[int, int], ...] = ()
    english_particles: tuple[tuple[int, int], ...] = ()
    german_particles: tuple[tuple[int, int], ...] = ()
    english_pronouns: tuple[tuple[int, int], ...] = ()
    german_pronouns: tuple[tuple[int, int], ...] = ()
    english_subjects: tuple[tuple[int, int], ...] = ()
    german_subjects: tuple[tuple[int, int], ...] = ()


class Example(NamedTuple):
    """A sentence pair. `alignment` ((english, german), ...) and `links` hold token positions, where punctuation and 's
    are tokens too; `tree` is the English constituency tree.
    """

    english: str
    german: str
    tree: Tree
    alignment: tuple[tuple[int, int], ...]
    links: Links
    german_tokens: tuple[str, ...]


def _without_surplus_commas(words: list[Word]) -> list[Word]:
    """Removes surplus German commas: keeps one where clauses meet, none before the final punctuation."""
    kept: list[Word] = []
    for word in words:
        if kept and kept[-1].text == "," and word.text in _PUNCTUATION:
            surplus = kept.pop()
            if word.text == ",":
                word = Word(",", (*surplus.sources, *word.sources))
        kept.append(word)
    return kept


def written(tokens: list[str]) -> str:
    """Returns a sentence from its tokens: no space before punctuation and 's, a capital at the start."""
    text = tokens[0][0].upper() + tokens[0][1:]
    for token in tokens[1:]:
        text += token if token in _PUNCTUATION or token == "'s" else " " + token
    return text


def split_of(german: str) -> str:
    """Returns the split of a sentence, by a hash of its German in lower case."""
    bucket = _bucket(german.lower())
    if bucket < _VALID_FROM:
        return "train"
    return "valid" if bucket < _TEST_FROM else "test"


def _bucket(text: str) -> int:
    """Returns a hash of the text in [0, 100)."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 100


def _words(tokens: list[str]) -> int:
    return sum(token not in _PUNCTUATION and token != "'s" for token in tokens)


def clause_depth(tree: Tree) -> int:
    """Returns how many subordinate clauses are inside each other, at the deepest place."""
    if isinstance(tree.children, str):
        return 0
    deepest = max(map(clause_depth, tree.children))
    return deepest + 1 if tree.label == "SBAR" else deepest


def held_out(combination: tuple[str, str]) -> bool:
    """Returns whether train_seen has no sentence with this verb and object, or with this object in this case."""
    return _bucket(" ".join(combination)) < _HELD_OUT


class _Split(NamedTuple):
    """How the sentences of a split are drawn: again and again by one of the rules, until one is accepted."""

    rules: tuple[Callable[[Draft], Sides], ...] = RULES
    lengths: range = _LENGTHS
    bucket: str = ""  # what `split_of` must say
    depth: int = 0  # at least
    unseen: bool | None = None  # whether it must have, or must not have, a combination that is held out
    lexicon: Lexicon = BASE

    def accepts(self, d: Draft, tree: Tree, tokens: list[str], german: str) -> bool:
        return (
            self.bucket in ("", split_of(german))
            and (self.unseen is None or self.unseen == any(map(held_out, d.combinations)))
            and _words(tokens) in self.lengths
            and _words(tree.leaves()) in self.lengths
            and (not self.depth or clause_depth(tree) >= self.depth)
        )


_DRAWN = {
    "train": _Split(bucket="train"),
    "valid": _Split(bucket="valid"),
    "test": _Split(bucket="test"),
    "deeper": _Split(DEEPER, depth=2),
    "longer": _Split(LONGER, _LONGER_LENGTHS),
    "unseen": _Split(bucket="test", unseen=True),
    "train_seen": _Split(bucket="train", unseen=False),
    "rich:train": _Split(RICH_RULES, bucket="train", lexicon=RICH),
    "rich:valid": _Split(RICH_RULES, bucket="valid", lexicon=RICH),
    "rich:test": _Split(RICH_RULES, bucket="test", lexicon=RICH),
}


def lexicon_of(split: str) -> Lexicon:
    """Returns the words that the sentences of a split are drawn from; raises KeyError for an unknown split."""
    return _DRAWN[split].lexicon


def pair(split: str, index: int, seed: int = 0) -> Example:
    """Returns pair number `index` of a split: always the same; in no other split, but for train_seen and unseen.

    Raises ValueError for an unknown split or a negative index.
    """
    if split not in _DRAWN or index < 0:
        raise ValueError(f"grammar:{split}: index {index}: the splits are {', '.join(_DRAWN)}, indices start at 0")
    drawn = _DRAWN[split]
    d = Draft(f"{seed}/{split}/{index}", drawn.lexicon)
    while True:
        d.links.clear()
        d.combinations.clear()
        tree, words = d.pick(drawn.rules)(d)
        words = _without_surplus_commas(words)
        tokens = [word.text for word in words]
        german = written(tokens)
        if drawn.accepts(d, tree, tokens, german):
            return _example(d, tree, words, tokens, german)


def _example(d: Draft, tree: Tree, words: list[Word], german_tokens: list[str], german: str) -> Example:
    # By identity: the same word may be in a sentence twice.
    leaf_positions = {id(node): position for position, node in enumerate(tree.terminals())}
    word_positions = {id(word): position for position, word in enumerate(words)}
    alignment = set()
    for position, word in enumerate(words):
        for source in word.sources:
            alignment.add((leaf_positions[id(source)], position))

    pairs: dict[str, list[tuple[int, int]]] = {name: [] for name in Links._fields}
    for name, token, related in d.links:
        positions = leaf_positions if name.startswith("english") else word_positions
        pairs[name].append((positions[id(token)], positions[id(related)]))
    links = Links(**{name: tuple(sorted(members)) for name, members in pairs.items()})

    capitalised = tree.capitalised()
    first, *others = german_tokens
    return Example(
        english=written(capitalised.leaves()),
        german=german,
        tree=capitalised,
        alignment=tuple(sorted(alignment)),
        links=links,
        german_tokens=(first[0].upper() + first[1:], *others),
    )
