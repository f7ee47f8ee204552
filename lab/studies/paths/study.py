"""How far do gradients reach? Their norms by distance, and how much they fall; rule: `design.py`."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy import stats

from lab.cards.card import NEITHER, Card, Claim, Verdict, measure
from lab.drawing import curve
from lab.studies.paths.design import LAYERS, SEEDS
from lab.studies.plots import MIXERS, legend
from lab.studies.study import Column, Rows, Runs, Study, configs, count_seeds, mean, mean_cost, table
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns
from vaswani.paper.tables.trend import LEVEL
from vaswani.paper.tables.trend import shown_p_value as rounded_p
from vaswani.train.table import NOT_RUN, Table, spread

FILE = "lab/studies/paths/design.py"
ROWS = Rows(configs(FILE, LAYERS), measure="gradient_norms", seeds=SEEDS)
BASE = "attention"
NEAR = slice(1, 3)  # distances 1 and 2
FAR = slice(17, 33)
BANDS = {"1 to 2": NEAR, "17 to 32": FAR, "33 to 64": slice(33, 65), "65 to 127": slice(65, 128)}


def norms(row: RowRuns) -> Float[np.ndarray, "seeds k"]:
    """Returns the norms of each seed by distance."""
    return np.array([scored.scores["gradient_norms"] for scored in row.scored])


def falls(row: RowRuns) -> Float[np.ndarray, " seeds"]:
    """Returns by how many orders of magnitude the mean norm falls from near to far, of each seed."""
    if not row.scored:
        return np.array([])
    norms_sk = norms(row)
    return np.log10(norms_sk[:, NEAR].mean(1) / norms_sk[:, FAR].mean(1))


def mean_norm(band: slice) -> Column:
    """Shows the mean norm in a band of distances, over the seeds."""

    def cell(name: str, runs: Runs) -> str:
        row = runs[name]
        return f"{norms(row)[:, band].mean():.1e}" if row.scored else row.missing or NOT_RUN

    return cell


COLUMNS = {f"norm at distance: {name}": mean_norm(band) for name, band in BANDS.items()} | {
    "fall": lambda name, runs: spread(falls(runs[name]).tolist(), 2),
    "perplexity": mean("perplexity", 2),
    "seeds": count_seeds,
    "cost": mean_cost,
}


def p_values(runs: Runs) -> dict[str, float]:
    """Returns p of each layer's falls against attention's, by Dunnett's test; {} until every row has all its seeds."""
    of_rows = {name: falls(row) for name, row in runs.items()}
    if any(len(of_seeds) < len(SEEDS) for of_seeds in of_rows.values()):
        return {}
    base = of_rows.pop(BASE)
    found = stats.dunnett(*of_rows.values(), control=base, rng=np.random.default_rng(0))
    return dict(zip(of_rows, map(float, found.pvalue), strict=True))


def shown_p_value(p: float) -> str:
    """Returns p in two digits; Dunnett's is a numerical integral, which says nothing of digits below 1e-6."""
    return rounded_p(p) if p >= 1e-6 else "< 1e-06"


def verdict_of(name: str, runs: Runs) -> Verdict:
    """Applies the rule of the design to a layer."""
    p = p_values(runs).get(name)
    if p is None:
        return Verdict.open(f"not all of the {len(SEEDS)} seeds of each layer have run")
    if p >= LEVEL:
        return NEITHER
    more = falls(runs[name]).mean() > falls(runs[BASE]).mean()
    return Verdict.shown("they fall more than attention's") if more else Verdict.refuted("they fall less")


def tables(records: Records) -> list[Table]:
    """Compares the layers, with the verdicts in the notes."""
    runs = ROWS.find(records)
    p = p_values(runs)
    tested = [f"{name} {shown_p_value(p[name])}" for name in p]
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run",
        *(f"verdict on {name}: {verdict_of(name, runs).sentence}" for name in LAYERS if name != BASE),
        "norm: of d loss(t) / d x(s) at distance t - s; fall: log10 of that at 1 to 2 less log10 of that at 17 to 32, "
        "mean over the seeds ± standard deviation",
        *([f"fall: p by Dunnett's test against attention: {', '.join(tested)}"] if tested else []),
    ]
    return [table("paths", "How far gradients reach", "layer", COLUMNS, runs, notes)]


def cards(records: Records) -> list[Card]:
    """Claims that gradients fall more in each layer than in attention."""
    runs = ROWS.find(records)
    p = p_values(runs)
    about = "How far gradients reach: fall of their norm, in orders of magnitude, minus attention's"
    made: list[Card] = []
    for name in LAYERS:
        if name == BASE:
            continue
        count = min(len(falls(runs[name])), len(falls(runs[BASE])))
        apart = falls(runs[name])[:count] - falls(runs[BASE])[:count]
        claim = Claim(f"gradients fall more with distance in {name} layers", [runs[name], runs[BASE]], apart, 1)
        card = measure(about, claim, 2)._replace(p=shown_p_value(p[name]) if p else "")
        made.append(card.by_rule(verdict_of(name, runs)))
    return made


def plot(records: Records, path: Path) -> None:
    """Draws the norms by distance: the mean over the seeds, and between the lowest seed and the highest a band.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 6.5, 4) as figure:
        axes = figure.subplots()
        for place, (name, row) in enumerate(ROWS.find(records).items()):
            if row.scored:
                norms_sk = norms(row)[:, 1:]
                distances = np.arange(1, 1 + norms_sk.shape[1])
                # A gradient of 0 has no place on a logarithmic scale: the local layers end where they reach no further.
                curve(axes, distances, np.where(norms_sk > 0, norms_sk, np.nan), place, MIXERS[name])
        axes.set(xlabel="distance t - s", ylabel="|d loss(t) / d x(s)|", xscale="log", yscale="log")
        legend(figure, axes, 4)


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=ROWS.commands(" && python -m lab.gradients --workdir=runs/paths-ROW"),
)
