"""The claims of the paper's four tables, at the paper's size and of the scaled-down models; and of Multi30k."""

from typing import Any

import numpy as np

from lab.cards.card import (
    NO_SEEDS,
    OPEN,
    Card,
    Claim,
    between,
    compare,
    if_trained,
    measure,
    met,
    shown_mean,
    shown_p,
    shown_seeds,
    verdict_by_number,
)
from lab.studies.multi30k_raw.design import SEEDS
from lab.studies.second.first import COMPARED
from vaswani.configs.small import CORRELATION, SEEDS_BLEU, SEEDS_PERPLEXITY
from vaswani.paper.published import MULTI30K, TABLE2, TABLE3, TABLE4
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns, row_runs
from vaswani.paper.tables import table1, table2, table3, table4
from vaswani.paper.tables.cost import devices
from vaswani.paper.tables.trend import (
    Correlation,
    by_seed,
    correlation,
    differences_from_base,
    p_values_of,
    spread_of_seeds,
    with_the_sign,
)
from vaswani.train.table import NOT_RUN, difference, number

CLOSE = 0.1  # by which a measured exponent may differ from the paper's
POWERS = {"O(1)": 0, "O(n)": 1, "O(n/r)": 1}  # of n
SMALL = "Table 3: scaled-down models"
FULL_SIZE = ("base", "big")  # the rows of Table 3 whose cost the paper gives
WU = "Wu et al. 2021"


def cards(records: Records) -> list[Card]:
    """Returns the cards of Tables 1 to 4 and of Multi30k."""
    return [*_table1(records), *_table2(records), *_table3(records), *_table4(records), *_multi30k(records)]


def _table1(records: Records) -> list[Card]:
    """Returns for each layer type whether operations, sequential operations and paths grow as the paper says.

    The paper's path of convolutions is that of dilated ones.
    """
    cards: list[Card] = []
    for name, paper in table1.PAPER.items():
        dilated = table1.DILATED if name == table1.CONVOLUTIONAL else name
        cards += [
            _growth(records, name, "operations", paper.complexity),
            _growth(records, name, "sequential", paper.sequential),
            _growth(records, dilated, "longest path", paper.path),
        ]
    return cards


def _growth(records: Records, name: str, measure: str, published: str) -> Card:
    """Returns the card of one cell of Table 1, which `python -m paper.table1` measures again."""
    card = Card(
        about="Table 1: layer types",
        claim=f"{name}: {measure.replace('sequential', 'sequential operations')}",
        published=f"{published}, Table 1",
        ours=NOT_RUN,
        interval="",
        p="",
        seeds="",
        verdict=NOT_RUN,
        cost="",
        commits="",
        command="",
    )
    if not records.layers:
        return card
    record = records.layers[-1]
    lines = {line[0]: dict(zip(table1.HEAD, line, strict=True)) for line in table1.table(record).rows}
    return card._replace(
        ours=lines[name][f"{measure}: measured"],
        verdict=met(_grows(record, name, measure)),
        cost=devices({**record["device"], "count": 1}),
        command="python -m paper.table1",
    )


def _grows(record: dict[str, Any], name: str, measure: str) -> bool:
    """Tells whether exponents are within `CLOSE` of the paper's, or a path is log_k n layers, rounded up."""
    found = record["types"][name]
    powers = found["exponents"]
    row = table1.TYPES[name]
    if measure == "operations":
        return all(abs(powers["operations"][axis] - power) <= CLOSE for axis, power in row.exponents.items())
    if measure == "sequential":
        return bool(abs(powers["sequential"] - POWERS[row.paper.sequential]) <= CLOSE)
    if row.paper.path in POWERS:
        return bool(abs(powers["path"] - POWERS[row.paper.path]) <= CLOSE)
    k = record["paths_at"]["k"]
    return all(k ** (path["length"] - 1) < path["n"] <= k ** path["length"] for path in found["paths"])


def _table2(records: Records) -> list[Card]:
    """Returns BLEU of each Transformer, and of the scaled-down ones whether big is better than base."""
    about = "Table 2: translation, BLEU"
    printed = {(table2.size_of(system.model), pair): value for system in TABLE2 for pair, value in system.bleu.items()}
    cards: list[Card] = []
    for pair in table2.PAIRS:
        for size in table2.SIZES:
            row = row_runs(records, table2.config_of(size, pair), "test")
            text = f"{size} reaches the paper's BLEU, {pair}"
            cards.append(_reached(about, text, row, table2.READING[pair], printed[size, pair], "Table 2"))
    claims: list[Claim] = []
    for pair in table2.PAIRS:
        base, big = (row_runs(records, table2.config_of(size, pair, ":small"), "test") for size in table2.SIZES)
        published = f"{difference(printed['big', pair], printed['base', pair], 1)}, Table 2"
        text = f"scaled down, big is better than base, {pair}"
        claims.append(between(text, big, base, "sacrebleu", 1, published))
    return cards + if_trained(compare(about, claims, 2), claims)


def _reached(about: str, text: str, row: RowRuns, key: str, published: float, source: str, sign: int = 1) -> Card:
    """Returns the card of a published score; `sign` is -1 of one that is the better the lower it is."""
    above = sign * (np.array(row.values(key)) - published)
    claim = Claim(
        text,
        [row],
        above,
        published=f"{published:g}, {source}",
        ours=shown_mean(row, key),
    )
    p = shown_p(p_values_of({key: above}), key)
    return measure(about, claim, 2)._replace(p=p, verdict=verdict_by_number(above))


def _table3(records: Records) -> list[Card]:
    """Returns the paper's size, and what the scaled-down models were designed to show, as a whole and row by row."""
    about = "Table 3: variations of the base model"
    cards: list[Card] = []
    for name in FULL_SIZE:
        row = row_runs(records, f"{table3.FILE}:{name}", "valid")
        text = f"{name} reaches the paper's perplexity on newstest2013"
        cards.append(_reached(about, text, row, "perplexity", TABLE3[name].perplexity, "Table 3", -1))
    models = {name: row_runs(records, f"{table3.FILE}:{name}:small", "valid") for name in TABLE3}
    return [*cards, *_design(models), *_rows(models), *_why(records)]


def _paper(name: str) -> float:
    return TABLE3[name].perplexity


def _design(models: dict[str, RowRuns]) -> list[Card]:
    """Returns the three conditions of configs/small.py, which hold for all rows together."""

    def card_of(text: str) -> Card:
        return measure(SMALL, Claim(text, list(models.values()), ours=NOT_RUN), 0)

    agree = card_of(f"base's seeds agree within {SEEDS_BLEU:g} BLEU and {100 * SEEDS_PERPLEXITY:g} % of perplexity")
    signs = card_of("every row's difference from base has the paper's sign")
    ranks = card_of(f"perplexities rank as the paper's: a correlation of at least {CORRELATION:g}")
    counts = [len(row.scored) for row in models.values()]
    if not any(counts):
        return [agree, signs, ranks]
    if min(counts) < 2:
        seeds = shown_seeds(counts)
        return [card._replace(ours="", seeds=seeds, verdict=OPEN) for card in (agree, signs, ranks)]
    spread = spread_of_seeds(models["base"])
    differences = differences_from_base(models, "perplexity", _paper)
    same = with_the_sign(differences, _paper)
    agree = agree._replace(
        ours=str(spread),
        seeds=str(len(models["base"].scored)),
        verdict=met(spread is not None and spread.is_allowed),
    )
    of_all = [signs._replace(ours=f"{len(same)} of {len(differences)}", verdict=met(len(same) == len(differences)))]
    found = correlation(models, list(models), "perplexity", _paper)
    if found is not None:
        interval = f"{number(found.low)} to {number(found.high)}"
        of_all.append(ranks._replace(ours=number(found.value), interval=interval, verdict=_ranked(found)))
    return [agree, *(card._replace(seeds=shown_seeds(counts)) for card in of_all)]


def _ranked(found: Correlation) -> str:
    """Judges a rank correlation and its interval by the rule of configs/small.py."""
    if found.value >= CORRELATION and found.low > 0:
        return "shown"
    return "refuted" if found.high < CORRELATION else "neither"


def _rows(models: dict[str, RowRuns]) -> list[Card]:
    """Returns for each row whether it differs from base with the paper's sign; not of a row that in the paper does not.

    By Holm for as many rows as docs/tables.md compares.
    """
    found = differences_from_base(models, "perplexity", _paper)
    claims: list[Claim] = []
    for name, row in models.items():
        sign = int(np.sign(_paper(name) - _paper("base")))
        if sign == 0:
            continue
        direction = "higher" if sign > 0 else "lower"
        text = f"{name} ({table3.changed(f'{name}:small')}) is {direction} than base"
        published = f"{difference(np.log(_paper(name)), np.log(_paper('base')), 3)}, Table 3"
        claims.append(Claim(text, [row, models["base"]], found.get(name, NO_SEEDS), sign, published))
    made = compare("Table 3: scaled-down models row by row, log perplexity minus base's", claims, 3)
    return if_trained(made, claims)


def _why(records: Records) -> list[Card]:
    """Returns the experiments of configs/ablations.py on the two rows that are worse than base."""
    texts = {
        "C3": ("more layers (C3) are worse than base", 1),
        "C3-pre": ("with pre-norm, more layers (C3-pre) are worse than base, too", 1),
        "big": ("big is worse than base", 1),
        "big-drop": ("with base's dropout rate big (big-drop) is better than base", -1),
    }
    claims: list[Claim] = []
    for name, minus in COMPARED:
        row, base = (row_runs(records, f"{table3.FILE}:{one}:small", "valid") for one in (name, minus))
        text, sign = texts[name]
        claims.append(between(text, row, base, "perplexity", sign))
    made = compare("Table 3: why two scaled-down models are worse, log perplexity minus base's", claims, 3)
    return if_trained(made, claims)


def _table4(records: Records) -> list[Card]:
    """Returns F1 of both of the paper's parsers, and of the scaled-down one."""
    about = "Table 4: parsing, F1"
    printed = {parser.training: parser.f1 for parser in TABLE4 if parser.parser.startswith("Transformer")}
    cards: list[Card] = []
    for training, config in table4.CONFIGS.items():
        row = row_runs(records, config, "test", "f1")
        cards.append(_reached(about, f"reaches the paper's F1, {training}", row, "f1", printed[training], "Table 4"))
    small = row_runs(records, table4.SMALL, "test", "f1")
    text = "scaled down, parses the built-in grammar's trees"
    claim = Claim(text, [small], np.array(small.values("f1")), ours=shown_mean(small, "f1"))
    return [*cards, measure(about, claim, 2)]


def _multi30k(records: Records) -> list[Card]:
    """Returns the published BLEU of Multi30k, with two recipes, and what the published segmentation is worth."""
    about = "Multi30k: image captions, BLEU of lower-cased tokens"
    own = row_runs(records, "configs/multi30k.py", "test", "bleu_tok_lc")
    published = row_runs(records, "configs/multi30k_published.py", "test", "bleu_as_is")
    raw = row_runs(records, "lab/studies/multi30k_raw/design.py", "test", "bleu_tok_lc")
    of_raw = by_seed(raw, "bleu_tok_lc")
    of_published = by_seed(published, "bleu_tok_lc")  # one reading for both sides
    shared = [seed for seed in SEEDS if seed in of_raw and seed in of_published]
    gained = np.array([of_published[seed] - of_raw[seed] for seed in shared])
    better = Claim("the published segmentation is better than sentencepiece's, in BLEU", [published, raw], gained, 1)
    (segmentation,) = compare(about, [better], 2)
    if 0 < len(shared) < len(SEEDS):
        segmentation = segmentation._replace(p="", verdict=OPEN)
    return [
        _reached(about, "reaches the published BLEU with a recipe of our own", own, "bleu_tok_lc", MULTI30K, WU),
        _reached(about, "reaches the published BLEU with the published recipe", published, "bleu_as_is", MULTI30K, WU),
        segmentation,
    ]
