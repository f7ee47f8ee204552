"""The kinds of sentence in the built-in corpus: each rule draws one and builds it in English and German at once.

`RULES` make what models are trained on, where no clause is more than one level deep. `DEEPER` and `LONGER` put the same
parts together further than that, for test sets only.
"""

from collections.abc import Callable

from data.grammar.clauses import ANY, PAST, PRESENT, proposition, subject_phrase
from data.grammar.lexicon import AUXILIARIES, ER, NOMINATIVE, PLURAL
from data.grammar.phrases import location, noun_phrase, pronoun_phrase
from data.grammar.syntax import Clause, Draft, Phrase, Word, comma, leaf, main_clause, predicate, question, verb_last
from data.trees.tree import Tree

Sides = tuple[Tree, list[Word]]


def sentence(d: Draft, sides: Sides, mark: str = ".") -> Sides:
    """Returns the sentence with its final punctuation."""
    tree, de = sides
    stop = leaf(".", mark)
    assert not isinstance(tree.children, str)
    return Tree(tree.label, (*tree.children, stop)), [*de, Word(mark, (stop,))]


def statement(d: Draft) -> Sides:
    """Builds a main clause, sometimes with the time in the first field."""
    return sentence(d, main_clause(d, proposition(d, ANY), time_first=d.chance(50)))


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


def two_clauses(d: Draft, plain: bool = True) -> Sides:
    """Builds a main clause with a reason, condition or time, in either order; past `when` is als, otherwise wenn.

    Unless `plain`, there may be relative clauses inside both.
    """
    kind = d.pick(("because", "because", "although", "when", "when", "if", "while", "before"))
    past = kind != "if" and d.chance(50)
    tenses = PAST if past else PRESENT
    main = proposition(d, tenses, plain=plain)
    again = _taken_up(d, main.subject) if d.chance(60) else None
    narrow = ("past",) if past else ("present",) if kind != "because" else PRESENT
    sub = proposition(d, narrow, subject=again, plain=plain, timed=False)
    return joined(d, kind, past, main, sub, first=again is None and d.chance(45))


def joined(d: Draft, kind: str, past: bool, main: Clause, sub: Clause, first: bool = False) -> Sides:
    """Builds a main and a subordinate clause with the conjunction `kind`; the subordinate one may be `first`."""
    german = {"because": "weil", "although": "obwohl", "if": "wenn", "while": "während", "before": "bevor"}
    conjunction = german.get(kind) or ("als" if past else "wenn")
    sbar, de_sub = _subordinate(("WRB", "when") if kind == "when" else ("IN", kind), conjunction, sub)
    if first:
        en_comma = leaf(",", ",")
        s, de = main_clause(d, main, inverted=True)
        assert not isinstance(s.children, str)
        return sentence(d, (Tree("S", (sbar, en_comma, *s.children)), [*de_sub, Word(",", (en_comma,)), *de]))
    s, de = main_clause(d, main)
    assert not isinstance(s.children, str)
    body = Tree("S", (*s.children[:-1], inside(s.children[-1], sbar)))
    return sentence(d, (body, [*de, comma(), *de_sub]))


def inside(phrase: Tree, clause: Tree) -> Tree:
    """Returns the constituent with the clause as its last part."""
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
    return sentence(d, (s, [*de, comma(), *de_sub]))


def yes_no(d: Draft) -> Sides:
    """Builds a yes-no question, verb first; English needs do, German does not."""
    return sentence(d, question(d, proposition(d, ANY, plain=True, asked=True, positive=True)), "?")


def wh_question(d: Draft) -> Sides:
    """Builds a question with where, when, why, or the object (whom is wen or wem) in the first field."""
    english, german = d.pick((("where", "wo"), ("when", "wann"), ("why", "warum"), ("whom", ""), ("what", "was")))
    verb = None
    if english in ("whom", "what"):
        wanted = "person" if english == "whom" else "thing"
        frames = ("acc", "dat") if english == "whom" else ("acc",)
        verb = d.word([v for f in frames for v in d.lexicon.verbs_of[f] if wanted in v.objects])
        german = german or ("wem" if "dat" in verb.frames else "wen")
    frame = "" if verb else d.pick(("none", "acc", "acc", "dat"))
    clause = proposition(
        d, ANY, plain=True, asked=True, positive=True, gap=verb, frame=frame, timed=False, placed=False
    )
    label, phrase = ("WP", "WHNP") if verb else ("WRB", "WHADVP")
    en = leaf(label, english)
    sq, de = question(d, clause)
    return sentence(d, (Tree("SBARQ", (Tree(phrase, (en,)), sq)), [Word(german, (en,)), *de]), "?")


def who_question(d: Draft) -> Sides:
    """Builds a question with who as the subject: no do in English, the order of a statement in both."""
    en = leaf("WP", "who")
    word = Word("wer", (en,))
    who = Phrase(Tree("WHNP", (en,)), [word], (), ER, "", frozenset({"person"}), None, (en, word))
    clause = proposition(d, ANY, subject=who, plain=True, positive=True)
    _, de = main_clause(d, clause)
    return sentence(d, (Tree("SBARQ", (who.en, Tree("SQ", tuple(predicate(clause))))), de), "?")


def spoken_to(d: Draft) -> Sides:
    """Builds a sentence that addresses somebody by name, which decides between du and Sie for every `you`."""
    if d.chance(50):
        leaves: tuple[Tree, ...] = (leaf("NNP", d.word(tuple(d.lexicon.names))),)
        de = [Word(str(leaves[0].children), leaves)]
        key = "du"
    else:
        title, german = d.pick((("Mr.", "Herr"), ("Mrs.", "Frau")))
        leaves = (leaf("NNP", title), leaf("NNP", d.word(d.lexicon.families)))
        de = [Word(german, leaves[:1]), Word(str(leaves[1].children), leaves[1:])]
        key = "Sie"
    en_comma = leaf(",", ",")
    you, asked = pronoun_phrase(key, NOMINATIVE), d.chance(50)
    clause = proposition(d, ("can", "must", "should", "want", "past", "will"), subject=you, asked=asked, positive=asked)
    s, de_clause = question(d, clause) if asked else main_clause(d, clause)
    assert not isinstance(s.children, str)
    en = Tree(s.label, (Tree("NP", leaves), en_comma, *s.children))
    return sentence(d, (en, [*de, Word(",", (en_comma,)), *de_clause]), "?" if asked else ".")


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
    return sentence(d, (en, [*de_one, Word(",", (en_comma,)), Word(german, (conjunction,)), *de_two]))


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
    *zu, verb = d.lexicon.zu[infinitive.text]
    if zu:
        end = [Word("zu", (to,)), Word(verb, infinitive.sources)]
    else:
        end = [Word(verb, (to, *infinitive.sources))]
    lead: list[Word] = []
    if not trying:
        words = leaf("IN", "in"), leaf("NN", "order")
        goal, lead = Tree("SBAR", (*words, goal)), [Word("um", words)]
    s, de = main_clause(d, matrix._replace(complements=[*matrix.complements, goal]))
    return sentence(d, (s, [*de, comma(), *lead, *aim.pronouns, *aim.middle, *end]))


def there_is(d: Draft) -> Sides:
    """Builds "there is ..." with a place in the German first field, so that the subject follows the verb."""
    kind = d.pick(("person", "animal", "thing", "food"))
    thing = noun_phrase(d, d.noun(kind), NOMINATIVE, d.pick(("a", "a", "number", "many")))
    place, past, plural = location(d, thing.kinds), d.chance(30), thing.agreement == PLURAL
    there = leaf("EX", "there")
    be = (
        leaf("VBD", "were" if plural else "was")
        if past
        else leaf("VBP" if plural else "VBZ", "are" if plural else "is")
    )
    en = Tree("S", (Tree("NP", (there,)), Tree("VP", (be, thing.en, place.en))))
    finite = Word(AUXILIARIES["war" if past else "sein"][thing.agreement], (there, be))
    return sentence(d, (en, [*place.de, finite, *thing.de]))


RULES: tuple[Callable[[Draft], Sides], ...] = (
    *(statement,) * 6, *(two_clauses,) * 4, *(thought,) * 3, *(yes_no,) * 2, wh_question, wh_question, who_question,
    *(spoken_to,) * 2, *(two_statements,) * 2, *(purpose,) * 2, there_is,
)  # fmt: skip


def _thinker(d: Draft) -> Clause:
    return proposition(d, ("present", "present", "past"), plain=True, frame="that", timed=False, positive=True)


def nested_thought(d: Draft) -> Sides:
    """Builds "A knows that B thinks that ...": in German, each clause inside ends in its own verb."""
    inner = proposition(d, ANY, plain=d.chance(70))
    for _ in range(d.pick((1, 1, 2))):
        sbar, de = _subordinate(("IN", "that"), "dass", inner)
        outer = _thinker(d)
        inner = outer._replace(complements=[*outer.complements, sbar], after=[*outer.after, comma(), *de])
    sbar, de = _subordinate(("IN", "that"), "dass", inner)
    matrix = _thinker(d)
    s, de_main = main_clause(d, matrix._replace(complements=[*matrix.complements, sbar]))
    return sentence(d, (s, [*de_main, comma(), *de]))


def relative_inside(d: Draft) -> Sides:
    """Builds a main clause and a reason, condition or time, with relative clauses inside either."""
    return two_clauses(d, plain=False)


def many_statements(d: Draft) -> Sides:
    """Builds four to six main clauses with and / but between them."""
    s, de = main_clause(d, proposition(d, ANY))
    clauses: list[Tree] = [s]
    for _ in range(d.pick((3, 4, 5))):
        english, german = d.pick((("and", "und"), ("but", "aber")))
        en_comma, conjunction = leaf(",", ","), leaf("CC", english)
        s, words = main_clause(d, proposition(d, ANY))
        clauses += [en_comma, conjunction, s]
        de = [*de, Word(",", (en_comma,)), Word(german, (conjunction,)), *words]
    return sentence(d, (Tree("S", tuple(clauses)), de))


DEEPER: tuple[Callable[[Draft], Sides], ...] = (nested_thought, relative_inside)
LONGER: tuple[Callable[[Draft], Sides], ...] = (many_statements,)
