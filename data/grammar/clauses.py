"""The built-in corpus, from phrases to clauses: subject, verb and tense, objects, time and place.

The verb determines the case of its objects, the tense what is in the right bracket, and `not` becomes kein on an
indefinite object and otherwise follows everything definite.
"""

from typing import NamedTuple

from data.grammar.lexicon import (
    ACCUSATIVE,
    AUXILIARIES,
    DATIVE,
    ER,
    NOMINATIVE,
    PLURAL,
    RELATIVE,
    Verb,
)
from data.grammar.phrases import (
    PLACE_STYLES,
    direction,
    location,
    name_phrase,
    noun_phrase,
    preposition,
    pronoun_phrase,
    time_phrase,
)
from data.grammar.syntax import Clause, Draft, Phrase, Word, comma, leaf, predicate, verb_last
from data.trees.tree import Tree

_SUBJECT_STYLES = ("the",) * 8 + ("this",) * 2 + ("a",) * 2 + ("own",) * 2 + ("name's", "number", "many", "every", "no")
_OBJECT_STYLES = ("the",) * 6 + ("a",) * 5 + ("own",) * 2 + ("this", "name's", "number", "number", "many", "bare")
_NEGATED_STYLES = ("the",) * 3 + ("a",) * 3 + ("any",) * 2 + ("this", "own")
_FRAMES = (
    ("none",) * 4
    + ("acc",) * 11
    + ("dat",) * 3
    + ("give",) * 3
    + ("put", "motion", "motion", "ride", "swim")
    + ("be",) * 5
)
_MODALS = {  # German, and German under negation: must not = darf nicht
    "can": ("können", "können"), "must": ("müssen", "dürfen"), "should": ("sollte", "sollte"),
    "could": ("konnte", "konnte"), "will": ("werden", "werden"),
}  # fmt: skip
PRESENT = ("present", "present", "present", "can", "must", "want", "should")
PAST = ("past", "past", "past", "could")
ANY = PRESENT + PAST + ("will",)
_OFTEN = {"often": "oft", "always": "immer", "never": "nie"}


class Complex(NamedTuple):
    """The verb of a clause in both languages, with fields as in `Clause`; `not_leaf` is the leaf that has `not`."""

    layers: list[tuple[Tree, ...]]
    head: Tree
    finite: Word
    particle: Word | None
    bracket: list[Word]
    not_leaf: Tree | None


def _support(agreement: int, past: bool) -> Tree:
    return leaf("VBD", "did") if past else leaf("VBZ", "does") if agreement == ER else leaf("VBP", "do")


def verb_complex(verb: Verb, tense: str, agreement: int, negated: bool, asked: bool, rp: Tree | None) -> Complex:
    """Returns the verb in one tense: English auxiliaries in layers, German finite verb and right bracket."""
    base, third, past = verb.en
    third_person = agreement == ER
    lexical = (rp,) if rp else ()
    infinitive = verb.particle + verb.infinitive
    not_leaf = leaf("RB", "not") if negated else None
    if tense in _MODALS:
        german, forbidden = _MODALS[tense]
        modal = leaf("MD", "cannot" if negated and tense == "can" else tense)
        layer: tuple[Tree, ...] = (modal, not_leaf) if not_leaf and tense != "can" else (modal,)
        head = leaf("VB", base)
        finite = Word(AUXILIARIES[forbidden if negated else german][agreement], (modal,))
        carrier = modal if negated and tense == "can" else not_leaf
        return Complex([layer], head, finite, None, [Word(infinitive, (head, *lexical))], carrier)
    support: tuple[Tree, ...] = (_support(agreement, tense == "past"),) if negated or asked else ()
    layers: list[tuple[Tree, ...]] = [(*support, not_leaf) if not_leaf else support] if support else []
    if tense == "want":
        want = leaf("VB", "want") if support else leaf("VBZ", "wants") if third_person else leaf("VBP", "want")
        to, head = leaf("TO", "to"), leaf("VB", base)
        finite = Word(AUXILIARIES["wollen"][agreement], (*support, want, to))
        return Complex([*layers, (want,), (to,)], head, finite, None, [Word(infinitive, (head, *lexical))], not_leaf)
    if support:
        head = leaf("VB", base)
    elif tense == "past":
        head = leaf("VBD", past)
    else:
        head = leaf("VBZ", third) if third_person else leaf("VBP", base)
    if tense == "past":
        finite = Word(AUXILIARIES[verb.auxiliary][agreement], (*support, head))
        return Complex(layers, head, finite, None, [Word(verb.participle, (head, *lexical))], not_leaf)
    particle = Word(verb.particle, lexical or (head,)) if verb.particle else None
    return Complex(layers, head, Word(verb.present[agreement], (*support, head)), particle, [], not_leaf)


def subject_phrase(d: Draft, kinds: tuple[str, ...], plain: bool = False, asked: bool = False) -> Phrase:
    """Returns the subject: a pronoun, a name, two people, or a noun phrase, perhaps with a relative clause."""
    kind = d.pick(kinds)
    if kind == "person":
        what = d.below(100)
        if what < 22:
            return pronoun_phrase(d.pick(("he", "she", "they", "we", "I")), NOMINATIVE)
        if what < 32:
            return name_phrase(d)
        if what < 37:
            one, two = name_phrase(d), noun_phrase(d, d.noun("person"), NOMINATIVE, "the", plain=True)
            et = leaf("CC", "and")
            en, de = Tree("NP", (one.en, et, two.en)), [*one.de, Word("und", (et,)), *two.de]
            return Phrase(en, de, (), PLURAL, "they", one.kinds)
    phrase = noun_phrase(d, d.noun(kind), NOMINATIVE, d.pick(_SUBJECT_STYLES[: -2 if asked else None]), plain=plain)
    return with_relative(d, phrase) if not plain and d.chance(14) else phrase


def object_phrase(
    d: Draft, kinds: tuple[str, ...], case: int, subject: Phrase, not_leaf: Tree | None, plain: bool
) -> Phrase:
    """Returns an object: a noun phrase, or for people also a pronoun or a name."""
    kind = d.pick(kinds)
    if kind == "person":
        what = d.below(100)
        if what < 25:
            keys = [key for key in ("he", "she", "they", "we", "I") if key != subject.pronoun]
            first_person = subject.pronoun in ("I", "we")
            return pronoun_phrase(d.pick([k for k in keys if not (first_person and k in ("I", "we"))]), case)
        if what < 35:
            return name_phrase(d)
    styles = _OBJECT_STYLES if not_leaf is None else _NEGATED_STYLES
    phrase = noun_phrase(d, d.noun(kind), case, d.pick(styles), not_leaf, plain)
    return with_relative(d, phrase) if not plain and d.chance(16) else phrase


def with_relative(d: Draft, phrase: Phrase, that: bool = True) -> Phrase:
    """Adds a relative clause, whose pronoun takes gender and number from the noun and case from its own verb.

    English may begin it with `that`, unless it is not to.
    """
    assert phrase.noun is not None and phrase.heads is not None
    noun, person = phrase.noun, "person" in phrase.noun.kinds
    gender = "p" if phrase.agreement == PLURAL else noun.gender
    verbs = [v for f in ("acc", "acc", "dat") for v in d.lexicon.verbs_of[f] if noun.kinds.intersection(v.objects)]
    if d.chance(50) or not verbs:
        case, pronouns = NOMINATIVE, ("who", "who", "that") if person else ("which", "that")
    else:
        verb = d.word(verbs)
        case = DATIVE if "dat" in verb.frames else ACCUSATIVE
        pronouns = ("whom", "that") if person else ("which", "that")
    english = d.pick(pronouns if that else pronouns[:1])
    en = leaf("WP" if person and english != "that" else "WDT", english)
    word = Word(RELATIVE[gender][case], (en,))
    d.link("english_relatives", en, phrase.heads[0])
    d.link("german_relatives", word, phrase.heads[1])
    wh = Tree("WHNP", (en,))
    if case == NOMINATIVE:
        lead = Phrase(wh, [word], (), phrase.agreement, phrase.pronoun, noun.kinds, noun, phrase.heads)
        clause = proposition(d, PRESENT + PAST, subject=lead, plain=True, timed=False)
        en_clause, de = Tree("S", tuple(predicate(clause))), verb_last(clause)
    else:
        clause = proposition(d, PRESENT + PAST, plain=True, gap=verb, timed=False)
        en_clause, de = Tree("S", (clause.subject.en, *predicate(clause))), [word, *verb_last(clause)]
    tree = Tree("NP", (phrase.en, Tree("SBAR", (wh, en_clause))))
    return phrase._replace(en=tree, after=[comma(), *de, comma()])


def _tense(d: Draft, tenses: tuple[str, ...], verb: Verb, agreement: int) -> str:
    """Returns a tense that is unambiguous for this verb and subject: the past of put and read equals the present."""
    if "stative" in verb.frames:
        return "present"
    bare = [tense for tense in tenses if tense != "present" or verb.present[agreement]]
    if verb.en[0] == verb.en[2] and agreement != ER:
        bare = [tense for tense in bare if tense != "past"]
    return d.pick(bare or ["can" if "present" in tenses else "could"])


def proposition(
    d: Draft, tenses: tuple[str, ...], subject: Phrase | None = None, plain: bool = False, asked: bool = False,
    gap: Verb | None = None, positive: bool = False, frame: str = "", timed: bool = True, placed: bool = True,
    often: bool = True,
) -> Clause:  # fmt: skip
    """Returns a clause with a given or a new subject.

    `plain`: no relative clauses inside; `asked`: with an auxiliary to invert; `gap`: use this verb, whose object is
    elsewhere (relative pronoun, question word); `positive`: no negation; `frame`: verbs of this frame only;
    `timed`, `placed`, `often`: may say when, where, how often.
    """
    if subject is not None and not subject.kinds & {"person", "animal"}:
        return _copula(d, tenses, subject, asked, positive, timed)
    frame = frame or (d.pick(_FRAMES) if gap is None else "gap")
    if frame == "be":
        who = subject or subject_phrase(d, ("person", "person", "animal", "thing"), plain, asked)
        return _copula(d, tenses, who, asked, positive, timed)
    verbs = [gap] if gap else list(d.lexicon.verbs_of[frame])
    if "present" not in tenses:
        verbs = [v for v in verbs if "stative" not in v.frames] or verbs
    if subject is not None:
        able = [v for v in verbs if subject.kinds.intersection(v.subjects)]
        verbs = able or [v for v in d.lexicon.verbs_of["none"] if subject.kinds.intersection(v.subjects)]
    verb = d.word(verbs)
    if subject is None:
        subject = subject_phrase(d, verb.subjects, plain, asked)
    tense = _tense(d, tenses, verb, subject.agreement)
    quantified = subject.negative or (subject.pronoun == "" and subject.noun is not None)
    negated = not (positive or quantified) and d.chance(16)
    rp = leaf("RP", verb.en_particle) if verb.en_particle else None
    parts = verb_complex(verb, tense, subject.agreement, negated, asked, rp)
    if rp:
        d.link("english_particles", parts.head, rp)
    pronouns: list[Word] = []
    definite: list[Word] = []
    indefinite: list[Word] = []
    after: list[Word] = []
    complements: list[Tree] = []
    kein = False
    objects: list[Phrase] = []
    if verb.objects and not gap:
        not_leaf = parts.not_leaf
        if "give" in verb.frames:
            objects.append(object_phrase(d, ("person",), DATIVE, subject, None, True))
            if objects[0].noun is not None and not objects[0].definite:
                objects[0] = name_phrase(d)
        case = DATIVE if "dat" in verb.frames else ACCUSATIVE
        last = object_phrase(d, verb.objects, case, subject, not_leaf, plain or "put" in verb.frames)
        objects.append(last)
        kein, after = last.negative, list(last.after)
        for phrase, its_case in zip(reversed(objects), (case, DATIVE), strict=False):
            if phrase.noun:
                d.combinations += [(verb.infinitive, phrase.noun.en[0]), (phrase.noun.en[0], str(its_case))]
    for phrase in objects:
        (pronouns if phrase.light else definite if phrase.definite else indefinite).extend(phrase.de)
        complements.append(phrase.en)
    if rp:
        complements.insert(1 if objects and objects[0].light else 0, Tree("PRT", (rp,)))
    if verb.en_preposition:
        preposition_leaf = leaf("IN" if verb.en_preposition == "for" else "TO", verb.en_preposition)
        complements = [Tree("PP", (preposition_leaf, *complements))]
        parts = _also(parts, preposition_leaf)
    adjuncts = _adjuncts(d, verb, objects, bool(after) or gap is not None or not placed)
    complements += [phrase.en for phrase in adjuncts]
    adverb, layers, between = None, parts.layers, []
    if negated:
        between = [] if kein or parts.not_leaf is None else [Word("nicht", (parts.not_leaf,))]
    elif often and not quantified and d.chance(10):
        english = d.pick(tuple(_OFTEN))
        adverb = Tree("ADVP", (leaf("RB", english),))
        between = [Word(_OFTEN[english], (adverb.terminals()[0],))]
        if layers and layers[0][0].label == "MD" and not asked:
            layers, adverb = [(layers[0][0], adverb), *layers[1:]], None
    place = [word for phrase in reversed(adjuncts) for word in phrase.de]
    time = time_phrase(d, tense) if timed and not after and d.chance(22) else None
    middle = [*definite, *between, *indefinite, *place]
    return Clause(
        subject,
        layers,
        adverb,
        parts.head,
        complements,
        time,
        parts.finite,
        parts.particle,
        parts.bracket,
        pronouns,
        middle,
        after,
    )


def _also(parts: Complex, source: Tree) -> Complex:
    """Aligns the German verb with the English preposition too (look for = suchen)."""
    if parts.bracket:
        return parts._replace(bracket=[Word(w.text, (*w.sources, source)) for w in parts.bracket])
    return parts._replace(finite=Word(parts.finite.text, (*parts.finite.sources, source)))


def _adjuncts(d: Draft, verb: Verb, objects: list[Phrase], bare: bool) -> list[Phrase]:
    """Returns what follows the objects: a goal that the verb requires, someone it is done for or with, or a place."""
    for frame in ("put", "motion", "ride", "swim"):
        if frame in verb.frames:
            return direction(d, frame)
    if bare or "stative" in verb.frames or "timetable" in verb.subjects:
        return []
    what = d.below(100)
    if what < 10 and objects and "acc" in verb.frames and "thing" in verb.objects:
        someone = noun_phrase(d, d.noun("person"), ACCUSATIVE, d.pick(PLACE_STYLES), plain=True)
        return [preposition("for", "für", someone)]
    if what < 10 and not objects and verb.subjects == ("person",):
        someone = noun_phrase(d, d.noun("person"), DATIVE, d.pick(PLACE_STYLES), plain=True)
        return [preposition("with", "mit", someone)]
    return [location(d)] if what < 30 and "place" not in verb.objects else []


def _copula(d: Draft, tenses: tuple[str, ...], subject: Phrase, asked: bool, positive: bool, timed: bool) -> Clause:
    """Returns a clause with to be and an adjective or a place; a predicative adjective takes no ending."""
    past = any(t == "past" for t in tenses) and ("present" not in tenses or d.chance(40))
    future = not past and "will" in tenses and d.chance(20)
    index = subject.agreement
    quantified = subject.negative or (subject.pronoun == "" and subject.noun is not None)
    not_leaf = leaf("RB", "not") if not (positive or quantified or asked) and d.chance(16) else None
    if future:
        head, verb = leaf("VB", "be"), leaf("MD", "will")
        finite, bracket = Word(AUXILIARIES["werden"][index], (verb,)), [Word("sein", (head,))]
    else:
        english = ("was", "were", "was", "were") if past else ("am", "are", "is", "are")
        label = "VBD" if past else "VBZ" if index == ER else "VBP"
        head = verb = leaf(label, english[index])
        finite, bracket = Word(AUXILIARIES["war" if past else "sein"][index], (verb,)), []
    adjectives = d.lexicon.adjectives_for[subject.noun.kinds if subject.noun else frozenset({"person"})]
    moves = bool(subject.kinds & {"person", "animal"})
    if adjectives and d.chance(70):
        adjective = d.word(adjectives)
        en = leaf("JJ", adjective.en)
        complement = Phrase(Tree("ADJP", (en,)), [Word(adjective.stem, (en,))])
    else:
        complement = location(d, subject.kinds)
    negation = [Word("nicht", (not_leaf,))] if not_leaf else []
    time = (
        time_phrase(d, "past" if past else "will" if future else "present")
        if timed and moves and d.chance(15)
        else None
    )
    layers: list[tuple[Tree, ...]] = [(verb, not_leaf) if not_leaf else (verb,)] if future or asked else []
    complements = [complement.en]
    if asked and not future:
        head = complements.pop(0)
    elif not_leaf and not future:
        complements.insert(0, not_leaf)
    return Clause(
        subject, layers, None, head, complements, time, finite, None, bracket, [], [*negation, *complement.de], []
    )
