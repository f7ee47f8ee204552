"""The words of the built-in corpus and their German inflection.

The words are in the tables of `words/`, one a line; this file reads them and has the few rules that turn a line into
forms. Nothing here is random: `sentences.py` chooses, this file inflects. English words that appear twice (go, put,
light, bank, know) are ambiguous on purpose; the grammar uses them only where the context decides.

A table's columns are separated by tabs and named in its first line; `-` stands for nothing. In those of several values,
separated by spaces:

    kinds             what a noun is, or an adjective can be said of; he or she is the pronoun of a noun
    frames            none, acc, dat, give, put, motion, that, whether ...: how a verb is used
    subjects, objects kinds of nouns
    german            a separable verb as particle+verb: auf+wachen
    german_present    the third person, or the forms of ich/du/er
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
ICH, DU, ER, PLURAL = range(4)  # the four forms of a finite verb; polite `Sie` has that of the plural

_WORDS = Path(__file__).with_name("words")

NAMES = {"Anna": "she", "Maria": "she", "Julia": "she", "Peter": "he", "Paul": "he", "Martin": "he"}
FAMILIES = ("Weber", "Klein", "Fischer")
RIDES = {"train": "m Zug", "car": "n Auto", "bicycle": "n Fahrrad", "subway": "f U-Bahn"}


def _by_gender(m: str, f: str, n: str, p: str) -> dict[str, tuple[str, ...]]:
    """Returns the forms in the four cases; `p` is the plural of all genders, `-` no ending."""
    rows = {"m": m, "f": f, "n": n, "p": p}
    return {gender: tuple(row.replace("-", "").split(" ")) for gender, row in rows.items()}


# Articles, and the endings of adjectives and of words that are inflected like articles
DEFINITE = _by_gender(m="der den dem des", f="die die der der", n="das das dem des", p="die die den der")
STRONG = _by_gender(m="er en em en", f="e e er er", n="es es em en", p="e e en er")
WEAK = _by_gender(m="e en en en", f="e e en en", n="e e en en", p="en en en en")
MIXED = _by_gender(m="er en en en", f="e e en en", n="es es en en", p="en en en en")
EIN = _by_gender(m="- en em es", f="e e er er", n="- - em es", p="e e en er")
DIESER = _by_gender(m="er en em es", f="e e er er", n="es es em es", p="e e en er")
RELATIVE = {**DEFINITE, "p": ("die", "die", "denen", "deren")}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


class Noun(NamedTuple):
    """`en[plural]` and `de[plural][case]`; `gender` m, f or n; `pronoun` he, she, it, or none for a child."""

    en: tuple[str, str]
    gender: str
    de: tuple[tuple[str, ...], tuple[str, ...]]
    kinds: frozenset[str]
    pronoun: str


class Verb(NamedTuple):
    """One sense of an English verb. `en` = base, third person, past; `present` by ICH..PLURAL, "" = unused."""

    en: tuple[str, str, str]
    en_particle: str
    en_preposition: str
    infinitive: str
    particle: str
    present: tuple[str, str, str, str]
    participle: str
    auxiliary: str
    frames: frozenset[str]
    subjects: tuple[str, ...]
    objects: tuple[str, ...]


class Adjective(NamedTuple):
    """`stem` takes an ending as an attribute and none as a predicate."""

    en: str
    stem: str
    kinds: frozenset[str]


class Pronoun(NamedTuple):
    """`subject`, `object`: English; `de` nominative, accusative, dative; `agreement` picks the verb form."""

    subject: str
    object: str
    de: tuple[str, str, str]
    agreement: int


def table(name: str, folder: Path = _WORDS) -> list[dict[str, str]]:
    """Returns the lines of the table `name`, each by column; ValueError if one has too many or too few."""
    header, *lines = (folder / f"{name}.tsv").read_text("utf-8").splitlines()
    columns = header.split("\t")
    rows = []
    for line in lines:
        cells = ["" if cell == "-" else cell for cell in line.split("\t")]
        rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def make_noun(row: dict[str, str]) -> Noun:
    """Returns the noun of a table's line."""
    singular, plural, genitive = row["german"], row["german_plural"], row["german_genitive"]
    # der Student, den Studenten: such nouns have the genitive's form in all cases but the nominative
    weak = row["gender"] == "m" and not genitive.endswith("s")
    oblique = genitive if weak else singular
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"

    kinds = row["kinds"].split()
    if "he" in kinds:
        pronoun = "he"
    elif "she" in kinds:
        pronoun = "she"
    elif "person" in kinds:
        pronoun = ""
    else:
        pronoun = "it"
    return Noun(
        en=(row["english"], row["english_plural"]),
        gender=row["gender"],
        de=((singular, oblique, oblique, genitive), (plural, plural, dative_plural, plural)),
        kinds=frozenset(kinds),
        pronoun=pronoun,
    )


def make_verb(row: dict[str, str]) -> Verb:
    """Returns the verb of a table's line."""
    particle, _, infinitive = row["german"].rpartition("+")
    singular = row["german_present"].split("/")
    ich, du, er = singular if len(singular) == 3 else ("", "", singular[0])
    return Verb(
        en=(row["english"], row["third_person"], row["past"]),
        en_particle=row["particle"],
        en_preposition=row["preposition"],
        infinitive=infinitive,
        particle=particle,
        present=(ich, du, er, infinitive),
        participle=row["participle"],
        auxiliary=row["auxiliary"],
        frames=frozenset(row["frames"].split()),
        subjects=tuple(row["subjects"].split()),
        objects=tuple(row["objects"].split()),
    )


def make_adjective(row: dict[str, str]) -> Adjective:
    """Returns the adjective of a table's line."""
    return Adjective(row["english"], row["german"], frozenset(row["kinds"].split()))


NOUNS = tuple(map(make_noun, table("nouns")))
VERBS = tuple(map(make_verb, table("verbs")))
ADJECTIVES = tuple(map(make_adjective, table("adjectives")))

PRONOUNS = {
    "I": Pronoun("I", "me", ("ich", "mich", "mir"), ICH),
    "he": Pronoun("he", "him", ("er", "ihn", "ihm"), ER),
    "she": Pronoun("she", "her", ("sie", "sie", "ihr"), ER),
    "we": Pronoun("we", "us", ("wir", "uns", "uns"), PLURAL),
    "they": Pronoun("they", "them", ("sie", "sie", "ihnen"), PLURAL),
    "du": Pronoun("you", "you", ("du", "dich", "dir"), DU),
    "Sie": Pronoun("you", "you", ("Sie", "Sie", "Ihnen"), PLURAL),
}
IT = {"m": ("er", "ihn", "ihm"), "f": ("sie", "sie", "ihr"), "n": ("es", "es", "ihm")}
POSSESSIVES = {"my": "mein", "his": "sein", "her": "ihr", "our": "unser"}

# German auxiliaries, indexed by ICH, DU, ER, PLURAL
AUXILIARIES = {
    "haben": ("habe", "hast", "hat", "haben"),
    "sein": ("bin", "bist", "ist", "sind"),
    "war": ("war", "warst", "war", "waren"),
    "werden": ("werde", "wirst", "wird", "werden"),
    "können": ("kann", "kannst", "kann", "können"),
    "müssen": ("muss", "musst", "muss", "müssen"),
    "dürfen": ("darf", "darfst", "darf", "dürfen"),
    "sollte": ("sollte", "solltest", "sollte", "sollten"),
    "wollen": ("will", "willst", "will", "wollen"),
    "konnte": ("konnte", "konntest", "konnte", "konnten"),
}


def compound_numbers(tens: dict[str, str], units: dict[str, str]) -> dict[str, str]:
    """Returns each ten with each unit: twenty-one is einundzwanzig."""
    numbers = {}
    for english_ten, german_ten in tens.items():
        for english_unit, german_unit in units.items():
            numbers[f"{english_ten}-{english_unit}"] = f"{german_unit}und{german_ten}"
    return numbers


NUMBER_WORDS = {row["english"]: row["german"] for row in table("numbers")}


def _numbers() -> dict[str, str]:
    """Returns the numbers of the built-in corpus, few enough that each is common."""
    simple = ("two", "three", "four", "five", "seven", "ten", "twenty", "thirty")
    tens = {english: NUMBER_WORDS[english] for english in ("twenty", "thirty")}
    units = {english: NUMBER_WORDS[english] for english in ("one", "two", "four", "seven")}
    return {english: NUMBER_WORDS[english] for english in simple} | compound_numbers(tens, units)


NUMBERS = _numbers()


def adjective_form(stem: str, ending: str) -> str:
    """Returns the attributive form of an adjective: the e of the stem and of the ending merge (müde + e = müde)."""
    return stem + (ending[1:] if stem.endswith("e") else ending)


class Lexicon:
    """The words that sentences choose from.

    `nouns_of` their kinds, `verbs_of` their frames, `adjectives_for` a noun's kinds; `names` and the pronouns for them.
    `zu` is the infinitive with zu, which ends an infinitive clause; it goes inside separable verbs (anzurufen). With
    `zipf` words are chosen by Zipf's law, the first of each list most often.
    """

    def __init__(
        self,
        nouns: Iterable[Noun],
        verbs: tuple[Verb, ...],
        adjectives: tuple[Adjective, ...],
        names: dict[str, str],
        families: tuple[str, ...],
        numbers: dict[str, str],
        *,
        towns: tuple[str, ...] = (),
        zipf: bool = False,
    ):
        nouns_of: dict[str, list[Noun]] = {}
        all_kinds = {frozenset({"person"})}  # of a subject that is a name
        for noun in nouns:
            all_kinds.add(noun.kinds)
            for kind in noun.kinds:
                nouns_of.setdefault(kind, []).append(noun)
        self.nouns_of = {kind: tuple(members) for kind, members in nouns_of.items()}
        self.adjectives_for = {kinds: tuple(a for a in adjectives if a.kinds & kinds) for kinds in all_kinds}

        frames = frozenset().union(*(verb.frames for verb in verbs))
        self.verbs_of = {frame: tuple(verb for verb in verbs if frame in verb.frames) for frame in frames}
        self.zu: dict[str, tuple[str, ...]] = {}
        for verb in verbs:
            if verb.particle:
                self.zu[verb.particle + verb.infinitive] = (f"{verb.particle}zu{verb.infinitive}",)
            else:
                self.zu[verb.infinitive] = ("zu", verb.infinitive)

        self.names = names
        self.families = families
        self.numbers = numbers
        self.towns = towns
        self.zipf = zipf


BASE = Lexicon(NOUNS, VERBS, ADJECTIVES, NAMES, FAMILIES, NUMBERS)
