"""The claims of our own studies; their pages tell what each was expected to show, and did."""

import numpy as np
from jaxtyping import Float

from base.table import NOT_RUN, number
from configs.classification import CLASSES
from lab.cards.card import (
    OPEN,
    Card,
    Claim,
    compared,
    judged,
    measured,
    met,
    shown_mean,
    shown_seeds,
    verdict_by_number,
    verdict_by_sign,
    verdict_of,
)
from lab.studies.bottleneck import study as bottleneck
from lab.studies.distance import study as distance
from lab.studies.extrapolation import study as extrapolation
from lab.studies.extrapolation.design import POSITIONS
from lab.studies.families import study as families
from lab.studies.g2p import study as g2p
from lab.studies.layers import study as layers
from lab.studies.mup import study as mup
from lab.studies.mup.design import KINDS, WIDTHS
from lab.studies.norms import study as norms
from lab.studies.norms.design import NORMS, name_of
from lab.studies.optimisers import study as optimisers
from lab.studies.optimisers.design import BASE
from lab.studies.scaling import study as scaling
from lab.studies.scaling.design import LONG_ROWS
from lab.studies.scan import study as scan
from lab.studies.scan_length import study as scan_length
from lab.studies.scan_length.design import JUDGED
from lab.studies.scores import study as scores
from lab.studies.second import study as second
from lab.studies.second.design import EQUIVALENT, MARGIN, PRIMARY
from paper.published import G2P, SCAN, SCAN_26
from paper.records import Records
from paper.rows import RowRuns
from paper.tables.trend import p_value, paired_differences

MINUS_BASE = "Translators by family, sacreBLEU minus that of encoder and decoder"
LOSS = "Scaling laws, nats a token"
NO_SEEDS: Float[np.ndarray, " seeds"] = np.array([])  # where the number is not a mean over seeds
WITHIN = 2.0  # predicted in configs/prefix_lm.py, for pre-norm
SECOND = "Table 3 scaled down, second design"


def cards(records: Records) -> list[Card]:
    """Returns the cards of all studies."""
    return [
        *_layers(records),
        *_extrapolation(records),
        *_scan(records),
        *_scan_length(records),
        *_scaling(records),
        *_classifiers(records),
        *_translators(records),
        *_second(records),
        *_second_equivalent(records),
        *_bottleneck(records),
        *_scores(records),
        *_distance(records),
        *_norms(records),
        *_mup(records),
        *_optimisers(records),
        *_g2p(records),
    ]


def _layers(records: Records) -> list[Card]:
    runs = layers.rows(records)
    base = runs[layers.BASE]
    claims: dict[str, Claim] = {}
    differences: dict[str, Float[np.ndarray, " seeds"]] = {}
    for mixer, row in runs.items():
        if mixer != layers.BASE:
            claims[mixer] = Claim(f"{mixer} layers are worse than attention", [row, base], 1)
            differences[mixer] = paired_differences(row, base, "perplexity")
    return compared("Layers at equal parameters, log perplexity minus attention's", claims, differences, 3)


def _extrapolation(records: Records) -> list[Card]:
    runs = extrapolation.rows(records)
    within, *_, beyond = extrapolation.BANDS
    about = f"Positions beyond the training length, nats a token at {beyond[0] + 1} to {beyond[1]}"
    near = f"those at {within[0] + 1} to {within[1]}"
    claims: dict[str, Claim] = {}
    risen: dict[str, Float[np.ndarray, " seeds"]] = {}
    for kind in POSITIONS:
        if kind == "learned":  # has no entries beyond the training length
            continue
        claims[kind] = Claim(f"positions {kind}: not above {near}", [runs[kind]], -1)
        risen[kind] = extrapolation.risen(runs[kind], beyond)
    sinusoidal, none = runs["sinusoidal"], runs["none"]
    worse = Claim("sinusoidal positions are worse than none", [sinusoidal, none], 1)
    apart = extrapolation.apart(sinusoidal, none, beyond)
    return [*compared(about, claims, risen, 3), *compared(about, {"": worse}, {"": apart}, 3)]


def _scan(records: Records) -> list[Card]:
    about = "SCAN: exact match, %"
    cards: list[Card] = []
    published: dict[str, Claim] = {}
    delta: dict[str, Float[np.ndarray, " seeds"]] = {}
    for split, row in scan.rows(records).items():
        value = SCAN[split]
        ours = shown_mean(row, "exact_match")
        matches = np.array(row.values("exact_match"))
        if value is None:
            cards.append(measured(about, Claim(f"{split} is solved", [row], ours=ours), matches, 1))
        else:
            source = f"{value}, attributed to Furrer et al. 2020"
            published[split] = Claim(f"{split}: as published", [row], 0, source, ours)
            delta[split] = matches - value
    for split, card in zip(published, compared(about, published, delta, 1), strict=True):
        is_exact = len(delta[split]) > 1 and not delta[split].any()
        if is_exact or card.verdict == "refuted":
            card = card._replace(verdict=met(is_exact))
        cards.append(card)
    return cards


def _scan_length(records: Records) -> list[Card]:
    about = f"SCAN, longer than the {JUDGED} actions of training: exact match, %"
    runs = scan_length.rows(records)
    cards: list[Card] = []
    for claim, pairs in scan_length.COMPARED.items():
        claims: dict[str, Claim] = {}
        for name, (one, other) in pairs.items():
            rows = [scan_length.judged(runs, one), scan_length.judged(runs, other)]
            claims[name] = Claim(f"{claim} ({name})", rows, 1)
        found = compared(about, claims, scan_length.differences(runs, claim), 1)
        verdicts = scan_length.verdicts_on(runs, claim)
        for card, said in zip(found, verdicts.values(), strict=True):
            cards += judged([card], said)
    cards = [card._replace(p="") if card.verdict == OPEN else card for card in cards]
    for model, text in scan_length.AS_PUBLISHED.items():
        row = scan_length.judged(runs, model)
        published = f"{number(SCAN_26, 0)}, Csordas et al. 2021"
        claim_of = Claim(f"{model}: {text}", [row], 0, published, shown_mean(row, "exact_match"))
        card = measured(about, claim_of, np.array(row.values("exact_match")), 1)
        cards.append(card._replace(verdict=scan_length.verdict_on_published(runs, model)))
    return cards


def _scaling(records: Records) -> list[Card]:
    first = scaling.rows(records)
    long = scaling.rows(records, LONG_ROWS)
    law_of_long = scaling.fitted(long)
    floor = Claim("the law finds a floor (with more text)", list(long.values()))
    found = measured(LOSS, floor, NO_SEEDS if law_of_long is None else law_of_long.best[:1], 3)
    if law_of_long is not None:
        found = found._replace(
            ours=f"E = {scaling.rounded(law_of_long.best[0])}",
            interval=f"{scaling.rounded(law_of_long.low[0])} to {scaling.rounded(law_of_long.high[0])}",
            seeds=shown_seeds([len(row.scored) for row in long.values()]),
        )
    if any(row.scored for row in long.values()):
        found = found._replace(verdict=verdict_of(scaling.verdict_on_floor(long, law_of_long)))
    return [_prediction(first, scaling.fitted(first)), _prediction(long, law_of_long), found]


def _prediction(runs: dict[str, RowRuns], law: scaling.Fitted | None) -> Card:
    """Returns the card of what the law, fitted to all rows but the last, predicts for that one."""
    *others, left_out = runs
    largest = runs[left_out]
    losses = np.array(largest.values("nll"))
    claim = Claim(
        f"the law, fitted without {left_out}, predicts its loss",
        [largest, *(runs[name] for name in others)],
        ours=shown_mean(largest, "nll", 3),
    )
    card = measured(LOSS, claim, losses, 3)._replace(interval="")
    if not len(losses):
        return card
    if law is None or not scaling.is_complete(runs):
        return card._replace(verdict=OPEN)
    best, low, high = (numbers[-1] for numbers in (law.best, law.low, law.high))
    return card._replace(
        ours=f"{card.ours}; predicted {scaling.rounded(best)}",
        interval=f"{scaling.rounded(low)} to {scaling.rounded(high)}",
        verdict=met(low <= losses.mean() <= high),
    )


def _classifiers(records: Records) -> list[Card]:
    runs = families.classifiers(records)
    claims: dict[str, Claim] = {}
    differences: dict[str, Float[np.ndarray, " seeds"]] = {}
    for name in CLASSES:
        tuned, new = (runs[f"{name}, {way}"] for way in families.WAYS)
        claims[name] = Claim(f"pre-training helps: {name}", [tuned, new], 1)
        differences[name] = 100 * paired_differences(tuned, new, "accuracy")
    return compared("Pre-training a classifier, points of accuracy", claims, differences, 1)


def _translators(records: Records) -> list[Card]:
    runs = families.translators(records)
    helps, sees_all = families.PAIRS
    texts = {
        helps: "pre-training helps the small T5",
        sees_all: "with pre-norm, a decoder alone is better if it sees the whole source",
    }
    claims: dict[str, Claim] = {}
    differences: dict[str, Float[np.ndarray, " seeds"]] = {}
    for (name, minus), text in texts.items():
        claims[name] = Claim(text, [runs[name], runs[minus]], 1)
        differences[name] = paired_differences(runs[name], runs[minus], "sacrebleu")
    of_t5, of_decoder = compared("Translators by family, sacreBLEU", claims, differences, 2)
    gained = differences[helps[0]]
    of_t5 = of_t5._replace(verdict=verdict_by_sign(gained, p_value(gained), 1))  # by configs/denoising.py, without Holm
    return [of_t5, of_decoder, *_decoders(runs), *_t5(runs)]


def _decoders(runs: dict[str, RowRuns]) -> list[Card]:
    cards: list[Card] = []
    base = runs[families.BASE]
    for name, row in runs.items():
        if not name.startswith("decoder alone"):
            continue
        seeds = paired_differences(row, base, "sacrebleu")
        claim = Claim(f"{name}: every seed within {WITHIN:g}", [row, base])
        card = measured(MINUS_BASE, claim, seeds, 2)
        if len(seeds):
            card = card._replace(verdict=met(bool(np.abs(seeds).max() <= WITHIN)))
        cards.append(card)
    return cards


def _t5(runs: dict[str, RowRuns]) -> list[Card]:
    base = runs[families.BASE]
    claims = {name: Claim(f"{name}: worse", [runs[name], base], -1) for name in ("T5", "T5, fine-tuned")}
    differences = {name: paired_differences(runs[name], base, "sacrebleu") for name in claims}
    return compared(MINUS_BASE, claims, differences, 2)


def _second(records: Records) -> list[Card]:
    runs = second.rows(records)
    counts = [len(row.scored) for row in runs.values()]
    claim = Claim(
        "the scaled-down models differ as the paper's do: rank correlation", list(runs.values()), ours=NOT_RUN
    )
    card = measured(SECOND, claim, NO_SEEDS, 0)
    differences = second.differences_of(runs)
    said = second.verdict(differences)
    if not any(counts):
        return [card]
    if not said:
        return [card._replace(ours="", seeds=shown_seeds(counts), verdict=OPEN)]
    plain, _ = second.correlations([differences[name] for name in PRIMARY])
    return [
        card._replace(
            ours=number(plain.value),
            interval=f"{number(plain.low)} to {number(plain.high)}",
            seeds=shown_seeds(counts),
            verdict=verdict_of(said[-1]),
        )
    ]


def _second_equivalent(records: Records) -> list[Card]:
    runs = second.rows(records)
    differences = second.differences_of(runs)
    cards: list[Card] = []
    for name in EQUIVALENT:
        seeds = differences.get(name, NO_SEEDS)
        claim = Claim(f"{name} is within {MARGIN:g} of base in log perplexity", [runs[name], runs["base"]])
        card = measured(SECOND, claim, seeds, 3)
        said = second.row_verdict(name, seeds)
        if not len(seeds):  # base alone says nothing of the claim
            card = card._replace(cost="", commits="", command="", caveats=())
        else:
            verdicts = {"": OPEN, "equivalent": "shown", "not equivalent": "refuted", "not shown": "neither"}
            card = card._replace(verdict=verdicts[said])
        cards.append(card)
    return cards


def _bottleneck(records: Records) -> list[Card]:
    about = "One vector for a sentence: BLEU that is lost from short sources to long ones"
    runs = bottleneck.rows(records)
    drops = {kind: bottleneck.dropped(row) for kind, row in runs.items()}
    fixed: dict[str, Claim] = {}
    transformer: dict[str, Claim] = {}
    for kind in bottleneck.COMPARED:
        fixed[kind] = Claim(f"one fixed vector loses more than {kind} attention", [runs["fixed"], runs[kind]], 1)
        text = f"the Transformer loses no more than an LSTM with {kind} attention"
        transformer[kind] = Claim(text, [runs["transformer"], runs[kind]], -1)
    cards = compared(about, fixed, {kind: bottleneck.more(drops, kind) for kind in fixed}, 2)
    cards = judged(cards, bottleneck.verdict(drops))  # the rule is for both together
    less = {kind: bottleneck.more(drops, kind, "transformer") for kind in transformer}
    additive, whole = runs["additive"], runs["transformer"]
    best = Claim("additive attention translates better than the Transformer", [additive, whole], 1)
    better = paired_differences(additive, whole, "sacrebleu")
    return [
        *cards,
        *compared(about, transformer, less, 2),
        *compared("One vector for a sentence: BLEU on sources of any length", {"": best}, {"": better}, 2),
    ]


def _scores(records: Records) -> list[Card]:
    about = "Scores of queries and keys, log perplexity"
    runs = scores.rows(records)

    def cards_of(kind: str, other: str, claims: dict[int, tuple[str, int]]) -> list[Card]:
        """Returns a card for each d_k, of a claim and its sign."""
        made = {}
        differences = {}
        for width, (text, sign) in claims.items():
            made[str(width)] = Claim(f"d_k {width}: {text}", [runs[f"{kind}-{width}"], runs[f"{other}-{width}"]], sign)
            differences[str(width)] = scores.minus(runs, kind, other, width)
        return compared(about, made, differences, 3)

    small, middle, large = scores.widths("unscaled")
    of_small, of_middle, of_large = cards_of(
        "unscaled",
        "scaled",
        {
            small: ("undivided products are no worse than divided ones", -1),
            middle: ("undivided products are worse than divided ones", 1),
            large: (f"undivided products are worse than divided ones, by more than with {small}", 1),
        },
    )
    alike, outperformed = cards_of(
        "unscaled",
        "additive",
        {
            small: ("undivided products and additive scores are alike", 0),
            large: ("undivided products are worse than additive scores", 1),
        },
    )
    divided = ("divided products and additive scores are alike", 0)
    return [
        of_small,
        of_middle,
        *judged([of_large], scores.verdict_of_scaling(runs)),
        alike,
        *judged([outperformed], scores.verdict_of_additive(scores.minus(runs, "unscaled", "additive", large))),
        *cards_of("scaled", "additive", {small: divided, large: divided}),
    ]


def _distance(records: Records) -> list[Card]:
    runs = distance.rows(records)
    base = runs[distance.BASE]
    drops = {name: distance.dropped(row, "agreement") for name, row in runs.items()}
    better: dict[str, Claim] = {}
    falls: dict[str, Claim] = {}
    for name, row in runs.items():
        if name != distance.BASE:
            better[name] = Claim(f"with a rate of their own, {name} layers are better than attention", [row, base], -1)
        if name in distance.LONGER:
            text = f"agreement falls more with distance in {name} layers than in attention"
            falls[name] = Claim(text, [row, base], 1)
    worse = {name: paired_differences(runs[name], base, "perplexity") for name in better}
    made = compared("Layers with rates tuned alike, log perplexity minus attention's", better, worse, 3)
    of_quality: list[Card] = []
    for name, card in zip(better, made, strict=True):
        is_ruled = name in distance.BETTER
        of_quality += judged([card], distance.verdict_of_quality(name, worse)) if is_ruled else [card]
    about = "Layers by distance: points that agreement loses from near to far, minus attention's"
    more = {name: distance.minus(drops, name) for name in falls}
    of_distance = compared(about, falls, more, 1)
    said = distance.verdict_of_distance(more)
    if verdict_of(said) in (OPEN, "refuted"):  # these two the design says of all three layers together
        of_distance = judged(of_distance, said)
    return [*of_quality, *of_distance]


def _norms(records: Records) -> list[Card]:
    found = norms.perplexities(norms.runs_of(records))
    runs = norms.rows(records)
    names = {norm: name_of(norm, norms.DEEPEST, norms.SHORTEST) for norm in NORMS}
    claim = Claim(
        f"with {norms.DEEPEST} layers and {norms.SHORTEST} % of warm-up post-norm does not start, the other two do",
        [runs[name] for name in names.values()],
        ours=", ".join(f"{norm} {norms.started(found[name])} of {len(found[name])}" for norm, name in names.items()),
    )
    card = measured("Norm, depth and warm-up: runs that start", claim, NO_SEEDS, 0)
    counts = [len(found[name]) for name in names.values()]
    if not any(counts):
        return [card._replace(ours=NOT_RUN)]
    return [card._replace(seeds=shown_seeds(counts), verdict=verdict_of(norms.verdict(found)))]


def _mup(records: Records) -> list[Card]:
    runs = mup.rows(records)
    losses = mup.losses_of(mup.runs_of(records))
    claim = Claim(
        f"with muP the best rate moves by at most {mup.MOST:g}, without by more than {mup.LEAST:g}",
        list(runs.values()),
        ours=", ".join(f"{kind} {mup.shown_move(losses, kind)}" for kind in KINDS),
    )
    about = f"The best rate and the width: how far it moves from d_model {WIDTHS[0]} to {WIDTHS[-1]}"
    card = measured(about, claim, NO_SEEDS, 0)
    counts = [len(seeds) for of_row in losses.values() for seeds in of_row.values()]
    if not any(counts):
        return [card._replace(ours=NOT_RUN)]
    return [card._replace(seeds=shown_seeds(counts), verdict=verdict_of(mup.verdict(losses)))]


def _optimisers(records: Records) -> list[Card]:
    runs = optimisers.rows(records)
    base = runs[BASE]
    fewer = optimisers.minus_base(optimisers.updates_to(optimisers.curves_of(records), optimisers.target_of(records)))
    claims = {row: Claim(f"{row} gets there earlier", [runs[row], base], -1) for row in fewer}
    made = compared("Optimisers, tuned alike: updates to a loss, minus Adam's", claims, fewer, 1)
    cards: list[Card] = []
    for row, card in zip(fewer, made, strict=True):
        cards += judged([card], optimisers.verdict(row, fewer))
    return cards


def _g2p(records: Records) -> list[Card]:
    about = f"Pronunciations, {len(G2P)} languages: word errors, %"
    source = f"{number(g2p.PUBLISHED, 2)}, Ashby et al. 2021"
    runs = {"a single model": g2p.rows(records), f"an ensemble of {g2p.MEMBERS}": g2p.ensembles(records)}
    cards: list[Card] = []
    for name, of_language in runs.items():
        means = np.array(list(g2p.mean_of(g2p.word_errors(of_language)).values()))
        counts = [len(row.scored) for row in of_language.values()]
        text = f"{name} reaches the mean of the published ensembles"
        ours = number(float(means.mean()), 2) if len(means) else NOT_RUN
        card = measured(about, Claim(text, list(of_language.values()), 0, source, ours), means, 2)
        if len(means):
            card = card._replace(verdict=verdict_by_number(g2p.PUBLISHED - means))
        elif any(counts):  # some languages have run, and the mean is of all
            card = card._replace(ours="", verdict=OPEN)
        cards.append(card)
    return cards
