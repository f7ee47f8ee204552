"""Scaling laws: L(N, D) = E + A N^-a + B D^-b fitted to small runs (Hoffmann et al. 2022, arXiv 2203.15556, eq. 2).

N is the number of parameters without the embeddings, D the number of tokens trained on. The largest model with the most
data is left out of the fit, and predicted. There are two designs, the second with more text (design.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from scipy.optimize import least_squares

from lab.cards.card import NO_SEEDS, OPEN, Card, Claim, Verdict, measure, met, shown_mean, shown_seeds
from lab.studies.scaling.design import LONG_ROWS, MOST_NATS, ROWS, TEST_SENTENCES
from lab.studies.study import Rows, Runs, Study, configs, count_seeds, mean, mean_cost, table
from vaswani.model.parameter_count import parameter_count
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import load
from vaswani.tasks.config import model_config
from vaswani.train.table import NOT_RUN, Table, number, spread

FILE = "lab/studies/scaling/design.py"
ABOUT = "Scaling laws, nats a token"
STEEPEST = 2.0  # the largest exponent that a fit may have: a few cells alone do not bound it
STARTS = ((0.3, 0.3), (0.1, 1.0), (1.0, 0.1))  # a and b from which the fit begins; the best end is taken
DRAWS = 500
FITTED = ("E", "A", "a", "B", "b", "N_opt grows with FLOPs to the power of")
SEEDS = 3
FIRST = Rows(configs(FILE, ROWS), measure="nll_by_position", seeds=range(SEEDS))
LONG = FIRST._replace(configs=configs(FILE, LONG_ROWS))
NEAR = 0.9  # of the bound that the grammar sets: the upper end of E's interval must reach that much
NONE = 1e-3  # nats: an E below it is none, since the fit stays a little above its bound of 0
FEWEST = 8  # runs that a fit of five numbers needs at least
LEAST_FLOPS = 4e9  # 6 N D of the smallest cell, about
DOUBLINGS = 11  # from it to the largest cell, about


class Points(NamedTuple):
    """Runs: parameters, tokens, and nats a token of the test set."""

    n: Float[np.ndarray, " runs"]
    d: Float[np.ndarray, " runs"]
    nll: Float[np.ndarray, " runs"]


class Fitted(NamedTuple):
    """The law's five numbers, the power in `FITTED`, and the loss of the largest row: best, and 95 % intervals."""

    runs: int
    best: Float[np.ndarray, " seven"]
    low: Float[np.ndarray, " seven"]
    high: Float[np.ndarray, " seven"]


def fit(points: Points, starts: Sequence[tuple[float, float]] = STARTS) -> Float[np.ndarray, " five"]:
    """Returns E, A, a, B and b with the least squared relative error; E and the exponents are not negative.

    The search is over E, log A, a, log B and b, with A and B per mean size and amount of text, where both terms are of
    the size of the loss; it begins with every pair of exponents of `starts`.
    """
    unit_n = np.exp(np.log(points.n).mean())
    unit_d = np.exp(np.log(points.d).mean())
    log_n = np.log(points.n / unit_n)
    log_d = np.log(points.d / unit_d)

    def terms(law: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, log_a, a, log_b, b = law
        return np.exp(log_a - a * log_n), np.exp(log_b - b * log_d)

    def errors(law: np.ndarray) -> np.ndarray:
        size_term, text_term = terms(law)
        return (law[0] + size_term + text_term) / points.nll - 1

    def slopes(law: np.ndarray) -> np.ndarray:
        size_term, text_term = terms(law)
        columns = [np.ones_like(size_term), size_term, -size_term * log_n, text_term, -text_term * log_d]
        return np.stack(columns, axis=1) / points.nll[:, None]

    lowest = [0, -np.inf, 0, -np.inf, 0]
    highest = [np.inf, np.inf, STEEPEST, np.inf, STEEPEST]
    third = points.nll.min() / 3  # of the loss to each term
    ends = []
    for a, b in starts:
        start = (third, np.log(third), a, np.log(third), b)
        with np.errstate(over="ignore"):  # an error too large to square is worse than any, so the step is shortened
            ends.append(least_squares(errors, start, jac=slopes, bounds=(lowest, highest)))
    e, log_a, a, log_b, b = min(ends, key=lambda end: end.cost).x
    return np.array([e, np.exp(log_a) * unit_n**a, a, np.exp(log_b) * unit_d**b, b])


def predicted(law: Float[np.ndarray, " five"], n: np.ndarray | float, d: np.ndarray | float) -> np.ndarray:
    """Returns L(N, D)."""
    e, big_a, a, big_b, b = law
    return np.asarray(e + big_a * n**-a + big_b * d**-b)


def bootstrapped(points: Points, draws: int = DRAWS) -> Float[np.ndarray, "draws five"]:
    """Returns the fits to as many draws of the cells, with replacement, each cell with all of its runs.

    A cell is a size and an amount of text. Seeds of one cell say nothing of how far the law is off there, so to redraw
    runs would take that error for noise.
    """
    generator = np.random.default_rng(0)
    sizes = sorted({*zip(points.n, points.d, strict=True)})
    cells = [np.flatnonzero((points.n == n) & (points.d == d)) for n, d in sizes]
    fits: list[np.ndarray] = []
    for _ in range(draws):
        chosen = generator.integers(len(cells), size=len(cells))
        runs = np.concatenate([cells[place] for place in chosen])
        fits.append(fit(Points(*(axis[runs] for axis in points)), STARTS[:1]))
    return np.array(fits)


def gathered(runs: Runs) -> Points:
    """Returns every scored run of these rows."""
    points: list[tuple[float, float, float]] = []
    for name, row in runs.items():
        n, d = size(name)
        points += [(n, d, nll) for nll in row.values("nll")]
    return Points(*np.array(points, float).reshape(-1, 3).T)


def learned_from(runs: Runs) -> Points:
    """Returns the scored runs that the law is fitted to: all but those of the largest row, which is the last."""
    *others, _ = runs
    return gathered({name: runs[name] for name in others})


def size(name: str) -> tuple[int, int]:
    """Returns N and D of a row."""
    cfg = load(f"{FILE}:{name}")
    config = model_config(cfg, cfg.data.vocab_size)
    inside = parameter_count(config, decoder_only=True) - config.vocab_size * config.d_model
    return inside, cfg.steps * cfg.data.tokens_per_batch


def tables(records: Records) -> list[Table]:
    """Shows of each design every run's loss, and the law with the prediction of the largest."""
    first = FIRST.find(records)
    long = LONG.find(records)
    law_of_long = fitted(long)
    found = law_table(long, law_of_long, "scaling-long-law", "Scaling, with more text: the law L = E + A/N^a + B/D^b")
    found.notes.append(f"verdict on E: {verdict_on_floor(long, law_of_long).sentence}")
    notes = [
        "row: width and updates; nats a token of the test set, mean over the seeds ± standard deviation",
        "second half: of the tokens in the second half of each row of 64, which are read with something before them",
    ]
    return [
        table("scaling", "Scaling: runs", "row", COLUMNS, first, notes),
        law_table(first, fitted(first), "scaling-law", "Scaling: the law L = E + A/N^a + B/D^b"),
        table("scaling-long", "Scaling, with more text: runs", "row", COLUMNS, long, notes),
        found,
    ]


def second_half(name: str, runs: Runs) -> str:
    """Shows the mean over the positions of the second half of a row of tokens."""
    by_position = [seed.scores["nll_by_position"] for seed in runs[name].scored]
    return spread([float(np.mean(nll[len(nll) // 2 :])) for nll in by_position], 3)


COLUMNS = {
    "parameters without embeddings": lambda name, runs: f"{size(name)[0]:,}",
    "tokens": lambda name, runs: f"{size(name)[1]:,}",
    "nats a token": mean("nll", 3),
    "second half": second_half,
    "seeds": count_seeds,
    "cost": mean_cost,
}


def fitted(runs: Runs) -> Fitted | None:
    """Returns the fit without the largest row, which is the last, and what it predicts for it; None of too few runs."""
    points = learned_from(runs)
    if len(points.n) < FEWEST:
        return None
    *_, largest = runs
    n, d = size(largest)

    def followed(law: np.ndarray) -> np.ndarray:
        """Returns the law's five numbers and the two that follow from them."""
        _, _, a, _, b = law
        return np.array([*law, b / (a + b), predicted(law, n, d)])

    draws = np.array([followed(law) for law in bootstrapped(points)])
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    return Fitted(len(points.n), followed(fit(points)), low, high)


def law_table(runs: Runs, law: Fitted | None, name: str, title: str) -> Table:
    """Returns the fit without the largest row, with 95 % intervals, and what it predicts for that row."""
    *_, left_out = runs
    head = ("number", "fitted", "2.5 %", "97.5 %", "measured", "error")
    numbers = [*FITTED, f"nats a token of {left_out}"]
    if law is None:
        return Table(name, title, head, [(one, NOT_RUN, "", "", "", "") for one in numbers], [])
    largest = runs[left_out]
    measured = [""] * len(numbers)
    errors = [""] * len(numbers)
    measured[-1] = largest.shown("nll", 3)
    if largest.scored:
        off = law.best[-1] / float(np.mean(largest.values("nll"))) - 1
        errors[-1] = f"{number(100 * off, 1, sign=True)} %"
    best = map(rounded, law.best)
    low = map(rounded, law.low)
    high = map(rounded, law.high)
    lines = list(zip(numbers, best, low, high, measured, errors, strict=True))
    notes = [
        f"fitted to {law.runs} runs, without {left_out}, by least squared relative error, with E >= 0; "
        f"intervals: {DRAWS} draws of the cells with replacement, each with all of its seeds",
        "N_opt: the model size that is best for a number of operations, 6 N D; the exponent is b / (a + b)",
    ]
    return Table(name, title, head, lines, notes)


def verdict_on_floor(runs: Runs, law: Fitted | None) -> Verdict:
    """Judges whether the law finds a floor, by the rule of the second design."""
    if not any(row.scored for row in runs.values()):
        return Verdict(NOT_RUN, NOT_RUN)
    if law is None or not is_complete(runs):
        return Verdict(OPEN, f"open; the design has {SEEDS} seeds of each cell")
    bound = most_nats(runs)
    word = "shown" if law.low[0] > NONE and law.high[0] >= NEAR * bound else "refuted"
    return Verdict(word, f"{word}; the grammar's own entropy is at most {rounded(bound)}")


def most_nats(runs: Runs) -> float:
    """Returns the bound on the grammar's own entropy (`lab.entropy`), in nats a token of these runs.

    It is of a text from its beginning; that rows are scored without what is before them adds to E.
    """
    tokens = [count for row in runs.values() for count in row.values("tokens")]
    return MOST_NATS * TEST_SENTENCES / tokens[0]


def is_complete(runs: Runs) -> bool:
    """Tells whether every cell has all of its seeds."""
    return all(len(row.scored) >= SEEDS for row in runs.values())


def rounded(value: float) -> str:
    """Formats a number of the law with three digits."""
    return f"{round(value, 6):.3g}"


def cards(records: Records) -> list[Card]:
    """Claims that the laws predict the largest model, and that the second finds a floor."""
    first = FIRST.find(records)
    long = LONG.find(records)
    law_of_long = fitted(long)
    best = NO_SEEDS if law_of_long is None else law_of_long.best[:1]
    floor = measure(ABOUT, Claim("the law finds a floor (with more text)", list(long.values()), best), 3)
    if law_of_long is not None:
        floor = floor._replace(
            ours=f"E = {rounded(law_of_long.best[0])}",
            interval=f"{rounded(law_of_long.low[0])} to {rounded(law_of_long.high[0])}",
            seeds=shown_seeds([len(row.scored) for row in long.values()]),
        )
    floor = floor._replace(verdict=verdict_on_floor(long, law_of_long).word)
    return [_prediction(first, fitted(first)), _prediction(long, law_of_long), floor]


def _prediction(runs: Runs, law: Fitted | None) -> Card:
    """Makes the card of what the law, fitted to all rows but the last, predicts for that one."""
    *others, left_out = runs
    largest = runs[left_out]
    losses = np.array(largest.values("nll"))
    text = f"the law, fitted without {left_out}, predicts its loss"
    rows = [largest, *(runs[name] for name in others)]
    card = measure(ABOUT, Claim(text, rows, losses, ours=shown_mean(largest, "nll", 3)), 3)._replace(interval="")
    if not len(losses):
        return card
    if law is None or not is_complete(runs):
        return card._replace(verdict=OPEN)
    best, low, high = (numbers[-1] for numbers in (law.best, law.low, law.high))
    return card._replace(
        ours=f"{card.ours}; predicted {rounded(best)}",
        interval=f"{rounded(low)} to {rounded(high)}",
        verdict=met(low <= losses.mean() <= high),
    )


def plot(records: Records, path: Path) -> None:
    """Draws loss over N for each number of operations 6 N D, runs as points and the law as lines, into a file.

    The law is the one that is judged: it is fitted without the largest row, whose runs are drawn all the same.
    A panel for each design; in the second a dotted line is the bound that the grammar sets.

    Raises:
      UserError: the file cannot be written.
    """
    first = FIRST.find(records)
    long = LONG.find(records)
    with figure_file(path, 9, 4) as figure:
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        left.set_ylabel("nats a token")
        left.set_title("four amounts of text")
        right.set_title("and two larger ones")
        if any(row.scored for row in long.values()):
            right.axhline(most_nats(long), color="black", linestyle=":", linewidth=0.8)
        by_label: dict[str, Any] = {}  # of both panels, each once
        for axes, runs in ((left, first), (right, long)):
            axes.set(xscale="log", xlabel="parameters without embeddings, N")
            learned = learned_from(runs)
            if len(learned.n) >= FEWEST:
                draw_law(axes, gathered(runs), fit(learned))
            lines, _ = axes.get_legend_handles_labels()
            by_label |= {line.get_label(): line for line in lines}
        if by_label:
            figure.legend(by_label.values(), by_label.keys(), loc="outside lower center", ncols=5, fontsize=6)


def draw_law(axes: Any, points: Points, law: Float[np.ndarray, " five"]) -> None:
    """Draws runs as points and the law as lines, a colour for each number of operations."""
    flops = 6 * points.n * points.d
    most = 1.1 * points.nll.max()  # far above it is no run, and the law would hide where they are
    doublings = np.round(np.log2(flops / LEAST_FLOPS)).astype(int)  # so a line is of operations within sqrt(2) of it
    for doubling in np.unique(doublings):
        mine = doublings == doubling
        budget = LEAST_FLOPS * 2.0**doubling
        n = np.geomspace(points.n.min(), points.n.max(), 100)
        shade = colormaps["viridis"](doubling / DOUBLINGS)
        axes.plot(points.n[mine], points.nll[mine], "o", color=shade, label=_operations(budget))
        nll = predicted(law, n, budget / (6 * n))
        axes.plot(n[nll <= most], nll[nll <= most], color=shade, linewidth=0.8)


def _operations(count: float) -> str:
    digit, exponent = f"{count:.0e}".split("e")
    return rf"${digit} \cdot 10^{{{int(exponent)}}}$ operations"


STUDY = Study(
    rows=FIRST.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=[*FIRST.commands(), *LONG.commands()],
)
