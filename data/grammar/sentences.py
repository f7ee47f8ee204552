"""The built-in corpus: a synchronous English-German grammar with unlimited sentence pairs by (split, index, seed).

    >>> pair("train", 0).english, pair("train", 0).german

Every rule builds both languages at once (`syntax.py` shows how their word orders differ), so word alignment,
antecedents and particles are known by construction. English determines German: if an English word is ambiguous (bank,
know, go, put, leave, light, when, if, you, it, her), other words of the sentence decide. A hash of the German sentence
decides the split, so no sentence of either language is in two splits. `I` and `you` occur only with auxiliaries, modals
and a few verbs of thinking, which keeps the vocabulary small.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from data.grammar.clauses import ANY, PAST, PRESENT, proposition, subject_phrase
from data.grammar.lexicon import AUXILIARIES, ER, FAMILIES, NAMES, NOMINATIVE, NOUNS_OF, PLURAL, VERBS_OF, ZU
from data.grammar.phrases import location, noun_phrase, pronoun_phrase
from data.grammar.syntax import Clause, Draft, Phrase, Word, comma, leaf, main_clause, predicate, question, verb_last
from data.trees.tree import Tree

SPLITS = ("train", "valid", "test")
_VALID_FROM, _TEST_FROM = 80, 90  # of 100 hash buckets: below 80 train, then valid, then test
_LENGTHS = range(3, 31)  # words per side, without punctuation
_PUNCTUATION = {",", ".", "?"}
Sides = tuple[Tree, list[Word]]


class Links(NamedTuple):
    """Pairs of related token positions: (relative pronoun, its noun), (verb, its separated particle) and
    (pronoun, its antecedent).
    """

    english_relatives: tuple[tuple[int, int], ...] = ()
    german_relatives: tuple[tuple[int, int], ...] = ()
    english_particles: tuple[tuple[int, int], ...] = ()
    german_particles: tuple[tuple[int, int], ...] = ()
    english_pronouns: tuple[tuple[int, int], ...] = ()
    german_pronouns: tuple[tuple[int, int], ...] = ()


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


def _end(d: Draft, sides: Sides, mark: str = ".") -> Sides:
    tree, de = sides
    stop = leaf(".", mark)
    assert not isinstance(tree.children, str)
    return Tree(tree.label, (*tree.children, stop)), [*de, Word(mark, (stop,))]


def statement(d: Draft) -> Sides:
    """Builds a main clause, sometimes with the time in the first field."""
    return _end(d, main_clause(d, proposition(d, ANY), time_first=d.chance(50)))


def _subordinate(english: tuple[str, str], german: str, clause: Clause) -> Sides:
    label, word = english
    en = leaf(label, word)
    s = Tree("S", (clause.subject.en, *predicate(clause)))
    wh = Tree("WHADVP", (en,)) if label == "WRB" else en
    return Tree("SBAR", (wh, s)), [Word(german, (en,)), *verb_last(clause)]


def _taken_up(d: Draft, phrase: Phrase) -> Phrase | None:
    """Returns a pronoun for the subject, if it has one."""
    if not phrase.pronoun:
        return None
    again = pronoun_phrase(phrase.pronoun, NOMINATIVE, phrase.noun)
    if phrase.heads and again.heads and phrase.noun:
        d.link("english_pronouns", again.heads[0], phrase.heads[0])
        d.link("german_pronouns", again.heads[1], phrase.heads[1])
    return again


def two_clauses(d: Draft) -> Sides:
    """Builds a main clause with a reason, condition or time, in either order; past `when` is als, otherwise wenn."""
    kind = d.pick(("because", "because", "although", "when", "when", "if", "while", "before"))
    past = kind != "if" and d.chance(50)
    tenses = PAST if past else PRESENT
    german = {"because": "weil", "although": "obwohl", "if": "wenn", "while": "während", "before": "bevor"}
    joined = german.get(kind) or ("als" if past else "wenn")
    main = proposition(d, tenses, plain=True)
    again = _taken_up(d, main.subject) if d.chance(60) else None
    narrow = ("past",) if past else ("present",) if kind != "because" else PRESENT
    sub = proposition(d, narrow, subject=again, plain=True, timed=False)
    sbar, de_sub = _subordinate(("WRB", "when") if kind == "when" else ("IN", kind), joined, sub)
    if again is None and d.chance(45):
        en_comma = leaf(",", ",")
        s, de = main_clause(d, main, inverted=True)
        assert not isinstance(s.children, str)
        return _end(d, (Tree("S", (sbar, en_comma, *s.children)), [*de_sub, Word(",", (en_comma,)), *de]))
    s, de = main_clause(d, main)
    assert not isinstance(s.children, str)
    body = Tree("S", (*s.children[:-1], _inside(s.children[-1], sbar)))
    return _end(d, (body, [*de, comma(), *de_sub]))


def _inside(phrase: Tree, clause: Tree) -> Tree:
    assert not isinstance(phrase.children, str)
    return Tree(phrase.label, (*phrase.children, clause))


def thought(d: Draft) -> Sides:
    """Builds "somebody knows that / asks whether ...": verb-final after dass or ob; here `know` is wissen."""
    frame = d.pick(("that", "that", "whether"))
    matrix = proposition(
        d, ("present", "present", "past"), plain=True, frame=frame, timed=False, positive=frame == "that"
    )
    again = _taken_up(d, matrix.subject) if d.chance(40) else None
    sub = proposition(d, ANY, subject=again, plain=True)
    english = "that" if frame == "that" else d.pick(("whether", "if"))
    sbar, de_sub = _subordinate(("IN", english), "dass" if frame == "that" else "ob", sub)
    s, de = main_clause(d, matrix._replace(complements=[*matrix.complements, sbar]))
    return _end(d, (s, [*de, comma(), *de_sub]))


def yes_no(d: Draft) -> Sides:
    """Builds a yes-no question, verb first; English needs do, German does not."""
    return _end(d, question(d, proposition(d, ANY, plain=True, asked=True, positive=True)), "?")


def wh_question(d: Draft) -> Sides:
    """Builds a question with where, when, why, or the object (whom is wen or wem) in the first field."""
    english, german = d.pick((("where", "wo"), ("when", "wann"), ("why", "warum"), ("whom", ""), ("what", "was")))
    verb = None
    if english in ("whom", "what"):
        wanted = "person" if english == "whom" else "thing"
        frames = ("acc", "dat") if english == "whom" else ("acc",)
        verb = d.pick([v for f in frames for v in VERBS_OF[f] if wanted in v.objects])
        german = german or ("wem" if "dat" in verb.frames else "wen")
    frame = "" if verb else d.pick(("none", "acc", "acc", "dat"))
    clause = proposition(
        d, ANY, plain=True, asked=True, positive=True, gap=verb, frame=frame, timed=False, placed=False
    )
    label, phrase = ("WP", "WHNP") if verb else ("WRB", "WHADVP")
    en = leaf(label, english)
    sq, de = question(d, clause)
    return _end(d, (Tree("SBARQ", (Tree(phrase, (en,)), sq)), [Word(german, (en,)), *de]), "?")


def who_question(d: Draft) -> Sides:
    """Builds a question with who as the subject: no do in English, the order of a statement in both."""
    en = leaf("WP", "who")
    word = Word("wer", (en,))
    who = Phrase(Tree("WHNP", (en,)), [word], (), ER, "", frozenset({"person"}), None, (en, word))
    clause = proposition(d, ANY, subject=who, plain=True, positive=True)
    _, de = main_clause(d, clause)
    return _end(d, (Tree("SBARQ", (who.en, Tree("SQ", tuple(predicate(clause))))), de), "?")


def spoken_to(d: Draft) -> Sides:
    """Builds a sentence that addresses somebody by name, which decides between du and Sie for every `you`."""
    if d.chance(50):
        leaves: tuple[Tree, ...] = (leaf("NNP", d.pick(tuple(NAMES))),)
        de = [Word(str(leaves[0].children), leaves)]
        key = "du"
    else:
        title, german = d.pick((("Mr.", "Herr"), ("Mrs.", "Frau")))
        leaves = (leaf("NNP", title), leaf("NNP", d.pick(FAMILIES)))
        de = [Word(german, leaves[:1]), Word(str(leaves[1].children), leaves[1:])]
        key = "Sie"
    en_comma = leaf(",", ",")
    you, asked = pronoun_phrase(key, NOMINATIVE), d.chance(50)
    clause = proposition(d, ("can", "must", "should", "want", "past", "will"), subject=you, asked=asked, positive=asked)
    s, de_clause = question(d, clause) if asked else main_clause(d, clause)
    assert not isinstance(s.children, str)
    en = Tree(s.label, (Tree("NP", leaves), en_comma, *s.children))
    return _end(d, (en, [*de, Word(",", (en_comma,)), *de_clause]), "?" if asked else ".")


def two_statements(d: Draft) -> Sides:
    """Builds two main clauses with and / but; the conjunction is outside the German fields."""
    english, german = d.pick((("and", "und"), ("but", "aber")))
    tenses = d.pick((PRESENT, PAST))
    first = proposition(d, tenses, plain=True, timed=False)
    again = _taken_up(d, first.subject) if d.chance(35) else None
    second = proposition(d, tenses, subject=again, plain=True, timed=False)
    one, de_one = main_clause(d, first)
    two, de_two = main_clause(d, second)
    en_comma, conjunction = leaf(",", ","), leaf("CC", english)
    en = Tree("S", (one, en_comma, conjunction, two))
    return _end(d, (en, [*de_one, Word(",", (en_comma,)), Word(german, (conjunction,)), *de_two]))


def purpose(d: Draft) -> Sides:
    """Builds in order to / try to: German ends in an infinitive with zu, inside a separable verb (anzurufen)."""
    trying = d.chance(40)
    frame = "infinitive" if trying else d.pick(("motion", "none", "acc"))
    tenses = ("present", "present", "past")
    somebody = subject_phrase(d, ("person",), plain=True)
    matrix = proposition(
        d, tenses, subject=somebody, plain=True, frame=frame, timed=False, positive=True, placed=not trying
    )
    inner = d.pick(("acc", "acc", "dat", "give"))
    aim = proposition(
        d, ("can",), subject=matrix.subject, plain=True, positive=True, frame=inner, timed=False, often=False
    )
    to, infinitive = leaf("TO", "to"), aim.bracket[0]
    goal = Tree("S", (Tree("VP", (to, Tree("VP", (aim.head, *aim.complements)))),))
    *zu, verb = ZU[infinitive.text]
    if zu:
        end = [Word("zu", (to,)), Word(verb, infinitive.sources)]
    else:
        end = [Word(verb, (to, *infinitive.sources))]
    lead: list[Word] = []
    if not trying:
        words = leaf("IN", "in"), leaf("NN", "order")
        goal, lead = Tree("SBAR", (*words, goal)), [Word("um", words)]
    s, de = main_clause(d, matrix._replace(complements=[*matrix.complements, goal]))
    return _end(d, (s, [*de, comma(), *lead, *aim.pronouns, *aim.middle, *end]))


def there_is(d: Draft) -> Sides:
    """Builds "there is ..." with a place in the German first field, so that the subject follows the verb."""
    kind = d.pick(("person", "animal", "thing", "food"))
    thing = noun_phrase(d, d.pick(NOUNS_OF[kind]), NOMINATIVE, d.pick(("a", "a", "number", "many")))
    place, past, plural = location(d, thing.kinds), d.chance(30), thing.agreement == PLURAL
    there = leaf("EX", "there")
    be = (
        leaf("VBD", "were" if plural else "was")
        if past
        else leaf("VBP" if plural else "VBZ", "are" if plural else "is")
    )
    en = Tree("S", (Tree("NP", (there,)), Tree("VP", (be, thing.en, place.en))))
    finite = Word(AUXILIARIES["war" if past else "sein"][thing.agreement], (there, be))
    return _end(d, (en, [*place.de, finite, *thing.de]))


RULES: tuple[Callable[[Draft], Sides], ...] = (
    *(statement,) * 6, *(two_clauses,) * 4, *(thought,) * 3, *(yes_no,) * 2, wh_question, wh_question, who_question,
    *(spoken_to,) * 2, *(two_statements,) * 2, *(purpose,) * 2, there_is,
)  # fmt: skip


def _settled(words: list[Word]) -> list[Word]:
    """Removes surplus German commas: keeps one where clauses meet, none before the final punctuation."""
    kept: list[Word] = []
    for word in words:
        if kept and kept[-1].text == "," and word.text in _PUNCTUATION:
            sources = kept.pop().sources
            word = word if word.text != "," else Word(",", (*sources, *word.sources))
        kept.append(word)
    return kept


def _written(tokens: list[str]) -> str:
    """Detokenises: no space before punctuation and 's, a capital at the start."""
    text = tokens[0][0].upper() + tokens[0][1:]
    for token in tokens[1:]:
        text += token if token in _PUNCTUATION or token == "'s" else " " + token
    return text


def split_of(german: str) -> str:
    """Returns the split of a sentence, by a hash of its German in lower case."""
    bucket = int.from_bytes(blake2b(german.lower().encode(), digest_size=8).digest(), "little") % 100
    return "train" if bucket < _VALID_FROM else "valid" if bucket < _TEST_FROM else "test"


def _words(tokens: list[str]) -> int:
    return sum(token not in _PUNCTUATION and token != "'s" for token in tokens)


def pair(split: str, index: int, seed: int = 0) -> Example:
    """Returns pair number `index` of a split: always the same, and in no other split.

    Raises ValueError for an unknown split or a negative index.
    """
    if split not in SPLITS or index < 0:
        raise ValueError(f"grammar:{split}: index {index}: the splits are {', '.join(SPLITS)}, indices start at 0")
    d = Draft(f"{seed}/{split}/{index}")
    while True:
        d.links.clear()
        tree, words = d.pick(RULES)(d)
        words = _settled(words)
        tokens = [word.text for word in words]
        german = _written(tokens)
        if split_of(german) == split and _words(tokens) in _LENGTHS and _words(tree.leaves()) in _LENGTHS:
            return _example(d, tree, words, tokens, german)


def _example(d: Draft, tree: Tree, words: list[Word], german_tokens: list[str], german: str) -> Example:
    leaf_at = {id(node): i for i, node in enumerate(tree.terminals())}
    word_at = {id(word): j for j, word in enumerate(words)}
    alignment = sorted({(leaf_at[id(source)], j) for j, word in enumerate(words) for source in word.sources})
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in Links._fields}
    for name, one, other in d.links:
        at = leaf_at if name.startswith("english") else word_at
        if id(one) in at and id(other) in at:
            found[name].append((at[id(one)], at[id(other)]))
    links = Links(**{name: tuple(sorted(positions)) for name, positions in found.items()})
    german_tokens[0] = german_tokens[0][0].upper() + german_tokens[0][1:]
    tree = tree.capitalised()
    return Example(_written(tree.leaves()), german, tree, tuple(alignment), links, tuple(german_tokens))
