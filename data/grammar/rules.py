"""The kinds of sentence in the built-in corpus: each rule draws one and builds it in English and German at once.

`RULES` make what models are trained on, where no clause is more than one level deep. `DEEPER` and `LONGER` put the same
parts together further than that, for test sets only.
"""

from collections.abc import Callable

from vaswani.data.grammar.clauses import ANY, PAST, PRESENT, ClauseSpec, draw_clause, subject_phrase
from vaswani.data.grammar.lexicon import AUXILIARIES, NOMINATIVE, PLURAL, Verb
from vaswani.data.grammar.phrases import location, noun_phrase, pronoun_phrase
from vaswani.data.grammar.syntax import (
    Clause,
    Draft,
    Phrase,
    Word,
    comma,
    leaf,
    main_clause,
    predicate,
    question,
    verb_last,
)
from vaswani.data.trees.tree import Tree

Sides = tuple[Tree, list[Word]]  # the English tree; the German words, each with the English ones that it translates
# What is listed twice is drawn twice as often; the order of draws is part of the corpus.
_MATRIX_TENSES = ("present", "present", "past")  # of a clause that another depends on
_COORDINATIONS = (("and", "und"), ("but", "aber"))
_CONJUNCTIONS = {"because": "weil", "although": "obwohl", "if": "wenn", "while": "während", "before": "bevor"}


def sentence(d: Draft, sides: Sides, mark: str = ".") -> Sides:
    """Returns the sentence with its final punctuation."""
    tree, de = sides
    stop = leaf(".", mark)
    return inside(tree, stop), [*de, Word(mark, (stop,))]


def statement(d: Draft) -> Sides:
    """Builds a main clause, sometimes with the time in the first field."""
    clause = draw_clause(d, ClauseSpec(ANY))
    return sentence(d, main_clause(d, clause, time_first=d.chance(50)))


def _subordinate(d: Draft, english: tuple[str, str], german: str, clause: Clause) -> Sides:
    """Returns a clause with its conjunction, of which `english` is label and word."""
    label, word = english
    conjunction = leaf(label, word)
    # As in the Penn Treebank: "when" is an adverb phrase, other conjunctions stand by themselves.
    opening = Tree("WHADVP", (conjunction,)) if label == "WRB" else conjunction
    s = Tree("S", (clause.subject.en, *predicate(clause)))
    return Tree("SBAR", (opening, s)), [Word(german, (conjunction,)), *verb_last(d, clause)]


def _with_complement(clause: Clause, complement: Tree) -> Clause:
    return clause._replace(complements=[*clause.complements, complement])


def _pronoun_for(d: Draft, antecedent: Phrase) -> Phrase | None:
    """Returns the pronoun that stands for an earlier subject in the next clause; None if it has none."""
    if not antecedent.pronoun:
        return None
    pronoun = pronoun_phrase(antecedent.pronoun, NOMINATIVE, antecedent.noun)
    if antecedent.noun:
        link_pronoun(d, pronoun, antecedent)
    return pronoun


def link_pronoun(d: Draft, pronoun: Phrase, antecedent: Phrase) -> None:
    """Records what a pronoun stands for, in both languages."""
    assert pronoun.heads is not None and antecedent.heads is not None
    d.link("english_pronouns", pronoun.heads[0], antecedent.heads[0])
    d.link("german_pronouns", pronoun.heads[1], antecedent.heads[1])


def two_clauses(d: Draft, plain: bool = True) -> Sides:
    """Builds a main clause with a reason, condition or time, in either order; past `when` is als, otherwise wenn.

    Unless `plain`, there may be relative clauses inside both.
    """
    kind = d.pick(("because", "because", "although", "when", "when", "if", "while", "before"))
    past = kind != "if" and d.chance(50)
    main = draw_clause(d, ClauseSpec(PAST if past else PRESENT, plain=plain))
    # The second clause may be about the same person: "The dog sleeps because it is tired."
    pronoun = _pronoun_for(d, main.subject) if d.chance(60) else None
    tenses: tuple[str, ...]
    if past:
        tenses = ("past",)
    elif kind == "because":
        tenses = PRESENT
    else:
        tenses = ("present",)
    subordinate = draw_clause(d, ClauseSpec(tenses, subject=pronoun, plain=plain, timed=False))
    # A pronoun comes after what it stands for: its clause is then the second.
    return joined(d, kind, past, main, subordinate, first=pronoun is None and d.chance(45))


def joined(d: Draft, kind: str, past: bool, main: Clause, subordinate: Clause, first: bool = False) -> Sides:
    """Builds a main and a subordinate clause with the conjunction `kind`; the subordinate one may be `first`."""
    german = _CONJUNCTIONS | {"when": "als" if past else "wenn"}
    english = ("WRB", "when") if kind == "when" else ("IN", kind)
    sbar, de_subordinate = _subordinate(d, english, german[kind], subordinate)
    # German: after a clause in the first field the verb comes before the subject.
    s, de = main_clause(d, main, inverted=first)
    assert not isinstance(s.children, str)
    if first:
        en_comma = leaf(",", ",")
        tree = Tree("S", (sbar, en_comma, *s.children))
        return sentence(d, (tree, [*de_subordinate, Word(",", (en_comma,)), *de]))
    # English: a clause that follows is the last part of the verb phrase.
    *others, verb_phrase = s.children
    tree = Tree("S", (*others, inside(verb_phrase, sbar)))
    return sentence(d, (tree, [*de, comma(), *de_subordinate]))


def inside(phrase: Tree, part: Tree) -> Tree:
    """Returns the constituent with one more part, the last."""
    assert not isinstance(phrase.children, str)
    return Tree(phrase.label, (*phrase.children, part))


def thought(d: Draft) -> Sides:
    """Builds "somebody knows that / asks whether ...": verb-final after dass or ob; here `know` is wissen."""
    frame = d.pick(("that", "that", "whether"))
    spec = ClauseSpec(_MATRIX_TENSES, frame=frame, plain=True, timed=False, positive=frame == "that")
    matrix = draw_clause(d, spec)
    pronoun = _pronoun_for(d, matrix.subject) if d.chance(40) else None
    content = draw_clause(d, ClauseSpec(ANY, subject=pronoun, plain=True))
    if frame == "that":
        sbar, de_content = _subordinate(d, ("IN", "that"), "dass", content)
    else:
        sbar, de_content = _subordinate(d, ("IN", d.pick(("whether", "if"))), "ob", content)
    s, de = main_clause(d, _with_complement(matrix, sbar))
    return sentence(d, (s, [*de, comma(), *de_content]))


def yes_no(d: Draft) -> Sides:
    """Builds a yes-no question, verb first; English needs do, German does not."""
    clause = draw_clause(d, ClauseSpec(ANY, asked=True, plain=True, positive=True))
    return sentence(d, question(d, clause), "?")


def wh_question(d: Draft) -> Sides:
    """Builds a question with where, when, why, or the object (whom is wen or wem) in the first field."""
    english, german = d.pick((("where", "wo"), ("when", "wann"), ("why", "warum"), ("whom", ""), ("what", "was")))
    spec = ClauseSpec(ANY, asked=True, plain=True, positive=True, timed=False, placed=False)
    if english in ("whom", "what"):
        # The object is what is asked for, and is missing in its place: a gap.
        verb = _asked_verb(d, english)
        if english == "whom":
            german = "wem" if "dat" in verb.frames else "wen"
        spec = spec._replace(gap=verb)
        word_leaf = leaf("WP", english)
        opening = Tree("WHNP", (word_leaf,))
    else:
        # Place, time or reason: the clause itself is whole.
        spec = spec._replace(frame=d.pick(("none", "acc", "acc", "dat")))
        word_leaf = leaf("WRB", english)
        opening = Tree("WHADVP", (word_leaf,))
    sq, de = question(d, draw_clause(d, spec))
    return sentence(d, (Tree("SBARQ", (opening, sq)), [Word(german, (word_leaf,)), *de]), "?")


def _asked_verb(d: Draft, english: str) -> Verb:
    """Returns a verb whose object `whom` or `what` may ask for."""
    verbs = d.lexicon.verbs_of["acc"]
    kind = "thing"
    if english == "whom":
        verbs += d.lexicon.verbs_of["dat"]
        kind = "person"
    return d.word([verb for verb in verbs if kind in verb.objects])


def who_question(d: Draft) -> Sides:
    """Builds a question with who as the subject: no do in English, the order of a statement in both."""
    who_leaf = leaf("WP", "who")
    word = Word("wer", (who_leaf,))
    who = Phrase(Tree("WHNP", (who_leaf,)), [word], kinds=frozenset({"person"}), heads=(who_leaf, word))
    clause = draw_clause(d, ClauseSpec(ANY, subject=who, plain=True, positive=True))
    # "Who sleeps?" has the words of a statement in both languages, but another tree in English.
    _, de = main_clause(d, clause)
    sq = Tree("SQ", tuple(predicate(clause)))
    return sentence(d, (Tree("SBARQ", (who.en, sq)), de), "?")


def spoken_to(d: Draft) -> Sides:
    """Builds a sentence that addresses somebody by name, which decides between du and Sie for every `you`."""
    # A first name goes with du, a title with Sie.
    if d.chance(50):
        name = d.word(tuple(d.lexicon.names))
        leaves = [leaf("NNP", name)]
        words = [name]
        you = pronoun_phrase("du", NOMINATIVE)
    else:
        title, german_title = d.pick((("Mr.", "Herr"), ("Mrs.", "Frau")))
        family = d.word(d.lexicon.families)
        leaves = [leaf("NNP", title), leaf("NNP", family)]
        words = [german_title, family]
        you = pronoun_phrase("Sie", NOMINATIVE)
    # A statement or a question follows the name and a comma.
    address = [Word(word, (source,)) for word, source in zip(words, leaves, strict=True)]
    asked = d.chance(50)
    tenses = ("can", "must", "should", "want", "past", "will")
    clause = draw_clause(d, ClauseSpec(tenses, subject=you, asked=asked, positive=asked))
    s, de = question(d, clause) if asked else main_clause(d, clause)
    assert not isinstance(s.children, str)
    en_comma = leaf(",", ",")
    en = Tree(s.label, (Tree("NP", tuple(leaves)), en_comma, *s.children))
    return sentence(d, (en, [*address, Word(",", (en_comma,)), *de]), "?" if asked else ".")


def two_statements(d: Draft) -> Sides:
    """Builds two main clauses with and / but; the conjunction is outside the German fields."""
    conjunction = d.pick(_COORDINATIONS)
    spec = ClauseSpec(d.pick((PRESENT, PAST)), plain=True, timed=False)
    first = draw_clause(d, spec)
    pronoun = _pronoun_for(d, first.subject) if d.chance(35) else None
    second = draw_clause(d, spec._replace(subject=pronoun))
    s, de = main_clause(d, first)
    en_following, de_following = _coordinated(conjunction, main_clause(d, second))
    return sentence(d, (Tree("S", (s, *en_following)), [*de, *de_following]))


def _coordinated(conjunction: tuple[str, str], clause: Sides) -> tuple[list[Tree], list[Word]]:
    """Returns a comma, the conjunction in both languages, and the clause."""
    english, german = conjunction
    s, de = clause
    en_comma = leaf(",", ",")
    conjunction_leaf = leaf("CC", english)
    return [en_comma, conjunction_leaf, s], [Word(",", (en_comma,)), Word(german, (conjunction_leaf,)), *de]


def purpose(d: Draft) -> Sides:
    """Builds in order to / try to: German ends in an infinitive with zu, inside a separable verb (anzurufen)."""
    # "She tries to call" or "she goes home in order to call": the main clause, and what its subject aims at.
    trying = d.chance(40)
    frame = "infinitive" if trying else d.pick(("motion", "none", "acc"))
    somebody = subject_phrase(d, ("person",), plain=True)
    spec = ClauseSpec(_MATRIX_TENSES, subject=somebody, plain=True, positive=True, timed=False)
    matrix = draw_clause(d, spec._replace(frame=frame, placed=not trying))
    aim_frame = d.pick(("acc", "acc", "dat", "give"))
    aim = draw_clause(d, spec._replace(tenses=("can",), frame=aim_frame, often=False))

    # English: the aim is a verb phrase after "to", with "in order" before it.
    to = leaf("TO", "to")
    goal = Tree("S", (Tree("VP", (to, Tree("VP", (aim.head, *aim.complements)))),))
    opening: list[Word] = []
    if not trying:
        in_order = (leaf("IN", "in"), leaf("NN", "order"))
        goal = Tree("SBAR", (*in_order, goal))
        opening = [Word("um", in_order)]
    s, de = main_clause(d, _with_complement(matrix, goal))
    # German: the verb is last, as an infinitive with zu.
    de_goal = [*opening, *aim.pronouns, *aim.middle, *_zu_infinitive(d, to, aim.bracket[0])]
    return sentence(d, (s, [*de, comma(), *de_goal]))


def _zu_infinitive(d: Draft, to: Tree, infinitive: Word) -> list[Word]:
    # "zu gehen" is two words; of a separable verb it is one, "anzurufen".
    *zu, verb = d.lexicon.zu[infinitive.text]
    if zu:
        return [Word("zu", (to,)), Word(verb, infinitive.sources)]
    return [Word(verb, (to, *infinitive.sources))]


def there_is(d: Draft) -> Sides:
    """Builds "there is ..." with a place in the German first field, so that the subject follows the verb."""
    kind = d.pick(("person", "animal", "thing", "food"))
    thing = noun_phrase(d, d.noun(kind), NOMINATIVE, d.pick(("a", "a", "number", "many")))
    place = location(d, thing.kinds)
    past = d.chance(30)
    plural = thing.agreement == PLURAL
    there = leaf("EX", "there")
    if past:
        be = leaf("VBD", "were" if plural else "was")
    elif plural:
        be = leaf("VBP", "are")
    else:
        be = leaf("VBZ", "is")
    # The place is last in English and first in German: "Im Garten ist ein Hund."
    en = Tree("S", (Tree("NP", (there,)), Tree("VP", (be, thing.en, place.en))))
    finite = Word(AUXILIARIES["war" if past else "sein"][thing.agreement], (there, be))
    return sentence(d, (en, [*place.de, finite, *thing.de]))


RULES: tuple[Callable[[Draft], Sides], ...] = (  # those repeated are drawn more often
    *(statement,) * 6,
    *(two_clauses,) * 4,
    *(thought,) * 3,
    *(yes_no,) * 2,
    *(wh_question,) * 2,
    who_question,
    *(spoken_to,) * 2,
    *(two_statements,) * 2,
    *(purpose,) * 2,
    there_is,
)


def _thinker(d: Draft) -> Clause:
    return draw_clause(d, ClauseSpec(_MATRIX_TENSES, frame="that", plain=True, positive=True, timed=False))


def nested_thought(d: Draft) -> Sides:
    """Builds "A knows that B thinks that ...": in German, each clause inside ends in its own verb."""
    # From the innermost clause outwards: each becomes the complement of the next.
    clause = draw_clause(d, ClauseSpec(ANY, plain=d.chance(70)))
    levels = d.pick((2, 2, 3))
    for _ in range(levels):
        sbar, de = _subordinate(d, ("IN", "that"), "dass", clause)
        thinker = _thinker(d)
        clause = _with_complement(thinker, sbar)._replace(after=[*thinker.after, comma(), *de])
    return sentence(d, main_clause(d, clause))


def relative_inside(d: Draft) -> Sides:
    """Builds a main clause and a reason, condition or time, with relative clauses inside either."""
    return two_clauses(d, plain=False)


def many_statements(d: Draft) -> Sides:
    """Builds four to six main clauses with and / but between them."""
    s, de = main_clause(d, draw_clause(d, ClauseSpec(ANY)))
    parts = [s]
    for _ in range(d.pick((3, 4, 5))):
        conjunction = d.pick(_COORDINATIONS)
        following = main_clause(d, draw_clause(d, ClauseSpec(ANY)))
        en_following, de_following = _coordinated(conjunction, following)
        parts += en_following
        de += de_following
    return sentence(d, (Tree("S", tuple(parts)), de))


DEEPER: tuple[Callable[[Draft], Sides], ...] = (nested_thought, relative_inside)
LONGER: tuple[Callable[[Draft], Sides], ...] = (many_statements,)
