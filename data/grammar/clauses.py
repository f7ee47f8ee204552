"""The built-in corpus, from phrases to clauses: subject, verb and tense, objects, time and place.

The verb determines the case of its objects, the tense what is in the right bracket, and `not` becomes kein on an
indefinite object and otherwise follows everything definite.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vaswani.data.grammar.lexicon import (
    ACCUSATIVE,
    AUXILIARIES,
    DATIVE,
    ER,
    NOMINATIVE,
    PLURAL,
    RELATIVE,
    Verb,
)
from vaswani.data.grammar.phrases import (
    PLACE_STYLES,
    direction,
    location,
    name_phrase,
    noun_phrase,
    preposition,
    pronoun_phrase,
    time_phrase,
)
from vaswani.data.grammar.syntax import Clause, Draft, Phrase, Word, comma, leaf, predicate, verb_last
from vaswani.data.trees.tree import Tree

# Repeated items are drawn more often.
_QUESTION_SUBJECT_STYLES = (*("the",) * 8, *("this",) * 2, *("a",) * 2, *("own",) * 2, "name's", "number", "many")
_SUBJECT_STYLES = (*_QUESTION_SUBJECT_STYLES, "every", "no")
_OBJECT_STYLES = (*("the",) * 6, *("a",) * 5, *("own",) * 2, "this", "name's", "number", "number", "many", "bare")
_NEGATED_STYLES = (*("the",) * 3, *("a",) * 3, *("any",) * 2, "this", "own")
_FRAMES = (
    *("none",) * 4,
    *("acc",) * 11,
    *("dat",) * 3,
    *("give",) * 3,
    *("put", "motion", "motion", "ride", "swim"),
    *("be",) * 5,
)
_MODALS = {  # German, and German under negation: must not = darf nicht
    "can": ("können", "können"),
    "must": ("müssen", "dürfen"),
    "should": ("sollte", "sollte"),
    "could": ("konnte", "konnte"),
    "will": ("werden", "werden"),
}
PRESENT = ("present", "present", "present", "can", "must", "want", "should")
PAST = ("past", "past", "past", "could")
ANY = (*PRESENT, *PAST, "will")
_OFTEN = {"often": "oft", "always": "immer", "never": "nie"}
_PRONOUNS = ("he", "she", "they", "we", "I")
_FIRST_PERSON = ("I", "we")


class ClauseSpec(NamedTuple):
    """What is asked of a clause; all else is drawn.

    `subject`: this one; `frame`: a verb of this frame; `gap`: this verb, whose object is elsewhere (relative pronoun,
    question word); `asked`: with an auxiliary to invert; `plain`: no relative clauses inside; `positive`: no negation;
    `timed`, `placed`, `often`: may say when, where, how often.
    """

    tenses: tuple[str, ...]
    subject: Phrase | None = None
    frame: str = ""
    gap: Verb | None = None
    asked: bool = False
    plain: bool = False
    positive: bool = False
    timed: bool = True
    placed: bool = True
    often: bool = True


class Complex(NamedTuple):
    """The verb of a clause in both languages, with fields as in `Clause`.

    `not_leaf` is the leaf that has `not`, `en_particle` that of a particle, as up in "wake up".
    """

    layers: list[tuple[Tree, ...]]
    head: Tree
    finite: Word
    particle: Word | None
    bracket: list[Word]
    not_leaf: Tree | None
    en_particle: Tree | None


def _support(agreement: int, past: bool) -> Tree:
    """Returns the form of `do` that negation and questions need."""
    if past:
        return leaf("VBD", "did")
    if agreement == ER:
        return leaf("VBZ", "does")
    return leaf("VBP", "do")


def _modal_complex(verb: Verb, modal: str, agreement: int, negated: bool) -> Complex:
    """Returns a modal and an infinitive; English writes cannot as one word, which then is the leaf that has `not`."""
    german, forbidden = _MODALS[modal]
    cannot = negated and modal == "can"
    modal_leaf = leaf("MD", "cannot" if cannot else modal)
    layer: tuple[Tree, ...] = (modal_leaf,)
    not_leaf = None
    if cannot:
        not_leaf = modal_leaf
    elif negated:
        not_leaf = leaf("RB", "not")
        layer = (modal_leaf, not_leaf)
    head = leaf("VB", verb.en[0])
    en_particle = leaf("RP", verb.en_particle) if verb.en_particle else None
    finite = Word(AUXILIARIES[forbidden if negated else german][agreement], (modal_leaf,))
    infinitive = Word(verb.particle + verb.infinitive, (head, en_particle) if en_particle else (head,))
    return Complex([layer], head, finite, None, [infinitive], not_leaf, en_particle)


def _want(agreement: int, supported: bool) -> Tree:
    """Returns English "want", which stays bare after "do"."""
    if supported:
        return leaf("VB", "want")
    if agreement == ER:
        return leaf("VBZ", "wants")
    return leaf("VBP", "want")


def verb_complex(verb: Verb, tense: str, agreement: int, negated: bool, asked: bool) -> Complex:
    """Returns the verb in one tense: English auxiliaries in layers, German finite verb and right bracket."""
    if tense in _MODALS:
        return _modal_complex(verb, tense, agreement, negated)
    base, third_person, past = verb.en
    en_particle = leaf("RP", verb.en_particle) if verb.en_particle else None
    lexical = (en_particle,) if en_particle else ()
    not_leaf = leaf("RB", "not") if negated else None
    support: tuple[Tree, ...] = ()
    layers: list[tuple[Tree, ...]] = []
    if negated or asked:
        support = (_support(agreement, tense == "past"),)
        layers = [(*support, not_leaf) if not_leaf else support]

    if support or tense == "want":
        head = leaf("VB", base)
    elif tense == "past":
        head = leaf("VBD", past)
    elif agreement == ER:
        head = leaf("VBZ", third_person)
    else:
        head = leaf("VBP", base)

    if tense == "want":
        want = _want(agreement, supported=bool(support))
        to = leaf("TO", "to")
        finite = Word(AUXILIARIES["wollen"][agreement], (*support, want, to))
        infinitive = Word(verb.particle + verb.infinitive, (head, *lexical))
        return Complex([*layers, (want,), (to,)], head, finite, None, [infinitive], not_leaf, en_particle)
    if tense == "past":
        finite = Word(AUXILIARIES[verb.auxiliary][agreement], (*support, head))
        participle = Word(verb.participle, (head, *lexical))
        return Complex(layers, head, finite, None, [participle], not_leaf, en_particle)
    finite = Word(verb.present[agreement], (*support, head))
    particle = Word(verb.particle, lexical or (head,)) if verb.particle else None
    return Complex(layers, head, finite, particle, [], not_leaf, en_particle)


def subject_phrase(d: Draft, kinds: tuple[str, ...], plain: bool = False, asked: bool = False) -> Phrase:
    """Returns the subject: a pronoun, a name, two people, or a noun phrase, perhaps with a relative clause."""
    kind = d.pick(kinds)
    if kind == "person":
        percent = d.below(100)
        if percent < 22:
            return pronoun_phrase(d.pick(_PRONOUNS), NOMINATIVE)
        if percent < 32:
            return name_phrase(d)
        if percent < 37:
            return _two_people(d)
    noun = d.noun(kind)
    style = d.pick(_QUESTION_SUBJECT_STYLES if asked else _SUBJECT_STYLES)
    phrase = noun_phrase(d, noun, NOMINATIVE, style, plain=plain)
    return with_relative(d, phrase) if not plain and d.chance(14) else phrase


def _two_people(d: Draft) -> Phrase:
    first = name_phrase(d)
    second = noun_phrase(d, d.noun("person"), NOMINATIVE, "the", plain=True)
    conjunction = leaf("CC", "and")
    en = Tree("NP", (first.en, conjunction, second.en))
    de = [*first.de, Word("und", (conjunction,)), *second.de]
    return Phrase(en, de, agreement=PLURAL, pronoun="they", kinds=first.kinds)


def object_phrase(
    d: Draft, kinds: tuple[str, ...], case: int, subject: Phrase, not_leaf: Tree | None, plain: bool
) -> Phrase:
    """Returns an object: a noun phrase, or for people also a pronoun or a name."""
    kind = d.pick(kinds)
    if kind == "person":
        percent = d.below(100)
        if percent < 25:
            taken = _FIRST_PERSON if subject.pronoun in _FIRST_PERSON else (subject.pronoun,)
            others = [pronoun for pronoun in _PRONOUNS if pronoun not in taken]
            return pronoun_phrase(d.pick(others), case)
        if percent < 35:
            return name_phrase(d)
    noun = d.noun(kind)
    style = d.pick(_OBJECT_STYLES if not_leaf is None else _NEGATED_STYLES)
    phrase = noun_phrase(d, noun, case, style, not_leaf, plain)
    return with_relative(d, phrase) if not plain and d.chance(16) else phrase


def with_relative(d: Draft, phrase: Phrase, that: bool = True) -> Phrase:
    """Adds a relative clause, whose pronoun takes gender and number from the noun and case from its own verb.

    English may begin it with `that`, unless it is not to.
    """
    assert phrase.noun is not None and phrase.heads is not None
    kinds = phrase.noun.kinds
    person = "person" in kinds
    verbs = [
        verb
        for frame in ("acc", "acc", "dat")
        for verb in d.lexicon.verbs_of[frame]
        if kinds.intersection(verb.objects)
    ]
    gap = None  # the verb, if the pronoun is its object
    if d.chance(50) or not verbs:
        case = NOMINATIVE
        pronouns = ("who", "who", "that") if person else ("which", "that")
    else:
        gap = d.word(verbs)
        case = DATIVE if "dat" in gap.frames else ACCUSATIVE
        pronouns = ("whom", "that") if person else ("which", "that")

    english = d.pick(pronouns if that else pronouns[:1])
    en_pronoun = leaf("WP" if person and english != "that" else "WDT", english)
    gender = "p" if phrase.agreement == PLURAL else phrase.noun.gender
    de_pronoun = Word(RELATIVE[gender][case], (en_pronoun,))
    d.link("english_relatives", en_pronoun, phrase.heads[0])
    d.link("german_relatives", de_pronoun, phrase.heads[1])

    wh = Tree("WHNP", (en_pronoun,))
    spec = ClauseSpec(PRESENT + PAST, plain=True, timed=False)
    if gap is None:
        heads = (en_pronoun, de_pronoun)
        relative_subject = phrase._replace(
            en=wh, de=[de_pronoun], after=(), heads=heads, light=False, definite=True, negative=False
        )
        clause = draw_clause(d, spec._replace(subject=relative_subject))
        en_clause = Tree("S", tuple(predicate(clause)))
        de_clause = verb_last(d, clause)
    else:
        clause = draw_clause(d, spec._replace(gap=gap))
        en_clause = Tree("S", (clause.subject.en, *predicate(clause)))
        de_clause = [de_pronoun, *verb_last(d, clause)]
    tree = Tree("NP", (phrase.en, Tree("SBAR", (wh, en_clause))))
    return phrase._replace(en=tree, after=[comma(), *de_clause, comma()])


def draw_clause(d: Draft, spec: ClauseSpec) -> Clause:
    """Returns a clause that `spec` allows.

    The order of the draws is part of the corpus: verb, subject, tense, negation, objects, adjuncts, adverb, time. A
    change of it changes every sentence.
    """
    if spec.subject is not None and not spec.subject.kinds & {"person", "animal"}:
        return _copula(d, spec, spec.subject)
    frame = _frame(d, spec)
    if frame == "be":
        subject = spec.subject or subject_phrase(d, ("person", "person", "animal", "thing"), spec.plain, spec.asked)
        return _copula(d, spec, subject)
    verb = _verb(d, spec, frame)
    subject = spec.subject or subject_phrase(d, verb.subjects, spec.plain, spec.asked)
    tense = _tense(d, spec.tenses, verb, subject.agreement)
    negatable = not (spec.positive or _quantified(subject))
    negated = negatable and d.chance(16)
    parts = verb_complex(verb, tense, subject.agreement, negated, spec.asked)
    if parts.en_particle:
        d.link("english_particles", parts.head, parts.en_particle)

    objects = _objects(d, spec, verb, subject, parts.not_leaf)
    after = list(objects[-1].after) if objects else []
    complements = _object_complements(objects, parts.en_particle)
    if verb.en_preposition:
        preposition_leaf = leaf("IN" if verb.en_preposition == "for" else "TO", verb.en_preposition)
        complements = [Tree("PP", (preposition_leaf, *complements))]
        parts = _also(parts, preposition_leaf)
    placed = spec.placed and spec.gap is None and not after
    adjuncts = _adjuncts(d, verb, objects, placed)
    often = _how_often(d, spec, subject) if not negated else None
    time = time_phrase(d, tense) if spec.timed and not after and d.chance(22) else None

    layers, adverb = _with_adverb(parts.layers, often.en if often else None, spec.asked)
    between = often.de if often else []
    has_kein = bool(objects) and objects[-1].negative
    if parts.not_leaf and not has_kein:
        between = [Word("nicht", (parts.not_leaf,))]
    pronouns, middle = _middle_field(objects, between, adjuncts)

    return Clause(
        subject=subject,
        layers=layers,
        adverb=adverb,
        head=parts.head,
        complements=[*complements, *(adjunct.en for adjunct in adjuncts)],
        time=time,
        finite=parts.finite,
        particle=parts.particle,
        bracket=parts.bracket,
        pronouns=pronouns,
        middle=middle,
        after=after,
    )


def _with_adverb(
    layers: list[tuple[Tree, ...]], adverb: Tree | None, asked: bool
) -> tuple[list[tuple[Tree, ...]], Tree | None]:
    """Returns the layers and the adverb before them: she often sleeps, but she can often sleep."""
    if adverb and layers and layers[0][0].label == "MD" and not asked:
        return [(layers[0][0], adverb), *layers[1:]], None
    return layers, adverb


def _middle_field(objects: list[Phrase], between: list[Word], adjuncts: list[Phrase]) -> tuple[list[Word], list[Word]]:
    """Returns the two parts of the German middle field, which time separates: pronouns, and all else.

    What is `between`, as nicht, follows what is definite. German has the vehicle before the goal.
    """
    pronouns = [phrase for phrase in objects if phrase.light]
    definite = [phrase for phrase in objects if phrase.definite and not phrase.light]
    indefinite = [phrase for phrase in objects if not phrase.definite and not phrase.light]
    middle = [*_german(definite), *between, *_german(indefinite), *_german(adjuncts[::-1])]
    return _german(pronouns), middle


def _german(phrases: Sequence[Phrase]) -> list[Word]:
    return [word for phrase in phrases for word in phrase.de]


def _how_often(d: Draft, spec: ClauseSpec, subject: Phrase) -> Phrase | None:
    """Returns an adverb, in one of ten clauses that may have one."""
    if not spec.often or _quantified(subject) or not d.chance(10):
        return None
    english = d.pick(tuple(_OFTEN))
    adverb_leaf = leaf("RB", english)
    return Phrase(Tree("ADVP", (adverb_leaf,)), [Word(_OFTEN[english], (adverb_leaf,))])


def _quantified(subject: Phrase) -> bool:
    """Returns whether the subject has every or no, or no pronoun (a child): its clause takes no negation or adverb."""
    return subject.negative or (subject.pronoun == "" and subject.noun is not None)


def _frame(d: Draft, spec: ClauseSpec) -> str:
    if spec.frame:
        return spec.frame
    return "gap" if spec.gap else d.pick(_FRAMES)


def _verb(d: Draft, spec: ClauseSpec, frame: str) -> Verb:
    """Returns a verb of the frame for the tenses and the subject of `spec`, or else one of what the subject can do."""
    verbs: Sequence[Verb] = [spec.gap] if spec.gap else d.lexicon.verbs_of[frame]
    if "present" not in spec.tenses:
        verbs = [verb for verb in verbs if "stative" not in verb.frames] or verbs
    if spec.subject is not None:
        verbs = _able(spec.subject, verbs) or _able(spec.subject, d.lexicon.verbs_of["none"])
    return d.word(verbs)


def _able(subject: Phrase, verbs: Sequence[Verb]) -> list[Verb]:
    return [verb for verb in verbs if subject.kinds.intersection(verb.subjects)]


def _tense(d: Draft, tenses: tuple[str, ...], verb: Verb, agreement: int) -> str:
    """Returns a tense that is unambiguous for this verb and subject: the past of put and read equals the present."""
    if "stative" in verb.frames:
        return "present"
    possible = [tense for tense in tenses if tense != "present" or verb.present[agreement]]
    if verb.en[0] == verb.en[2] and agreement != ER:
        possible = [tense for tense in possible if tense != "past"]
    if not possible:
        possible = ["can" if "present" in tenses else "could"]
    return d.pick(possible)


def _objects(d: Draft, spec: ClauseSpec, verb: Verb, subject: Phrase, not_leaf: Tree | None) -> list[Phrase]:
    """Returns the objects in their English order: to whom, and whom or what."""
    if spec.gap or not verb.objects:
        return []
    objects = []
    if "give" in verb.frames:
        recipient = object_phrase(d, ("person",), DATIVE, subject, not_leaf=None, plain=True)
        if recipient.noun is not None and not recipient.definite:  # it would stand behind `nicht` and the thing given
            recipient = name_phrase(d)
        objects.append(recipient)
    case = DATIVE if "dat" in verb.frames else ACCUSATIVE
    plain = spec.plain or "put" in verb.frames
    objects.append(object_phrase(d, verb.objects, case, subject, not_leaf, plain))
    return objects


def _object_complements(objects: list[Phrase], en_particle: Tree | None) -> list[Tree]:
    """Returns the English objects and the verb's particle, which precedes nouns and follows pronouns: turn it off."""
    complements = [phrase.en for phrase in objects]
    if en_particle:
        behind_pronoun = bool(objects) and objects[0].light
        complements.insert(1 if behind_pronoun else 0, Tree("PRT", (en_particle,)))
    return complements


def _also(parts: Complex, source: Tree) -> Complex:
    """Aligns the German verb with the English preposition too (look for = suchen)."""
    if parts.bracket:
        return parts._replace(bracket=[Word(word.text, (*word.sources, source)) for word in parts.bracket])
    return parts._replace(finite=Word(parts.finite.text, (*parts.finite.sources, source)))


def _adjuncts(d: Draft, verb: Verb, objects: list[Phrase], placed: bool) -> list[Phrase]:
    """Returns what follows the objects: a goal that the verb requires, someone it is done for or with, or a place."""
    for frame in ("put", "motion", "ride", "swim"):
        if frame in verb.frames:
            return direction(d, frame)
    if not placed or "stative" in verb.frames or "timetable" in verb.subjects:
        return []
    percent = d.below(100)
    if percent < 10 and objects and "acc" in verb.frames and "thing" in verb.objects:
        someone = noun_phrase(d, d.noun("person"), ACCUSATIVE, d.pick(PLACE_STYLES), plain=True)
        return [preposition("for", "für", someone)]
    if percent < 10 and not objects and verb.subjects == ("person",):
        someone = noun_phrase(d, d.noun("person"), DATIVE, d.pick(PLACE_STYLES), plain=True)
        return [preposition("with", "mit", someone)]
    if percent < 30 and "place" not in verb.objects:
        return [location(d)]
    return []


class _ToBe(NamedTuple):
    """Forms of to be: `verb` is the English finite one, `head` the last."""

    tense: str
    verb: Tree
    head: Tree
    finite: Word
    bracket: list[Word]


def _to_be(d: Draft, tenses: tuple[str, ...], agreement: int) -> _ToBe:
    if "past" in tenses and ("present" not in tenses or d.chance(40)):
        english = ("was", "were", "was", "were")[agreement]
        was = leaf("VBD", english)
        return _ToBe("past", was, was, Word(AUXILIARIES["war"][agreement], (was,)), [])
    if "will" in tenses and d.chance(20):
        will = leaf("MD", "will")
        be = leaf("VB", "be")
        return _ToBe("will", will, be, Word(AUXILIARIES["werden"][agreement], (will,)), [Word("sein", (be,))])
    english = ("am", "are", "is", "are")[agreement]
    verb = leaf("VBZ" if agreement == ER else "VBP", english)
    return _ToBe("present", verb, verb, Word(AUXILIARIES["sein"][agreement], (verb,)), [])


def _copula(d: Draft, spec: ClauseSpec, subject: Phrase) -> Clause:
    """Returns a clause with to be and an adjective or a place; a predicative adjective takes no ending."""
    to_be = _to_be(d, spec.tenses, subject.agreement)
    negatable = not (spec.positive or spec.asked or _quantified(subject))
    not_leaf = leaf("RB", "not") if negatable and d.chance(16) else None
    kinds = subject.noun.kinds if subject.noun else frozenset({"person"})
    adjectives = d.lexicon.adjectives_for[kinds]
    if adjectives and d.chance(70):
        adjective = d.word(adjectives)
        adjective_leaf = leaf("JJ", adjective.en)
        complement = Phrase(Tree("ADJP", (adjective_leaf,)), [Word(adjective.stem, (adjective_leaf,))])
    else:
        complement = location(d, subject.kinds)
    moves = bool(subject.kinds & {"person", "animal"})
    time = time_phrase(d, to_be.tense) if spec.timed and moves and d.chance(15) else None

    # An auxiliary has a layer of its own; so has a copula that a question moves to the front.
    auxiliary = to_be.tense == "will"
    layers: list[tuple[Tree, ...]] = []
    if auxiliary or spec.asked:
        layers = [(to_be.verb, not_leaf) if not_leaf else (to_be.verb,)]
    head = to_be.head
    complements = [complement.en]
    if spec.asked and not auxiliary:
        head = complement.en
        complements = []
    elif not_leaf and not auxiliary:
        complements = [not_leaf, complement.en]
    negation = [Word("nicht", (not_leaf,))] if not_leaf else []
    return Clause(
        subject=subject,
        layers=layers,
        adverb=None,
        head=head,
        complements=complements,
        time=time,
        finite=to_be.finite,
        particle=None,
        bracket=to_be.bracket,
        pronouns=[],
        middle=[*negation, *complement.de],
        after=[],
    )
