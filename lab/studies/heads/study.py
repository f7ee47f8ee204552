"""Do several heads average less than one? Entropies of attention weights by the number of heads; rule: `design.py`."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy import stats

from lab.cards.card import NEITHER, Card, Claim, Verdict, measure
from lab.studies.heads.design import BASE, OTHERS_SEEDS, PLACES, ROWS, SEEDS
from lab.studies.plots import draw_seeds
from lab.studies.study import Column, Rows, Runs, Study, configs, count_seeds, mean, mean_cost, table
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns
from vaswani.paper.tables.trend import LEVEL, shown_p_value
from vaswani.train.table import NOT_RUN, Table, number, spread

FILE = "lab/studies/heads/design.py"
RUNS = Rows(configs(FILE, ROWS), measure="head_entropy", seeds=SEEDS)
ALONE = {"1-64": "as wide as all eight together", "1-8": "with keys as wide as base's"}  # rows of one head
NAMES = {"encoder": "encoder", "decoder": "decoder", "cross": "attention to the encoder"}


def entropies(row: RowRuns, place: str) -> Float[np.ndarray, " seeds"]:
    """Returns the mean entropy of a place's heads, in bits, of each seed."""
    return np.array([np.mean(scored.scores["head_entropy"][place]["heads"]) for scored in row.scored])


def mean_bits(place: str) -> Column:
    """Shows the entropy in a place, and in brackets how many positions a head averages."""

    def cell(name: str, runs: Runs) -> str:
        bits = entropies(runs[name], place)
        if not len(bits):
            return runs[name].missing or NOT_RUN
        return f"{spread(bits.tolist(), 2)} ({number(2 ** bits.mean(), 1)})"

    return cell


COLUMNS = {NAMES[place]: mean_bits(place) for place in PLACES} | {
    "perplexity": mean("perplexity", 2),
    "seeds": count_seeds,
    "cost": mean_cost,
}


def p_values(place: str, runs: Runs) -> dict[str, float]:
    """Returns p of each row of one head against base, by Dunnett's test, times the three places.

    {} until they and base have all their seeds.
    """
    base = entropies(runs[BASE], place)
    alone = [entropies(runs[name], place) for name in ALONE]
    if len(base) < len(SEEDS) or any(len(of_row) < len(OTHERS_SEEDS) for of_row in alone):
        return {}
    found = stats.dunnett(*alone, control=base, rng=np.random.default_rng(0))
    return {name: min(1.0, len(PLACES) * float(p)) for name, p in zip(ALONE, found.pvalue, strict=True)}


def shown(p: float) -> str:
    """Returns p in two digits; Dunnett's is a numerical integral, which says nothing of digits below 0.001."""
    return shown_p_value(p) if p >= 1e-3 else "below 0.001"


def welch(name: str, place: str, runs: Runs) -> float:
    """Returns p of a row against base by Welch's test, which shares no variance between them, times three places."""
    found = stats.ttest_ind(entropies(runs[name], place), entropies(runs[BASE], place), equal_var=False)
    return min(1.0, len(PLACES) * float(found.pvalue))


def verdict_of(name: str, place: str, runs: Runs) -> Verdict:
    """Applies the rule of the design to a row of one head."""
    p = p_values(place, runs).get(name)
    if p is None:
        return Verdict.open("not all seeds of base and of the rows of one head have run")
    if p >= LEVEL:
        return NEITHER
    more = entropies(runs[name], place).mean() > entropies(runs[BASE], place).mean()
    return Verdict.shown("it averages more positions") if more else Verdict.refuted("it averages fewer")


def tables(records: Records) -> list[Table]:
    """Shows the entropies of each row, with the verdicts in the notes."""
    runs = RUNS.find(records)
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run",
        "rows are h-d_k; entropy of attention weights in bits, mean over heads, layers, queries and seeds ± standard "
        "deviation over the seeds, in brackets 2 to its power: the positions that a head averages",
    ]
    if runs[BASE].scored:
        measured = runs[BASE].scored[0].scores["head_entropy"]
        uniform = ", ".join(f"{NAMES[place]} {number(measured[place]['uniform'])}" for place in PLACES)
        notes.append(f"uniform weights would have: {uniform}")
    for name in ALONE:
        for place in PLACES:
            p = p_values(place, runs).get(name)
            p_note = "" if p is None else f"; p {shown(p)}, by Welch's test {shown_p_value(welch(name, place, runs))}"
            notes.append(f"{name}, {NAMES[place]}: {verdict_of(name, place, runs).sentence}{p_note}")
    notes.append("p: Dunnett's test of both against base, which is the rule; Welch's is not; both times three places")
    return [table("heads", "How many positions a head averages", "row", COLUMNS, runs, notes)]


def cards(records: Records) -> list[Card]:
    """Claims that a head which is alone averages over more positions than one of base's eight."""
    runs = RUNS.find(records)
    made: list[Card] = []
    for name, keys in ALONE.items():
        for place in PLACES:
            about = "How many positions a head averages: entropy in bits, minus that of eight heads"
            of_row = entropies(runs[name], place)
            apart = of_row - entropies(runs[BASE], place)[: len(of_row)] if runs[BASE].scored else np.array([])
            claim = Claim(f"{NAMES[place]}: one head averages more, {keys}", [runs[name], runs[BASE]], apart, 1)
            p = p_values(place, runs).get(name)
            card = measure(about, claim, 2)._replace(p="" if p is None else shown(p))
            made.append(card.by_rule(verdict_of(name, place, runs)))
    return made


def plot(records: Records, path: Path) -> None:
    """Draws the entropy of every seed by the number of heads, a panel for each place.

    Raises:
      UserError: the file cannot be written.
    """
    runs = RUNS.find(records)
    with figure_file(path, 7.5, 2.8) as figure:
        for axes, place in zip(figure.subplots(1, len(PLACES)), PLACES, strict=True):
            for name, row in runs.items():
                heads = int(name.partition("-")[0])
                of_table_3 = name != "1-8"
                draw_seeds(axes, np.log2(heads), entropies(row, place).tolist(), colour(0 if of_table_3 else 1))
            if runs[BASE].scored:
                uniform = runs[BASE].scored[0].scores["head_entropy"][place]["uniform"]
                axes.axhline(uniform, color="grey", linestyle="--")
            axes.set(title=NAMES[place], xlabel="heads", ylabel="bits" if place == PLACES[0] else "", ylim=(0, None))
            axes.set_xticks((0, 2, 3, 4), ("1", "4", "8", "16"))


STUDY = Study(
    rows=RUNS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=RUNS.commands(" && python -m lab.studies.heads.measure --workdir=runs/heads-ROW"),
)
