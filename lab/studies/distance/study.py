"""Do distant words matter more to some layers? Quality, and agreement by distance; rule: `design.py`."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from lab.cards.card import NEITHER, OPEN, Card, Claim, Verdict, between, compare
from lab.contrast.pairs import BANDS, Band, shown
from lab.contrast.sentences import RELATIONS
from lab.drawing import curve
from lab.studies.choice import stage_1
from lab.studies.distance.design import CHOSEN, OPTIONS, SEEDS, STEPS
from lab.studies.layers.design import D_FF
from lab.studies.plots import MIXERS, legend
from lab.studies.study import (
    Column,
    Rows,
    Runs,
    Study,
    chosen,
    configs,
    count_seeds,
    differences,
    mean,
    mean_cost,
    minus,
    repeats,
    table,
)
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns
from vaswani.paper.tables.trend import INTERVAL, LEVEL, Differences, differences_by_seed, holm, p_values_of, tested
from vaswani.train.intervals import with_interval
from vaswani.train.table import NOT_RUN, Table, spread

FILE = "lab/studies/distance/design.py"
ROWS = Rows(configs(FILE, D_FF), measure="contrasts", seeds=SEEDS)
BASE = "attention"
TITLE = "Self-attention and what can replace it, by distance"
LONGER = ("restricted", "recurrent", "convolution")  # whose path between far words is longer than attention's
BETTER = ("recurrent", "convolution")  # than attention, by lab/studies/layers/design.py
NEAR = BANDS[:2]
FAR = {"agreement": BANDS[3:], "particle": BANDS[3:], "it": BANDS[2:]}  # `it` is never nearer than 4 words


def accuracies(row: RowRuns, relation: str, bands: Sequence[Band]) -> dict[int, float]:
    """Returns the share of right pairs of these bands together, in per cent, by the seed; NaN where it has no pair."""
    shares: dict[int, float] = {}
    for scored in row.scored:
        cases = 0
        right = 0
        for cell in scored.scores["contrasts"]:
            if cell["relation"] == relation and tuple(cell["words"]) in bands:
                cases += cell["cases"]
                right += cell["right"]
        shares[scored.run.config["seed"]] = 100 * right / cases if cases else np.nan
    return shares


def dropped(row: RowRuns, relation: str) -> dict[int, float]:
    """Subtracts the accuracy of a relation far from that near, by the seed."""
    near, far = (accuracies(row, relation, bands) for bands in (NEAR, FAR[relation]))
    return {seed: near[seed] - far[seed] for seed in near}


def more(runs: Runs, name: str, relation: str = "agreement") -> Float[np.ndarray, " seeds"]:
    """Subtracts attention's drop from a layer's, for each seed that both have."""
    return differences_by_seed(dropped(runs[name], relation), dropped(runs[BASE], relation))


def mean_accuracy(bands: Sequence[Band]) -> Column:
    """Shows the accuracy of agreement in these bands."""
    return lambda name, runs: spread(list(accuracies(runs[name], "agreement", bands).values()), 1) or NOT_RUN


COLUMNS = {
    "rate": chosen(CHOSEN),
    "perplexity": mean("perplexity", 3),
    "log perplexity − attention": minus(BASE, "perplexity", 3),
    "sacreBLEU": mean("sacrebleu"),
    "agreement near": mean_accuracy(NEAR),
    "agreement far": mean_accuracy(FAR["agreement"]),
    "drop": lambda name, runs: spread(list(dropped(runs[name], "agreement").values()), 1),
    "drop − attention's": lambda name, runs: "" if name == BASE else with_interval(more(runs, name), 1),
    "seeds": count_seeds,
    "cost": mean_cost,
}

TITLES = {"agreement": "a verb's number", "particle": "a verb's particle", "it": "a pronoun's gender"}


def tables(records: Records) -> list[Table]:
    """Compares the layers, with the verdicts in the notes; accuracies by distance; and the rates."""
    runs = ROWS.find(records)
    worse = differences(runs, BASE, "perplexity")
    drops_more = {name: more(runs, name) for name in LONGER}
    more_of_it = {name: more(runs, name, "it") for name in worse}
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run",
        f"verdict on distance: {verdict_of_distance(drops_more).sentence}",
        *(f"verdict on {name}: {verdict_of_quality(name, worse).sentence}" for name in BETTER),
        "accuracies in %: how often a right sentence is more probable than one with the verb in the wrong number, if "
        "the subject is at most 4 words away (near) or at least 8 (far); drop: near minus far",
        f"mean over the seeds, ± standard deviation; − attention, of the same seed: {INTERVAL}",
        *tested(worse, "log perplexity − attention"),
        *tested(drops_more, "drop of agreement − attention's"),
        *tested(more_of_it, "drop of `it` − attention's, 4 words against 5 and more"),
    ]
    study = table("distance", TITLE, "layer", COLUMNS, runs, notes)
    return [study, by_distance(runs), stage_1(records, study, FILE, OPTIONS, "rate", CHOSEN)]


def verdict_of_distance(more: Differences) -> Verdict:
    """Judges the paper's reason, given how much more each layer drops than attention."""
    corrected = holm(p_values_of(more))
    names = ", ".join(more)
    if not _is_complete(more) or len(corrected) < len(more):
        return Verdict.open(f"attention and {names} need {len(SEEDS)} seeds, with near and far pairs")
    clear = [name for name, p in corrected.items() if p < LEVEL and more[name].mean() > 0]
    if len(clear) == len(more):
        return Verdict.shown(f"agreement drops more with each of {names} than with attention")
    if not any(differences.mean() > 0 for differences in more.values()):
        return Verdict.refuted(f"agreement drops no more with any of {names} than with attention")
    if clear:
        what = f"for {', '.join(clear)} alone, of which agreement drops more than with attention"
        return Verdict("shown", f"shown {what}")
    return NEITHER


def verdict_of_quality(name: str, worse: Differences) -> Verdict:
    """Judges whether a layer is better than attention, given each one's log perplexity minus attention's."""
    if not _is_complete(worse):
        return Verdict.open(f"every layer needs {len(SEEDS)} seeds")
    corrected = holm(p_values_of(worse))
    if worse[name].mean() > 0:
        return Verdict.refuted(f"it is not better than attention after {STEPS} updates")
    if corrected[name] < LEVEL:
        return Verdict.shown(f"it is better than attention after {STEPS} updates")
    return NEITHER


def _is_complete(differences: Differences) -> bool:
    """Tells whether each difference from attention is of all seeds of the design."""
    return all(len(of_seeds) == len(SEEDS) for of_seeds in differences.values())


def cards(records: Records) -> list[Card]:
    """Claims that every layer is better than attention, and that agreement falls more in those of longer paths."""
    runs = ROWS.find(records)
    worse = differences(runs, BASE, "perplexity")
    better: list[Claim] = []
    for name in worse:
        text = f"with a rate of their own, {name} layers are better than attention after {STEPS} updates"
        better.append(between(text, runs[name], runs[BASE], "perplexity", -1))
    made = compare("Layers with rates tuned alike, log perplexity minus attention's", better, 3)
    for place, name in enumerate(worse):
        if name in BETTER:
            made[place] = made[place].by_rule(verdict_of_quality(name, worse))
    falls: list[Claim] = []
    for name in LONGER:
        text = f"agreement falls more with distance in {name} layers than in attention"
        falls.append(Claim(text, [runs[name], runs[BASE]], more(runs, name), 1))
    about = "Layers by distance: points that agreement loses from near to far, minus attention's"
    of_distance = compare(about, falls, 1)
    rule = verdict_of_distance({name: more(runs, name) for name in LONGER})
    if rule.word in (OPEN, "refuted"):  # these two the design says of all three layers together
        of_distance = [card.by_rule(rule) for card in of_distance]
    return [*made, *of_distance]


def by_distance(runs: Mapping[str, RowRuns]) -> Table:
    """Returns the accuracy of each layer by what is wrong and how far what decides it is."""
    lines: list[tuple[str, ...]] = []
    for relation, band in itertools.product(RELATIONS, BANDS):
        cells = [spread(list(accuracies(row, relation, [band]).values()), 1) or NOT_RUN for row in runs.values()]
        if all(text.startswith("nan") for text in cells):
            continue
        lines.append((relation, shown(band), *cells))
    wrong = "; ".join(f"{relation}: {what}" for relation, what in RELATIONS.items())
    notes = [f"accuracy in %, mean over the seeds ± standard deviation; what is wrong: {wrong}"]
    return Table("distance-accuracies", f"{TITLE}: accuracies", ("relation", "words", *runs), lines, notes)


def _tick(band: Band) -> str:
    first, last = band
    return f"{first}-{last}" if last else f"{first}+"


def plot(records: Records, path: Path) -> None:
    """Draws accuracy by distance for each relation: means over the seeds, and between lowest and highest a band.

    Raises:
      UserError: the file cannot be written.
    """
    places = range(len(BANDS))
    with figure_file(path, 7.5, 3.2) as figure:
        grid = figure.subplots(1, len(RELATIONS), sharey=True)
        for axes, relation in zip(grid, RELATIONS, strict=True):
            for place, (name, row) in enumerate(ROWS.find(records).items()):
                if row.scored:
                    shares = [list(accuracies(row, relation, [band]).values()) for band in BANDS]
                    curve(axes, places, np.array(shares).T, place, MIXERS[name], marker="o")
            axes.set(title=TITLES[relation], xlabel="words to what decides it")
            axes.set_xticks(places, list(map(_tick, BANDS)))
        grid[0].set(ylabel="accuracy in %")
        legend(figure, grid[0], 5)


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=repeats("distance", ROWS.configs, SEEDS[0]),
)
