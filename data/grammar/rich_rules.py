"""The kinds of sentence that only the `rich` splits of the built-in corpus have: what decides a word is far from it.

A noun of several meanings is decided by a person whom another clause mentions, `it` by what is said of it, a relative
pronoun by a noun before the verb, and the verb by a particle at the end.
"""

from data.grammar.clauses import ANY, proposition, subject_phrase, with_relative
from data.grammar.lexicon import ACCUSATIVE, AUXILIARIES, DATIVE, ER, NOMINATIVE, Noun
from data.grammar.phrases import location, noun_phrase, preposition, pronoun_phrase
from data.grammar.rich import SENSES
from data.grammar.rules import RULES, Sides, inside, joined, sentence
from data.grammar.syntax import Clause, Draft, Phrase, Word, leaf, main_clause
from data.trees.tree import Tree

_NEUTRAL = ("see", "find", "need", "draw", "describe", "photograph", "forget")  # verbs that tell nothing of the object
_STYLES = ("the",) * 4 + ("a", "a", "this", "own")
_SAID_OF = {  # what is said of one of these kinds of things and of no other
    "animal": "hungry hungrig, thirsty durstig, trusting zutraulich",
    "food": "fresh frisch, delicious lecker, overripe überreif",
    "text": "boring langweilig, exciting spannend, handwritten handschriftlich",
    "clothing": "tight eng, knitted gestrickt, washable waschbar",
    "machine": "electric elektrisch, automatic automatisch, wireless drahtlos",
}


def _with_object(clause: Clause, phrase: Phrase) -> Clause:
    """Returns the clause with an object, which its verb lacks; `nicht` and adverbs would follow it."""
    return clause._replace(complements=[*clause.complements, phrase.en], middle=[*phrase.de, *clause.middle])


def _with_place(clause: Clause, place: Phrase) -> Clause:
    return clause._replace(complements=[*clause.complements, place.en], middle=[*clause.middle, *place.de])


def _person(d: Draft) -> Phrase:
    return subject_phrase(d, ("person",), plain=True)


def _neutral(d: Draft, tenses: tuple[str, ...], subject: Phrase, what: Phrase, timed: bool = False) -> Clause:
    """Returns a clause in which somebody sees, finds, ... something."""
    english = d.pick(_NEUTRAL)
    verb = next(verb for verb in d.lexicon.verbs_of["acc"] if verb.en[0] == english)
    clause = proposition(
        d, tenses, subject=subject, plain=True, gap=verb, positive=True, timed=timed, placed=False, often=False
    )
    return _with_object(clause, what)


def ambiguous(d: Draft) -> Sides:
    """Builds a sentence with a noun of several meanings and, in another clause, the only person who decides it."""
    sense = d.pick(SENSES)
    what = noun_phrase(d, sense.noun, ACCUSATIVE, d.pick(_STYLES))
    cue = noun_phrase(d, d.pick(sense.cues), NOMINATIVE, d.pick(("the", "the", "a", "own")), plain=True)
    how = d.below(3)
    if how == 0:
        return sentence(d, main_clause(d, _neutral(d, ANY, with_relative(d, cue), what, timed=True)))
    kind, past = d.pick(("because", "although", "when", "while", "before")), d.chance(60)
    tenses = ("past",) if past else ("present",)
    about_cue = proposition(d, tenses, subject=cue, plain=True, timed=False, positive=True)
    about_it = _neutral(d, tenses, _person(d), what)
    return joined(d, kind, past, about_it, about_cue, first=how == 1)


def it_between(d: Draft) -> Sides:
    """Builds a clause with two nouns that `it` may mean, of different genders, and one that says which."""
    kinds = list(_SAID_OF)
    meant = d.pick(kinds)
    other = d.pick([kind for kind in kinds if kind != meant])
    nouns: list[Noun] = [d.noun(meant)]
    others = [noun for noun in d.lexicon.nouns_of[other] if noun.gender != nouns[0].gender]
    nouns.append(d.word(others))
    order = (0, 1) if d.chance(50) else (1, 0)
    cases = (ACCUSATIVE, DATIVE)
    phrases = {
        number: noun_phrase(d, nouns[number], case, d.pick(("this", "a", "own")), plain=True, singular=True)
        for number, case in zip(order, cases, strict=True)
    }
    english, german = d.pick((("behind", "hinter"), ("beside", "neben"), ("under", "unter"), ("near", "bei")))
    main = _with_place(
        _neutral(d, ("past",), _person(d), phrases[order[0]]), preposition(english, german, phrases[order[1]])
    )
    it = pronoun_phrase("it", NOMINATIVE, nouns[0])
    antecedent = phrases[0].heads
    assert it.heads is not None and antecedent is not None
    d.link("english_pronouns", it.heads[0], antecedent[0])
    d.link("german_pronouns", it.heads[1], antecedent[1])
    kind = d.pick(("because", "although"))
    if meant == "animal" and d.chance(50):
        said = proposition(d, ("past",), subject=it, plain=True, frame="none", timed=False, positive=True, placed=False)
    else:
        said = _said_of(d, it, meant)
    return joined(d, kind, True, main, said)


def _said_of(d: Draft, it: Phrase, kind: str) -> Clause:
    english, german = d.pick(_SAID_OF[kind].split(", ")).split()
    was, adjective = leaf("VBD", "was"), leaf("JJ", english)
    finite = Word(AUXILIARIES["war"][ER], (was,))
    complement, words = Tree("ADJP", (adjective,)), [Word(german, (adjective,))]
    return Clause(it, [], None, was, [complement], None, finite, None, [], [], words, [])


def particle_far(d: Draft) -> Sides:
    """Builds a main clause in the present whose separable verb has its particle behind a clause about the object.

    Commas say that the relative clause is inside; one without them follows the particle.
    """
    verb = d.word([verb for verb in d.lexicon.verbs_of["acc"] if verb.particle])
    noun = d.noun(d.pick(verb.objects))
    what = with_relative(d, noun_phrase(d, noun, ACCUSATIVE, d.pick(("the", "the", "this", "own"))), that=False)
    before, after = leaf(",", ","), leaf(",", ",")
    assert not isinstance(what.en.children, str)
    first, relative = what.en.children
    words = [Word(",", (before,)), *what.after[1:-1], Word(",", (after,))]
    what = what._replace(en=Tree("NP", (first, before, relative, after)), de=[*what.de, *words], after=[])
    clause = proposition(d, ("present",), subject=_person(d), plain=True, gap=verb, positive=True, often=False)
    return sentence(d, main_clause(d, _with_place(_with_object(clause, what), location(d)), time_first=d.chance(30)))


def relative_far(d: Draft) -> Sides:
    """Builds a clause that ends in a relative clause about its subject: "A boy slept in this house who ..."."""
    plain = noun_phrase(d, d.noun("person"), NOMINATIVE, d.pick(("a", "a", "many", "number")))
    subject = with_relative(d, plain, that=False)
    clause = proposition(d, ANY, subject=plain, plain=True, frame="none", positive=True, placed=False, often=False)
    place = noun_phrase(d, d.noun("in"), DATIVE, d.pick(("a", "this", "own")), plain=True, singular=True)
    s, de = main_clause(d, _with_place(clause, preposition("in", "in", place)))
    assert not isinstance(s.children, str) and not isinstance(subject.en.children, str)
    tree = Tree("S", (*s.children[:-1], inside(s.children[-1], subject.en.children[1])))
    return sentence(d, (tree, [*de, *subject.after]))


RICH_RULES = (*RULES, *(ambiguous,) * 5, *(it_between,) * 4, *(particle_far,) * 4, *(relative_far,) * 3)
