"""Do distant words matter more to some layers? Quality, and agreement by distance; rule: `design.py`."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from base.intervals import with_interval
from base.table import NOT_RUN, Table, spread
from lab.contrast.pairs import BANDS, Band, shown
from lab.contrast.sentences import RELATIONS
from lab.studies.choice import stage_1
from lab.studies.distance.design import CHOSEN, OPTIONS, SEEDS
from lab.studies.layers.design import D_FF
from paper.drawing import curve, drawn
from paper.records import Records
from paper.rows import RowRuns, caveat_notes, row_runs, run_notes, with_seeds
from paper.tables.cost import cost
from paper.tables.trend import (
    INTERVAL,
    LEVEL,
    Differences,
    differences_by_seed,
    holm,
    p_values_of,
    paired_differences,
    tested,
)

FILE = "lab/studies/distance/design.py"
BASE = "attention"
TITLE = "Self-attention and what can replace it, by distance"
LONGER = ("restricted", "recurrent", "convolution")  # whose path between far words is longer than attention's
BETTER = ("recurrent", "convolution")  # than attention, by lab/studies/layers/design.py
NEAR = BANDS[:2]
FAR = {"agreement": BANDS[3:], "particle": BANDS[3:], "it": BANDS[2:]}  # `it` is never nearer than 4 words
HEAD = (
    "layer",
    "rate",
    "perplexity",
    "log perplexity − attention",
    "sacreBLEU",
    "agreement near",
    "agreement far",
    "drop",
    "drop − attention's",
    "seeds",
    "cost",
)


def tables(records: Records) -> list[Table]:
    """Returns one row for each layer, with the verdicts in the notes; accuracies by distance; and the rates."""
    runs = rows(records)
    others = [name for name in runs if name != BASE]
    drops = {relation: {name: dropped(row, relation) for name, row in runs.items()} for relation in RELATIONS}
    more = {name: minus(drops["agreement"], name) for name in others}
    more_it = {name: minus(drops["it"], name) for name in others}
    worse = {name: paired_differences(runs[name], runs[BASE], "perplexity") for name in others}
    lines = [_line(name, row, drops["agreement"], more, worse) for name, row in runs.items()]
    notes = [
        "the design, its rule and what was expected: lab/studies/distance/design.py, committed before the first run",
        verdict_of_distance({name: more[name] for name in LONGER}),
        *(verdict_of_quality(name, worse) for name in BETTER),
        "accuracies in %: how often a right sentence is more probable than one with the verb in the wrong number, if "
        "the subject is at most 4 words away (near) or at least 8 (far); drop: near minus far",
        f"mean over the seeds, ± standard deviation; − attention, of the same seed: {INTERVAL}",
        *tested(worse, "log perplexity − attention"),
        *tested({name: more[name] for name in LONGER}, "drop of agreement − attention's"),
        *tested(more_it, "drop of `it` − attention's, 4 words against 5 and more"),
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    study = Table("distance", TITLE, HEAD, lines, notes)
    return [study, by_distance(runs), stage_1(records, study, FILE, OPTIONS, "rate", CHOSEN)]


def rows(records: Records) -> dict[str, RowRuns]:
    """Returns the runs of each layer with the rate that it chose, and the seeds of the design."""
    of_design = with_seeds(records, SEEDS)
    return {name: row_runs(of_design, f"{FILE}:{name}", "test", "contrasts") for name in D_FF}


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
    """Returns how many points a relation's accuracy falls from near to far, by the seed."""
    near, far = (accuracies(row, relation, bands) for bands in (NEAR, FAR[relation]))
    return {seed: near[seed] - far[seed] for seed in near}


def minus(drops: Mapping[str, Mapping[int, float]], name: str) -> Float[np.ndarray, " seeds"]:
    """Returns how much more a layer drops than attention, for each seed that both have."""
    return differences_by_seed(drops[name], drops[BASE])


def verdict_of_distance(more: Differences) -> str:
    """Returns what the rule says of the paper's reason, given how much more each layer drops than attention."""
    said = "verdict on distance:"
    corrected = holm(p_values_of(more))
    if not _is_complete(more) or len(corrected) < len(more):
        return f"{said} open, because attention and {', '.join(more)} need {len(SEEDS)} seeds, with near and far pairs"
    clear = [name for name, p in corrected.items() if p < LEVEL and more[name].mean() > 0]
    if len(clear) == len(more):
        return f"{said} shown; agreement drops more with each of {', '.join(more)} than with attention"
    if not any(differences.mean() > 0 for differences in more.values()):
        return f"{said} refuted; agreement drops no more with any of {', '.join(more)} than with attention"
    if clear:
        return f"{said} shown for {', '.join(clear)} alone, of which agreement drops more than with attention"
    return f"{said} neither shown nor refuted"


def verdict_of_quality(name: str, worse: Differences) -> str:
    """Returns what the rule says of whether a layer is better than attention, given each one's log perplexity."""
    said = f"verdict on {name}:"
    if not _is_complete(worse):
        return f"{said} open, because every layer needs {len(SEEDS)} seeds"
    corrected = holm(p_values_of(worse))
    if worse[name].mean() > 0:
        return f"{said} refuted; it is not better than attention"
    if corrected[name] < LEVEL:
        return f"{said} shown; it is better than attention"
    return f"{said} neither shown nor refuted"


def _is_complete(differences: Differences) -> bool:
    """Returns whether each difference from attention is of all seeds of the design."""
    return all(len(of_seeds) == len(SEEDS) for of_seeds in differences.values())


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


def _line(
    name: str, row: RowRuns, drops: Mapping[str, Mapping[int, float]], more: Differences, worse: Differences
) -> tuple[str, ...]:
    near, far = (accuracies(row, "agreement", bands) for bands in (NEAR, FAR["agreement"]))
    return (
        row.label(name),
        str(CHOSEN.get(name, "not chosen")),
        row.shown("perplexity", 3),
        with_interval(worse[name], 3) if name in worse else "",
        row.shown("sacrebleu"),
        spread(list(near.values()), 1) or NOT_RUN,
        spread(list(far.values()), 1) or NOT_RUN,
        spread(list(drops[name].values()), 1),
        with_interval(more[name], 1) if name in more else "",
        str(len(row.scored)),
        cost(row.scored),
    )


def _tick(band: Band) -> str:
    first, last = band
    return f"{first}-{last}" if last else f"{first}+"


def plot(records: Records, path: Path) -> None:
    """Draws accuracy by distance for each relation: means over the seeds, and between lowest and highest a band.

    Raises:
      UserError: the file cannot be written.
    """
    places = range(len(BANDS))
    with drawn(path, 7.5, 3.2) as figure:
        grid = figure.subplots(1, len(RELATIONS), sharey=True)
        for axes, relation in zip(grid, RELATIONS, strict=True):
            for place, (name, row) in enumerate(rows(records).items()):
                if row.scored:
                    shares = [list(accuracies(row, relation, [band]).values()) for band in BANDS]
                    curve(axes, places, np.array(shares).T, place, name, marker="o")
            axes.set(title=relation, xlabel="words to what decides it")
            axes.set_xticks(places, list(map(_tick, BANDS)))
        grid[0].set(ylabel="accuracy in %")
        if grid[0].get_legend_handles_labels()[0]:
            figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7)
