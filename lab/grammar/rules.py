"""The kinds of sentence that only the rich grammar has: what decides a word is far from it.

A noun of several meanings is decided by a person whom another clause mentions, `it` by what is said of it, a relative
pronoun by a noun before the verb, and the verb by a particle at the end.
"""

from lab.grammar.words import SENSES, TABLES
from vaswani.data.grammar.clauses import ANY, ClauseSpec, draw_clause, subject_phrase, with_relative
from vaswani.data.grammar.lexicon import ACCUSATIVE, AUXILIARIES, DATIVE, ER, NOMINATIVE, table
from vaswani.data.grammar.phrases import location, noun_phrase, preposition, pronoun_phrase
from vaswani.data.grammar.rules import RULES, Sides, inside, joined, link_pronoun, sentence
from vaswani.data.grammar.syntax import Clause, Draft, Phrase, Word, leaf, main_clause
from vaswani.data.trees.tree import Tree

_NEUTRAL = ("see", "find", "need", "draw", "describe", "photograph", "forget")  # verbs that tell nothing of the object
_STYLES = (*("the",) * 4, "a", "a", "this", "own")


def _predicates() -> dict[str, list[tuple[str, str]]]:
    """Returns what is said of one kind of things and of no other, in both languages."""
    predicates: dict[str, list[tuple[str, str]]] = {}
    for row in table("rich_predicates", TABLES):
        predicates.setdefault(row["kind"], []).append((row["english"], row["german"]))
    return predicates


_PREDICATES = _predicates()


def _with_object(clause: Clause, phrase: Phrase) -> Clause:
    """Returns the clause with an object, which its verb lacks; `nicht` and adverbs would follow it."""
    return clause._replace(complements=[*clause.complements, phrase.en], middle=[*phrase.de, *clause.middle])


def _with_place(clause: Clause, place: Phrase) -> Clause:
    return clause._replace(complements=[*clause.complements, place.en], middle=[*clause.middle, *place.de])


def _person(d: Draft) -> Phrase:
    return subject_phrase(d, ("person",), plain=True)


def _neutral(d: Draft, tenses: tuple[str, ...], subject: Phrase, thing: Phrase, timed: bool = False) -> Clause:
    """Returns a clause in which somebody sees, finds, ... something."""
    english = d.pick(_NEUTRAL)
    verb = next(verb for verb in d.lexicon.verbs_of["acc"] if verb.en[0] == english)
    spec = ClauseSpec(
        tenses, subject=subject, gap=verb, plain=True, positive=True, timed=timed, placed=False, often=False
    )
    return _with_object(draw_clause(d, spec), thing)


def ambiguous(d: Draft) -> Sides:
    """Builds a sentence with a noun of several meanings and, in another clause, the only person who decides it."""
    sense = d.pick(SENSES)
    thing = noun_phrase(d, sense.noun, ACCUSATIVE, d.pick(_STYLES))
    cue = noun_phrase(d, d.pick(sense.cues), NOMINATIVE, d.pick(("the", "the", "a", "own")), plain=True)
    arrangement = d.pick(("relative clause", "cue first", "cue last"))
    if arrangement == "relative clause":
        return sentence(d, main_clause(d, _neutral(d, ANY, with_relative(d, cue), thing, timed=True)))
    kind = d.pick(("because", "although", "when", "while", "before"))
    past = d.chance(60)
    tenses = ("past",) if past else ("present",)
    about_cue = draw_clause(d, ClauseSpec(tenses, subject=cue, plain=True, positive=True, timed=False))
    about_it = _neutral(d, tenses, _person(d), thing)
    return joined(d, kind, past, about_it, about_cue, first=arrangement == "cue first")


def it_between(d: Draft) -> Sides:
    """Builds a clause with two nouns that `it` may mean, of different genders, and one that says which."""
    kinds = list(_PREDICATES)
    meant_kind = d.pick(kinds)
    distractor_kind = d.pick([kind for kind in kinds if kind != meant_kind])
    meant = d.noun(meant_kind)
    distractors = [noun for noun in d.lexicon.nouns_of[distractor_kind] if noun.gender != meant.gender]
    distractor = d.word(distractors)

    meant_is_object = d.chance(50)
    object_noun, place_noun = (meant, distractor) if meant_is_object else (distractor, meant)
    styles = ("this", "a", "own")
    seen = noun_phrase(d, object_noun, ACCUSATIVE, d.pick(styles), plain=True, singular=True)
    place = noun_phrase(d, place_noun, DATIVE, d.pick(styles), plain=True, singular=True)
    english, german = d.pick((("behind", "hinter"), ("beside", "neben"), ("under", "unter"), ("near", "bei")))
    main = _with_place(_neutral(d, ("past",), _person(d), seen), preposition(english, german, place))

    it = pronoun_phrase("it", NOMINATIVE, meant)
    link_pronoun(d, it, seen if meant_is_object else place)
    kind = d.pick(("because", "although"))
    if meant_kind == "animal" and d.chance(50):
        spec = ClauseSpec(("past",), subject=it, frame="none", plain=True, positive=True, timed=False, placed=False)
        about_it = draw_clause(d, spec)
    else:
        about_it = _predicated(d, it, meant_kind)
    return joined(d, kind, True, main, about_it)


def _predicated(d: Draft, it: Phrase, kind: str) -> Clause:
    """Returns a clause that says of `it` what can be said of this kind of things alone."""
    english, german = d.pick(_PREDICATES[kind])
    was = leaf("VBD", "was")
    adjective = leaf("JJ", english)
    return Clause(
        subject=it,
        layers=[],
        adverb=None,
        head=was,
        complements=[Tree("ADJP", (adjective,))],
        time=None,
        finite=Word(AUXILIARIES["war"][ER], (was,)),
        particle=None,
        bracket=[],
        pronouns=[],
        middle=[Word(german, (adjective,))],
        after=[],
    )


def particle_far(d: Draft) -> Sides:
    """Builds a main clause in the present whose separable verb has its particle behind a clause about the object.

    Commas say that the relative clause is inside; one without them follows the particle.
    """
    verb = d.word([verb for verb in d.lexicon.verbs_of["acc"] if verb.particle])
    noun = d.noun(d.pick(verb.objects))
    thing = noun_phrase(d, noun, ACCUSATIVE, d.pick(("the", "the", "this", "own")))
    thing = _enclosed(with_relative(d, thing, that=False))
    spec = ClauseSpec(("present",), subject=_person(d), gap=verb, plain=True, positive=True, often=False)
    clause = _with_object(draw_clause(d, spec), thing)
    clause = _with_place(clause, location(d))
    return sentence(d, main_clause(d, clause, time_first=d.chance(30)))


def _enclosed(phrase: Phrase) -> Phrase:
    """Returns a phrase whose relative clause stays where it is, between commas in both languages."""
    assert not isinstance(phrase.en.children, str)
    noun, relative = phrase.en.children
    before = leaf(",", ",")
    after = leaf(",", ",")
    _, *relative_words, _ = phrase.after
    de = [*phrase.de, Word(",", (before,)), *relative_words, Word(",", (after,))]
    return phrase._replace(en=Tree("NP", (noun, before, relative, after)), de=de, after=[])


def relative_far(d: Draft) -> Sides:
    """Builds a clause that ends in a relative clause about its subject: "A boy slept in this house who ..."."""
    plain = noun_phrase(d, d.noun("person"), NOMINATIVE, d.pick(("a", "a", "many", "number")))
    subject = with_relative(d, plain, that=False)
    clause = draw_clause(
        d, ClauseSpec(ANY, subject=plain, frame="none", plain=True, positive=True, placed=False, often=False)
    )
    place = noun_phrase(d, d.noun("in"), DATIVE, d.pick(("a", "this", "own")), plain=True, singular=True)
    s, de = main_clause(d, _with_place(clause, preposition("in", "in", place)))
    assert not isinstance(s.children, str) and not isinstance(subject.en.children, str)
    *others, verb_phrase = s.children
    _, relative = subject.en.children
    tree = Tree("S", (*others, inside(verb_phrase, relative)))
    return sentence(d, (tree, [*de, *subject.after]))


RICH_RULES = (
    *RULES,
    *(ambiguous,) * 5,
    *(it_between,) * 4,
    *(particle_far,) * 4,
    *(relative_far,) * 3,
)
