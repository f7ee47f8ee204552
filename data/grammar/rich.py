"""The words of the `rich` splits of the built-in corpus: several thousand, drawn by Zipf's law.

Each list begins with the words of `lexicon.py`, which are the common ones; then come those of the tables below, and
then what is formed by rule: German compounds, which English writes as two words (garden door, Gartentür), numbers,
family names and towns. Some English nouns have several meanings (`SENSES`): who else the sentence is about decides.
"""

from hashlib import blake2b
from typing import NamedTuple

from data.grammar.lexicon import ADJECTIVES, BASE, NOUNS, VERBS, Adjective, Lexicon, Noun, Verb, make_noun, make_verb

# Kinds: English[/plural] gender German plural, where w is a masculine in -n and = is the form of the singular
_NOUNS = """
person he trade: baker m Bäcker =, cook m Koch Köche, driver m Fahrer =, farmer w Bauer Bauern, painter m Maler =,
 writer m Schriftsteller =, judge m Richter =, waiter m Kellner =, lawyer m Anwalt Anwälte, pilot w Pilot Piloten,
 captain m Kapitän Kapitäne, dancer m Tänzer =, actor m Schauspieler =, poet m Dichter =, tailor m Schneider =, butcher
 m Metzger =, photographer w Fotograf Fotografen, journalist w Journalist Journalisten, merchant m Händler =, barber m
 Friseur Friseure
person he: father m Vater Väter, man/men m Mann Männer, son m Sohn Söhne, friend m Freund Freunde, guest m Gast Gäste,
 neighbour w Nachbar Nachbarn, grandfather m Großvater Großväter, cousin m Cousin Cousins, nephew w Neffe Neffen,
 husband m Ehemann Ehemänner, boss m Chef Chefs, colleague w Kollege Kollegen, customer w Kunde Kunden, owner m
 Besitzer =, reader m Leser =, visitor m Besucher =, passenger m Passagier Passagiere, sailor w Matrose Matrosen,
 thief/thieves m Dieb Diebe, inventor m Erfinder =, tenant m Mieter =, author m Autor Autoren, soldier w Soldat
 Soldaten, professor m Professor Professoren, minister m Minister =, president w Präsident Präsidenten, tourist w
 Tourist Touristen, mayor m Bürgermeister =, pensioner m Rentner =, king m König Könige, prince w Prinz Prinzen,
 policeman/policemen w Polizist Polizisten, fisherman/fishermen m Fischer =, craftsman/craftsmen m Handwerker =
person she: mother f Mutter Mütter, woman/women f Frau Frauen, daughter f Tochter Töchter, lady f Dame Damen,
 grandmother f Großmutter Großmütter, niece f Nichte Nichten, wife/wives f Ehefrau Ehefrauen, queen f Königin
 Königinnen, actress f Schauspielerin Schauspielerinnen, waitress f Kellnerin Kellnerinnen, princess f Prinzessin
 Prinzessinnen, nun f Nonne Nonnen, secretary f Sekretärin Sekretärinnen, midwife/midwives f Hebamme Hebammen
animal: mouse/mice f Maus Mäuse, cow f Kuh Kühe, pig n Schwein Schweine, goat f Ziege Ziegen, duck f Ente Enten,
 goose/geese f Gans Gänse, rabbit n Kaninchen =, fox m Fuchs Füchse, wolf/wolves m Wolf Wölfe, bear w Bär Bären, lion w
 Löwe Löwen, tiger m Tiger =, monkey w Affe Affen, donkey m Esel =, frog m Frosch Frösche, hen f Henne Hennen, snake f
 Schlange Schlangen, parrot m Papagei Papageien, squirrel n Eichhörnchen =, hedgehog m Igel =, owl f Eule Eulen, swan m
 Schwan Schwäne, beaver m Biber =, camel n Kamel Kamele, zebra n Zebra Zebras, raven w Rabe Raben, lamb n Lamm Lämmer,
 puppy w Welpe Welpen, giraffe f Giraffe Giraffen, elephant w Elefant Elefanten, crocodile n Krokodil Krokodile, beetle
 m Käfer =, spider f Spinne Spinnen, pigeon f Taube Tauben, eagle m Adler =, whale m Wal Wale, dolphin m Delfin
 Delfine, shark m Hai Haie, penguin m Pinguin Pinguine, bee f Biene Bienen
thing: knife/knives n Messer =, fork f Gabel Gabeln, spoon m Löffel =, plate m Teller =, pot m Topf Töpfe, pan f Pfanne
 Pfannen, basket m Korb Körbe, box/boxes f Kiste Kisten, bucket m Eimer =, rope n Seil Seile, hammer m Hammer Hämmer,
 ladder f Leiter Leitern, brush f Bürste Bürsten, broom m Besen =, towel n Handtuch Handtücher, blanket f Decke Decken,
 pillow n Kissen =, mirror m Spiegel =, clock f Uhr Uhren, vase f Vase Vasen, candle f Kerze Kerzen, ball m Ball Bälle,
 umbrella m Regenschirm Regenschirme, suitcase m Koffer =, rucksack m Rucksack Rucksäcke, doll f Puppe Puppen, kite m
 Drachen =, drum f Trommel Trommeln, guitar f Gitarre Gitarren, violin f Geige Geigen, flute f Flöte Flöten, tent n
 Zelt Zelte, flag f Fahne Fahnen, medal f Medaille Medaillen, coin f Münze Münzen, needle f Nadel Nadeln, button m
 Knopf Knöpfe, bell f Glocke Glocken, wallet m Geldbeutel =, bowl f Schüssel Schüsseln, chain f Kette Ketten, axe f Axt
 Äxte, door f Tür Türen, wheel n Rad Räder, shovel f Schaufel Schaufeln, comb m Kamm Kämme, barrel n Fass Fässer, lid m
 Deckel =, hose m Schlauch Schläuche, net n Netz Netze, ring m Ring Ringe, spade m Spaten =, jug m Krug Krüge, tray n
 Tablett Tabletts, carpet m Teppich Teppiche, curtain m Vorhang Vorhänge, pencil m Bleistift Bleistifte, trumpet f
 Trompete Trompeten, sledge m Schlitten =, mask f Maske Masken, crown f Krone Kronen, sword n Schwert Schwerter, helmet
 m Helm Helme, stamp f Briefmarke Briefmarken, parcel n Paket Pakete, statue f Statue Statuen, painting n Gemälde =
thing clothing: hat m Hut Hüte, scarf/scarves m Schal Schals, shirt n Hemd Hemden, skirt m Rock Röcke, dress n Kleid
 Kleider, jacket f Jacke Jacken, shoe m Schuh Schuhe, boot m Stiefel =, belt m Gürtel =, sock f Socke Socken, cap f
 Mütze Mützen, glove m Handschuh Handschuhe, jumper m Pullover =, apron f Schürze Schürzen, blouse f Bluse Blusen
thing machine: computer m Computer =, printer m Drucker =, telephone n Telefon Telefone, television m Fernseher =,
 camera f Kamera Kameras, oven m Ofen Öfen, heater f Heizung Heizungen, projector m Projektor Projektoren, loudspeaker
 m Lautsprecher =, torch f Taschenlampe Taschenlampen, toaster m Toaster =, dishwasher f Spülmaschine Spülmaschinen
thing text flat: magazine f Zeitschrift Zeitschriften, postcard f Postkarte Postkarten, report m Bericht Berichte,
 novel m Roman Romane, diary n Tagebuch Tagebücher, contract m Vertrag Verträge, recipe n Rezept Rezepte, catalogue m
 Katalog Kataloge, poster n Plakat Plakate, brochure f Broschüre Broschüren, dictionary n Wörterbuch Wörterbücher,
 notebook n Notizbuch Notizbücher, calendar m Kalender =
text: poem n Gedicht Gedichte, article m Artikel =, message f Nachricht Nachrichten, story f Geschichte Geschichten,
 speech f Rede Reden, song n Lied Lieder, essay m Aufsatz Aufsätze, comment m Kommentar Kommentare
food dish: salad m Salat Salate, pizza f Pizza Pizzas, pancake m Pfannkuchen =, omelette n Omelett Omeletts, biscuit m
 Keks Kekse, pie f Pastete Pasteten, pudding m Pudding Puddings, sauce f Soße Soßen
food: roll n Brötchen =, sausage f Wurst Würste, potato/potatoes f Kartoffel Kartoffeln, tomato/tomatoes f Tomate
 Tomaten, carrot f Karotte Karotten, onion f Zwiebel Zwiebeln, pear f Birne Birnen, plum f Pflaume Pflaumen, cherry f
 Kirsche Kirschen, lemon f Zitrone Zitronen, banana f Banane Bananen, strawberry f Erdbeere Erdbeeren, grape f Traube
 Trauben, mushroom m Pilz Pilze, cucumber f Gurke Gurken, nut f Nuss Nüsse, peach m Pfirsich Pfirsiche, melon f Melone
 Melonen
place in into: village n Dorf Dörfer, office n Büro Büros, shop m Laden Läden, forest m Wald Wälder, church f Kirche
 Kirchen, castle n Schloss Schlösser, hospital n Krankenhaus Krankenhäuser, factory f Fabrik Fabriken, cellar m Keller
 =, library f Bibliothek Bibliotheken, restaurant n Restaurant Restaurants, garage f Garage Garagen, barn f Scheune
 Scheunen, stable m Stall Ställe, tower m Turm Türme, cave f Höhle Höhlen, bedroom n Schlafzimmer =, bathroom n
 Badezimmer =, valley n Tal Täler, monastery n Kloster Klöster, workshop f Werkstatt Werkstätten, classroom n
 Klassenzimmer =, hut f Hütte Hütten, mill f Mühle Mühlen, pub f Kneipe Kneipen, laboratory n Labor Labore
place in to: museum n Museum Museen, theatre n Theater =, cinema n Kino Kinos, bakery f Bäckerei Bäckereien, pharmacy f
 Apotheke Apotheken, university f Universität Universitäten, zoo m Zoo Zoos, stadium n Stadion Stadien, palace m Palast
 Paläste, harbour m Hafen Häfen, airport m Flughafen Flughäfen, farm m Bauernhof Bauernhöfe
onto upright furniture: desk m Schreibtisch Schreibtische, shelf/shelves n Regal Regale, sofa n Sofa Sofas, bed n Bett
 Betten, cupboard m Schrank Schränke, stool m Hocker =, armchair m Sessel =
vehicle: taxi n Taxi Taxis, van m Lieferwagen =, lorry m Lastwagen =, tractor m Traktor Traktoren, motorbike n Motorrad
 Motorräder, scooter m Roller =, boat n Boot Boote
timetable: tram f Straßenbahn Straßenbahnen, ferry f Fähre Fähren, ship n Schiff Schiffe
"""

# What the cue is, as above: people without whom none of the ambiguous nouns below occurs, and what those then mean
_DOMAINS = """
hunter m Jäger =, ranger m Förster =, shepherd m Schäfer =, gardener m Gärtner =, biologist w Biologe Biologen | bat f
 Fledermaus Fledermäuse, crane m Kranich Kraniche, seal f Robbe Robben, spring f Quelle Quellen, mole m Maulwurf
 Maulwürfe, calf/calves n Kalb Kälber, trunk m Baumstamm Baumstämme, palm f Palme Palmen, plant f Pflanze Pflanzen,
 bulb f Blumenzwiebel Blumenzwiebeln
builder m Bauarbeiter =, plumber m Klempner =, mechanic m Mechaniker =, electrician m Elektriker =, engineer m
 Ingenieur Ingenieure | crane m Kran Kräne, seal f Dichtung Dichtungen, spring f Feder Federn, trunk m Kofferraum
 Kofferräume, plant n Werk Werke, bulb f Glühbirne Glühbirnen, file f Feile Feilen
coach m Trainer =, athlete m Sportler =, referee m Schiedsrichter = | bat m Schläger =, match n Spiel Spiele
nurse f Krankenschwester Krankenschwestern, surgeon w Chirurg Chirurgen, dentist m Zahnarzt Zahnärzte | organ n Organ
 Organe, calf/calves f Wade Waden, palm f Handfläche Handflächen, mole n Muttermal Muttermale, pupil f Pupille Pupillen
musician m Musiker =, organist w Organist Organisten, conductor w Dirigent Dirigenten | organ f Orgel Orgeln, note f
 Note Noten, scale f Tonleiter Tonleitern
accountant m Buchhalter =, manager m Manager =, banker m Bankier Bankiers | file f Akte Akten, note f Notiz Notizen,
 seal n Siegel =
headmaster m Rektor Rektoren, schoolboy w Schuljunge Schuljungen | pupil m Schüler =, ruler n Lineal Lineale
historian m Historiker =, archaeologist w Archäologe Archäologen | ruler m Herrscher =
chef m Küchenchef Küchenchefs, grocer m Lebensmittelhändler = | match n Streichholz Streichhölzer, scale f Waage Waagen
"""

# Frame | subjects | objects: English[/past][+particle] German, then where irregular third person, participle [sein]
_VERBS = """
none | person: laugh lachen, cry weinen, dance tanzen, cough husten, smoke rauchen, snore schnarchen, pray beten betet
 gebetet, learn lernen, smile lächeln, shout schreien schreit geschrien, whisper flüstern, dream träumen,
 travel/travelled reisen reist gereist sein, hike wandern wandert gewandert sein, stumble stolpern stolpert gestolpert
 sein, disappear verschwinden verschwindet verschwunden sein, get/got+off aus+steigen steigt ausgestiegen sein,
 give/gave+up auf+geben gibt aufgegeben, move+in ein+ziehen zieht eingezogen sein
none | person animal: jump springen springt gesprungen sein, drink/drank trinken trinkt getrunken
acc | person | thing vehicle: use benutzen, clean putzen, repair reparieren, sort sortieren, test testen, rent mieten,
 steal/stole stehlen stiehlt gestohlen
acc | person | thing text: describe beschreiben beschreibt beschrieben, photograph fotografieren, draw/drew zeichnen,
 forget/forgot vergessen vergisst vergessen, lose/lost verlieren verliert verloren, hide/hid verstecken, collect
 sammeln, order bestellen, throw/threw+away weg+werfen wirft weggeworfen, lift+up hoch+heben hebt hochgehoben
acc | person | clothing: wear/wore tragen trägt getragen, wash waschen wäscht gewaschen, take/took+off aus+ziehen zieht
 ausgezogen, try+on an+probieren, hang/hung+up auf+hängen
acc | person | text: translate übersetzen übersetzt übersetzt, sign unterschreiben unterschreibt unterschrieben,
 correct korrigieren, publish veröffentlichen, print+out aus+drucken, write/wrote+down auf+schreiben schreibt
 aufgeschrieben
acc | person | food: peel schälen, bake backen backt gebacken, taste probieren, serve servieren
acc | person | machine: switch+on ein+schalten
acc | person | person: meet/met treffen trifft getroffen, love lieben, hate hassen, greet begrüßen, marry heiraten,
 kiss küssen, praise loben, warn warnen, teach/taught unterrichten unterrichtet unterrichtet, admire bewundern, insult
 beleidigen, save retten, miss vermissen, disturb stören, recognise erkennen erkennt erkannt, understand/understood
 verstehen versteht verstanden, accompany begleiten, introduce vor+stellen
acc | person | animal: feed/fed füttern, catch/caught fangen fängt gefangen, stroke streicheln, watch beobachten
acc | person | vehicle: drive/drove fahren fährt gefahren, park parken
dat | person | person: answer antworten, congratulate gratulieren, forgive/forgave verzeihen verzeiht verziehen, trust
 vertrauen, obey gehorchen gehorcht gehorcht
give | person | thing: lend/lent leihen leiht geliehen, offer an+bieten bietet angeboten, promise versprechen
 verspricht versprochen
"""

# Kinds: English German
_ADJECTIVES = """
person: friendly freundlich, famous berühmt, clever klug, brave mutig, lazy faul, polite höflich, rich reich, poor arm,
 sad traurig, shy schüchtern, strict streng, proud stolz, nervous nervös, curious neugierig, strong stark, ill krank,
 blind blind
animal: wild wild, tame zahm, shy scheu, clever schlau, slow langsam, fast schnell
thing furniture: broken kaputt, clean sauber, dirty schmutzig, black schwarz, white weiß, green grün, blue blau, yellow
 gelb, brown braun, grey grau, modern modern, valuable wertvoll, useful nützlich, strange seltsam, ugly hässlich, round
 rund, dark-red dunkelrot, dark-blue dunkelblau, dark-green dunkelgrün, light-blue hellblau, light-green hellgrün,
 snow-white schneeweiß
text: interesting interessant, secret geheim, important wichtig, short kurz, long lang, sad traurig
place: quiet ruhig, empty leer, famous berühmt, modern modern, cold kalt, warm warm, huge riesig, tiny winzig
food: cold kalt, warm warm, sweet süß, ripe reif, salty salzig, raw roh
ambiguous: small klein, big groß, strange seltsam
vehicle: fast schnell, slow langsam, dirty schmutzig
"""

# Kinds of heads: English modifiers, and German first parts of compounds
_COMPOUNDS = """
trade: village Dorf, city Stadt, hotel Hotel, ship Schiffs, army Armee, company Firmen, star Star, hobby Hobby, theatre
 Theater, island Insel, circus Zirkus, court Hof, palace Palast
animal: forest Wald, mountain Berg, sea See, desert Wüsten, water Wasser, garden Garten, baby Baby, giant Riesen, dwarf
 Zwerg, zoo Zoo, circus Zirkus, jungle Dschungel, city Stadt
thing furniture: garden Garten, kitchen Küchen, school Schul, office Büro, toy Spielzeug, holiday Ferien, hotel Hotel,
 museum Museums, theatre Theater, camping Camping, silver Silber, gold Gold, plastic Plastik, wood Holz, metal Metall,
 paper Papier, steel Stahl, copper Kupfer, leather Leder, iron Eisen, marble Marmor, party Party
clothing: winter Winter, summer Sommer, school Schul, work Arbeits, travel Reise, sports Sport, party Party, leather
 Leder, silk Seiden, cotton Baumwoll, rain Regen, beach Strand, night Nacht, baby Baby, wool Woll
machine: office Büro, kitchen Küchen, school Schul, hotel Hotel, hospital Krankenhaus, garden Garten, factory Fabrik,
 party Party
text: travel Reise, school Schul, holiday Ferien, love Liebes, crime Kriminal, adventure Abenteuer, sports Sport,
 history Geschichts, family Familien, fashion Mode, music Musik, art Kunst, animal Tier, nature Natur, war Kriegs,
 theatre Theater, business Geschäfts, science Wissenschafts, garden Garten, winter Winter
dish: apple Apfel, cherry Kirsch, potato Kartoffel, tomato Tomaten, onion Zwiebel, vegetable Gemüse, plum Pflaumen, nut
 Nuss, mushroom Pilz, fish Fisch, lemon Zitronen, chocolate Schokoladen, carrot Karotten, pumpkin Kürbis
place: city Stadt, village Dorf, mountain Berg, forest Wald, island Insel, hospital Krankenhaus, art Kunst, toy
 Spielzeug, sports Sport, music Musik, fashion Mode, summer Sommer, winter Winter, harbour Hafen, luxury Luxus, family
 Familien, fish Fisch, shoe Schuh, flower Blumen, monastery Kloster, university Universitäts, holiday Ferien, guest
 Gäste, army Armee
vehicle: police Polizei, school Schul, company Firmen, hotel Hotel, toy Spielzeug, army Armee, sports Sport, rescue
 Rettungs
"""
_DISHES = {"soup", "cake"}  # of `lexicon.py`
_NO_HEADS = {"T-shirt", "email", "city"}

_WOMEN = """
Laura Lena Sophie Emma Hannah Clara Nina Eva Sarah Lisa Katharina Johanna Helena Martha Paula Greta Ida Frieda
Monika Petra Sabine Renate Ursula Brigitte Elena Olga Teresa Angela Barbara Ella Luisa Mia Nora Rosa Vera
"""
_MEN = """
Jan Karl Otto Emil Anton Simon David Daniel Michael Stefan Robert Walter Werner Heinrich Friedrich Wilhelm
Konrad Leon Ben Tim Tom Oskar Viktor Adam Bernd Dieter Erik Georg Gregor Ingo Jakob Kurt Oliver Philipp Rolf
Theo Uwe
"""
_PLACES = """
Linden Eichen Birken Buchen Erlen Rosen Neu Alt Ober Unter Königs Bischofs Mühl Stein Wald Wiesen Schwarzen
Weißen Roten Grün Hohen Tiefen Sonnen Marien Peters Wolfs Hirsch Adlers Fuchs Reh Falken Schön Salz Eisen Silber
Gold Kupfer Sand Moos Kalten Warm Breiten Langen Kirch Kloster Burg Berg Tannen Ahorn Apfel
Kirsch Quellen Heiden Bären Mittel Nieder Oster Wester
"""
_TOWNS = """
bach berg burg dorf feld hausen heim hofen kirchen rode stadt stein tal wald au furt brunn see weiler born horst
"""
_FAMILIES = "mann meier bauer hofer müller huber berger bacher thaler wieser reuter rieder mayr leitner egger brunner"
_UNITS = """
one ein, two zwei, three drei, four vier, five fünf, six sechs, seven sieben, eight acht, nine neun, ten zehn,
eleven elf, twelve zwölf, thirteen dreizehn, fourteen vierzehn, fifteen fünfzehn, sixteen sechzehn, seventeen
siebzehn, eighteen achtzehn, nineteen neunzehn
"""
_TENS = """
twenty zwanzig, thirty dreißig, forty vierzig, fifty fünfzig, sixty sechzig, seventy siebzig, eighty achtzig,
ninety neunzig
"""


class Sense(NamedTuple):
    """One meaning of an ambiguous noun, and the people whose presence says that it is meant."""

    noun: Noun
    cues: tuple[Noun, ...]


def _entries(text: str) -> list[list[str]]:
    return [entry.split() for entry in text.split(",")]


def _groups(table: str, separator: str = ":") -> list[tuple[str, str]]:
    lines = table.strip().replace("\n ", " ").splitlines()
    return [(first, rest) for first, _, rest in (line.partition(separator) for line in lines)]


def _with_s(word: str) -> str:
    """Returns an English plural or third person."""
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def _with_ed(word: str) -> str:
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + ("d" if word[-1] == "e" else "ed")


def _noun(entry: list[str], kinds: list[str]) -> Noun:
    english, gender, german, plural = entry
    singular, _, others = english.partition("/")
    plural = german if plural == "=" else plural
    weak = {"w": plural, "f": german}
    genitive = weak.get(gender, german + ("es" if german.endswith(("s", "sch", "st", "z", "zt", "d", "nn")) else "s"))
    gender = "m" if gender == "w" else gender
    return make_noun([singular, others or _with_s(singular)], [gender, german, plural, genitive], kinds)


def _verb(entry: list[str], frames: str, subjects: str, objects: str = "") -> Verb:
    english, german, *forms = entry
    english, _, en_particle = english.partition("+")
    base, _, past = english.partition("/")
    particle, _, infinitive = german.rpartition("+")
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    third = stem + ("et" if stem.endswith(("d", "t", "chn")) else "t")
    prefix = "" if infinitive.startswith(("be", "ver", "er")) or infinitive.endswith("ieren") else "ge"
    third, participle, auxiliary = [*forms, *(third, particle + prefix + third, "haben")[len(forms) :]]
    en = [base, _with_s(base), past or _with_ed(base), *([en_particle] if en_particle else [])]
    return make_verb(en, [german, third, participle, auxiliary], frames.split(), subjects.split(), objects.split())


def _compounds(nouns: list[Noun]) -> list[Noun]:
    """Returns all compounds of one modifier with a head of its kind, in an order that means nothing."""
    found: dict[str, Noun] = {}
    for kinds, modifiers in _groups(_COMPOUNDS):
        special = {"clothing", "machine", "text", "vehicle"} - set(kinds.split())
        for head in nouns:
            of_kind = head.kinds.intersection(kinds.split()) or (kinds == "dish" and head.en[0] in _DISHES)
            if not of_kind or head.en[0] in _NO_HEADS or ("thing" in kinds and head.kinds & special):
                continue
            for english, german in _entries(modifiers):
                if english != head.en[0]:
                    en = f"{english} {head.en[0]}", f"{english} {head.en[1]}"
                    de = tuple(tuple(german + form[0].lower() + form[1:] for form in forms) for forms in head.de)
                    found[en[0]] = head._replace(en=en, de=(de[0], de[1]))
    return [found[name] for name in sorted(found, key=lambda name: blake2b(name.encode()).digest())]


def _numbers() -> dict[str, str]:
    units, tens = (dict(_entries(table)) for table in (_UNITS, _TENS))
    found = dict(list(units.items())[1:])
    for ten, zehn in tens.items():
        found[ten] = zehn
        found |= {f"{ten}-{unit}": f"{eins}und{zehn}" for unit, eins in list(units.items())[:9]}
    return found


def _shuffled(words: list[str]) -> tuple[str, ...]:
    return tuple(sorted(words, key=lambda word: blake2b(word.encode()).digest()))


def _rich() -> Lexicon:
    nouns = [*NOUNS, *(_noun(e, kinds.split()) for kinds, rest in _groups(_NOUNS) for e in _entries(rest))]
    verbs = [_verb(e, *head.split("|")) for head, rest in _groups(_VERBS) for e in _entries(rest)]
    kinds_of = [(e, frozenset(kinds.split())) for kinds, rest in _groups(_ADJECTIVES) for e in _entries(rest)]
    adjectives = [Adjective(english, german, kinds) for (english, german), kinds in kinds_of]
    names = BASE.names | dict.fromkeys(_WOMEN.split(), "she") | dict.fromkeys(_MEN.split(), "he")
    places, towns, families = _PLACES.split(), _TOWNS.split(), _FAMILIES.split()
    return Lexicon(
        [*nouns, *_compounds(nouns), *(sense.noun for sense in SENSES)], (*VERBS, *verbs),
        (*ADJECTIVES, *adjectives), names,
        (*BASE.families, *_shuffled([first + last for first in places for last in families])), _numbers(),
        towns=_shuffled([first + last for first in places for last in towns if first.lower() != last]), zipf=True,
    )  # fmt: skip


def _senses() -> tuple[Sense, ...]:
    found = []
    for people, meanings in _groups(_DOMAINS, "|"):
        cues = tuple(_noun(e, ["person", "she" if e[1] == "f" else "he"]) for e in _entries(people))
        found += [Sense(_noun(e, ["ambiguous"]), cues) for e in _entries(meanings)]
    return tuple(found)


SENSES = _senses()
RICH = _rich()
