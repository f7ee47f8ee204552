"""The words of the built-in corpus and their German inflection.

The tables come first, one word per line, then the few rules that turn a line into forms. Nothing here is random:
`sentences.py` chooses, this file inflects. Comments above each table explain its columns. English words that appear
twice (go, put, light, bank, know) are ambiguous on purpose; the grammar uses them only where the context decides.
"""

from collections.abc import Iterable
from typing import NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
ICH, DU, ER, PLURAL = range(4)  # the four forms of a finite verb; polite `Sie` has that of the plural

# English singular, plural | gender, German singular, plural, genitive singular | kinds; he/she: its pronoun
_NOUNS = """
uncle     uncles      | m Onkel    Onkel      Onkels    | person he
aunt      aunts       | f Tante    Tanten     Tante     | person she
child     children    | n Kind     Kinder     Kindes    | person
boy       boys        | m Junge    Jungen     Jungen    | person he
girl      girls       | n Mädchen  Mädchen    Mädchens  | person she
teacher   teachers    | m Lehrer   Lehrer     Lehrers   | person he
doctor    doctors     | m Arzt     Ärzte      Arztes    | person he
student   students    | m Student  Studenten  Studenten | person he
sister    sisters     | f Schwester Schwestern Schwester | person she
brother   brothers    | m Bruder   Brüder     Bruders   | person he
dog       dogs        | m Hund     Hunde      Hundes    | animal
cat       cats        | f Katze    Katzen     Katze     | animal
horse     horses      | n Pferd    Pferde     Pferdes   | animal
bird      birds       | m Vogel    Vögel      Vogels    | animal
book      books       | n Buch     Bücher     Buchs     | thing text flat light
letter    letters     | m Brief    Briefe     Briefs    | thing text flat
newspaper newspapers  | f Zeitung  Zeitungen  Zeitung   | thing text flat
email     emails      | f E-Mail   E-Mails    E-Mail    | text
key       keys        | m Schlüssel Schlüssel Schlüssels | thing flat
picture   pictures    | n Bild     Bilder     Bilds     | thing flat
lamp      lamps       | f Lampe    Lampen     Lampe     | thing upright machine
bottle    bottles     | f Flasche  Flaschen   Flasche   | thing upright
cup       cups        | f Tasse    Tassen     Tasse     | thing upright
bag       bags        | f Tasche   Taschen    Tasche    | thing light
coat      coats       | m Mantel   Mäntel     Mantels   | thing light
T-shirt   T-shirts    | n T-Shirt  T-Shirts   T-Shirts  | thing
bicycle   bicycles    | n Fahrrad  Fahrräder  Fahrrads  | thing vehicle light
car       cars        | n Auto     Autos      Autos     | thing vehicle
radio     radios      | n Radio    Radios     Radios    | thing machine
apple     apples      | m Apfel    Äpfel      Apfels    | food
cake      cakes       | m Kuchen   Kuchen     Kuchens   | food
egg       eggs        | n Ei       Eier       Eis       | food
soup      soups       | f Suppe    Suppen     Suppe     | food
train     trains      | m Zug      Züge       Zugs      | timetable
bus       buses       | m Bus      Busse      Busses    | timetable
house     houses      | n Haus     Häuser     Hauses    | place in into
garden    gardens     | m Garten   Gärten     Gartens   | place in into
kitchen   kitchens    | f Küche    Küchen     Küche     | place in into bright
room      rooms       | n Zimmer   Zimmer     Zimmers   | place in into bright
city      cities      | f Stadt    Städte     Stadt     | place in into
school    schools     | f Schule   Schulen    Schule    | place in to
park      parks       | m Park     Parks      Parks     | place in to
hotel     hotels      | n Hotel    Hotels     Hotels    | place in to
station   stations    | m Bahnhof  Bahnhöfe   Bahnhofs  | place at to
river     rivers      | m Fluss    Flüsse     Flusses   | at
bridge    bridges     | f Brücke   Brücken    Brücke    | on
table     tables      | m Tisch    Tische     Tisches   | onto upright furniture
chair     chairs      | m Stuhl    Stühle     Stuhls    | onto upright light furniture
bank      banks       | f Bank     Banken     Bank      | money
bank      banks       | n Ufer     Ufer       Ufers     | shore
"""

# English, German stem | the kinds of nouns that it describes
_ADJECTIVES = """
old           alt        | person animal thing text place on furniture
young         jung       | person animal
small         klein      | person animal thing place food timetable
big           groß       | animal thing place on
tired         müde       | person animal
happy         glücklich  | person
well-known    bekannt    | person text place
new           neu        | thing text place on furniture
red           rot        | thing timetable
heavy         schwer     | thing
cheap         billig     | thing food
beautiful     schön      | thing place furniture
old-fashioned altmodisch | thing place
light         leicht     | light
light         hell       | bright
fresh         frisch     | food
"""

# English base, third person, past, [particle] | infinitive (particle+verb), third person (or ich/du/er), participle,
# perfect auxiliary | frames: none, acc, dat, give, put, motion, that, whether | kinds of subject | kinds of object.
_VERBS = """
sleep  sleeps  slept           | schlafen schläft geschlafen haben | none | person animal |
work   works   worked          | arbeiten arbeitet gearbeitet haben | none | person |
wait   waits   waited          | warten wartet gewartet haben | none | person animal |
sing   sings   sang            | singen singt gesungen haben | none | person |
wake   wakes   woke    up      | auf+wachen wacht aufgewacht sein | none | person animal |
get    gets    got     up      | auf+stehen steht aufgestanden sein | none | person |
arrive arrives arrived         | an+kommen kommt angekommen sein | none | timetable person |
leave  leaves  left            | ab+fahren fährt abgefahren sein | none | timetable |
see    sees    saw             | sehen sieht gesehen haben | acc | person animal | person animal thing
find   finds   found           | finden findet gefunden haben | acc | person | thing text animal
buy    buys    bought          | kaufen kauft gekauft haben | acc | person | thing food
sell   sells   sold            | verkaufen verkauft verkauft haben | acc | person | thing food
read   reads   read            | lesen liest gelesen haben | acc | person | text
write  writes  wrote           | schreiben schreibt geschrieben haben | acc | person | text
eat    eats    ate             | essen isst gegessen haben | acc | person animal | food
carry  carries carried         | tragen trägt getragen haben | acc | person | thing
need   needs   needed          | brauchen braucht gebraucht haben | acc | person | thing vehicle
look_for looks_for looked_for  | suchen sucht gesucht haben | acc | person | thing animal
visit  visits  visited         | besuchen besucht besucht haben | acc | person | person place
invite invites invited         | ein+laden lädt eingeladen haben | acc | person | person
call   calls   called          | an+rufen ruft angerufen haben | acc | person | person
pick   picks   picked  up      | ab+holen holt abgeholt haben | acc | person | person
turn   turns   turned  off     | aus+schalten schaltet ausgeschaltet haben | acc | person | machine
bring  brings  brought back    | zurück+bringen bringt zurückgebracht haben | acc | person | thing
leave  leaves  left            | verlassen verlässt verlassen haben | acc | person | place
know   knows   knew            | kennen kenne/kennst/kennt gekannt haben | acc stative | person | person place
help   helps   helped          | helfen hilft geholfen haben | dat | person | person
thank  thanks  thanked         | danken dankt gedankt haben | dat | person | person
follow follows followed        | folgen folgt gefolgt sein | dat | person animal | person animal
listen_to listens_to listened_to | zu+hören hört zugehört haben | dat | person | person
give   gives   gave            | geben gibt gegeben haben | give | person | thing food
show   shows   showed          | zeigen zeigt gezeigt haben | give | person | thing text
send   sends   sent            | schicken schickt geschickt haben | give | person | text
put    puts    put             | legen legt gelegt haben | put | person | flat
put    puts    put             | stellen stellt gestellt haben | put | person | upright
go     goes    went            | gehen geht gegangen sein | motion | person |
go     goes    went            | fahren fährt gefahren sein | ride | person |
run    runs    ran             | laufen läuft gelaufen sein | motion | person animal |
swim   swims   swam            | schwimmen schwimmt geschwommen sein | swim | person animal |
know   knows   knew            | wissen weiß/weißt/weiß gewusst haben | that whether stative | person |
say    says    said            | sagen sagt gesagt haben | that | person |
think  thinks  thought         | glauben glaube/glaubst/glaubt geglaubt haben | that | person |
hope   hopes   hoped           | hoffen hoffe/hoffst/hofft gehofft haben | that | person |
ask    asks    asked           | fragen fragt gefragt haben | whether | person |
try    tries   tried           | versuchen versucht versucht haben | infinitive | person |
"""

NAMES = {"Anna": "she", "Maria": "she", "Julia": "she", "Peter": "he", "Paul": "he", "Martin": "he"}
FAMILIES = ("Weber", "Klein", "Fischer")
RIDES = {"train": "m Zug", "car": "n Auto", "bicycle": "n Fahrrad", "subway": "f U-Bahn"}

_DEFINITE = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des", "p": "die die den der"}
_STRONG = {"m": "er en em en", "f": "e e er er", "n": "es es em en", "p": "e e en er"}
_WEAK = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
_MIXED = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "p": "en en en en"}
_EIN = {"m": "- en em es", "f": "e e er er", "n": "- - em es", "p": "e e en er"}
_DIESER = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "p": "e e en er"}


def _rows(table: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {gender: tuple(row.replace("-", "").split(" ")) for gender, row in table.items()}


DEFINITE, STRONG, WEAK, MIXED, EIN, DIESER = map(_rows, (_DEFINITE, _STRONG, _WEAK, _MIXED, _EIN, _DIESER))
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


def _lines(table: str) -> list[list[list[str]]]:
    return [[column.split() for column in line.split("|")] for line in table.strip().splitlines()]


def make_noun(english: list[str], german: list[str], kinds: list[str]) -> Noun:
    """Returns the noun of a line of `_NOUNS`, its columns given as words."""
    gender, singular, plural, genitive = german
    weak = gender == "m" and not genitive.endswith("s")  # der Student, den Studenten: the genitive's form throughout
    oblique = genitive if weak else singular
    dative_plural = plural if plural[-1] in "ns" else plural + "n"
    forms = (singular, oblique, oblique, genitive), (plural, plural, dative_plural, plural)
    pronoun = next((kind for kind in kinds if kind in ("he", "she")), "" if "person" in kinds else "it")
    return Noun((english[0], english[1]), gender, forms, frozenset(kinds), pronoun)


def make_verb(
    english: list[str], german: list[str], frames: list[str], subjects: list[str], objects: list[str]
) -> Verb:
    """Returns the verb of a line of `_VERBS`, its columns given as words."""
    base, third, past = (form.partition("_")[0] for form in english[:3])
    particle, _, infinitive = german[0].rpartition("+")
    singular = german[1].split("/")
    ich, du, er = singular if len(singular) == 3 else ("", "", singular[0])
    en_particle = english[3] if len(english) > 3 else ""
    preposition = english[0].partition("_")[2]
    present = (ich, du, er, infinitive)
    return Verb(
        (base, third, past), en_particle, preposition, infinitive, particle, present, german[2], german[3],
        frozenset(frames), tuple(subjects), tuple(objects),
    )  # fmt: skip


NOUNS = tuple(make_noun(*columns) for columns in _lines(_NOUNS))
VERBS = tuple(make_verb(*columns) for columns in _lines(_VERBS))
ADJECTIVES = tuple(Adjective(words[0], words[1], frozenset(kinds)) for words, kinds in _lines(_ADJECTIVES))

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

_UNITS = {"one": "ein", "two": "zwei", "four": "vier", "seven": "sieben"}
_TENS = {"twenty": "zwanzig", "thirty": "dreißig"}
NUMBERS = {
    **{"two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "seven": "sieben", "ten": "zehn"},
    **_TENS,
    **{f"{ten}-{unit}": f"{eins}und{zehn}" for ten, zehn in _TENS.items() for unit, eins in _UNITS.items()},
}


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
        self, nouns: Iterable[Noun], verbs: tuple[Verb, ...], adjectives: tuple[Adjective, ...], names: dict[str, str],
        families: tuple[str, ...], numbers: dict[str, str], *, towns: tuple[str, ...] = (), zipf: bool = False,
    ):  # fmt: skip
        nouns_of: dict[str, list[Noun]] = {}
        for noun in nouns:
            for kind in noun.kinds:
                nouns_of.setdefault(kind, []).append(noun)
        self.nouns_of = {kind: tuple(found) for kind, found in nouns_of.items()}
        frames = frozenset().union(*(verb.frames for verb in verbs))
        self.verbs_of = {frame: tuple(verb for verb in verbs if frame in verb.frames) for frame in frames}
        every = {noun.kinds for found in nouns_of.values() for noun in found} | {frozenset({"person"})}
        self.adjectives_for = {kinds: tuple(a for a in adjectives if a.kinds & kinds) for kinds in every}
        self.names, self.families, self.numbers, self.towns, self.zipf = names, families, numbers, towns, zipf
        self.zu = {
            v.particle + v.infinitive: (f"{v.particle}zu{v.infinitive}",) if v.particle else ("zu", v.infinitive)
            for v in verbs
        }


BASE = Lexicon(NOUNS, VERBS, ADJECTIVES, NAMES, FAMILIES, NUMBERS)
