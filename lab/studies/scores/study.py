"""Why divide by sqrt(d_k)? Scaled, unscaled and additive scores, judged by the rule of `design.py`."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from lab.cards.card import MARGIN, NEITHER, Card, Verdict, between, compare
from lab.studies.choice import stage_1
from lab.studies.plots import legend
from lab.studies.scores.design import CHOSEN, RATES
from lab.studies.scores.design import ROWS as NAMES
from lab.studies.study import Column, Rows, Runs, Study, chosen, configs, count_seeds, mean, mean_cost, stages, table
from lab.studies.two_stages import SEEDS
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.records import Records
from vaswani.paper.tables.trend import INTERVAL, by_seed, differences_by_seed, paired_differences, tested
from vaswani.train.intervals import half_interval, with_interval
from vaswani.train.table import Table, number

FILE = "lab/studies/scores/design.py"
ROWS = Rows(configs(FILE, NAMES), seeds=SEEDS)
SMALL, LARGE = 8, 128  # the values of d_k that the rule compares
TITLE = "Scores of queries and keys"
QUERIES, KEYS = 2_000, 16  # of the table of footnote 4


def minus_kind(other: str) -> Column:
    """Shows the log perplexity minus that of another kind with the same d_k."""

    def cell(name: str, runs: Runs) -> str:
        kind, _, width = name.partition("-")
        return "" if kind == other else with_interval(minus(runs, kind, other, int(width)), 3)

    return cell


COLUMNS = {
    "rate": chosen(CHOSEN),
    "perplexity": mean("perplexity", 3),
    "log perplexity − scaled": minus_kind("scaled"),
    "log perplexity − unscaled": minus_kind("unscaled"),
    "sacreBLEU": mean("sacrebleu"),
    "seeds": count_seeds,
    "cost": mean_cost,
}

LABELS = {
    "scaled": r"dot products / $\sqrt{d_k}$ (the paper)",
    "unscaled": "dot products, not divided",
    "additive": "additive",
}


def tables(records: Records) -> list[Table]:
    """Compares the kinds of scores by d_k, with the verdicts in the notes; the rates; and footnote 4."""
    runs = ROWS.find(records)
    worse = {f"unscaled-{width}": minus(runs, "unscaled", "scaled", width) for width in widths("unscaled")}
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run",
        f"verdict on scaling: {verdict_of_scaling(runs).sentence}",
        f"verdict on additive scores: {verdict_of_additive(runs).sentence}",
        f"mean over the seeds, ± standard deviation; differences, with the same d_k and seed: {INTERVAL}",
        *tested(worse, "log perplexity − scaled"),
    ]
    study = table("scores", TITLE, "scores and d_k", COLUMNS, runs, notes)
    return [study, stage_1(records, study, FILE, dict.fromkeys(NAMES, RATES), "rate", CHOSEN), footnote_4()]


def footnote_4() -> Table:
    """Shows the size of the softmax's gradient, and its largest weight, if queries and keys are as footnote 4 says.

    Their components are drawn from N(0, 1). The gradient is the Jacobian diag(p) - p p^T of the weights p by the
    logits; its size is the Frobenius norm.
    """
    rng = np.random.default_rng(0)
    lines: list[tuple[str, ...]] = []
    for width in (8, 32, 128, 512):
        q_tk = rng.standard_normal((QUERIES, width))
        k_tsk = rng.standard_normal((QUERIES, KEYS, width))
        products_ts = np.einsum("tk,tsk->ts", q_tk, k_tsk)
        shown: list[str] = []
        for logits_ts in (products_ts / np.sqrt(width), products_ts):
            largest, gradient = _of_softmax(logits_ts)
            shown += [number(largest, 3), number(gradient, 3)]
        lines.append((str(width), number(float(products_ts.std()), 1), *shown))
    head = (
        "d_k",
        "standard deviation of q k",
        "scaled: largest weight",
        "scaled: size of the gradient",
        "unscaled: largest weight",
        "unscaled: size of the gradient",
    )
    notes = [
        f"computed, not trained: means over {QUERIES:,} queries of {KEYS} keys, with components from N(0, 1); the "
        "gradient is the softmax's Jacobian, its size the Frobenius norm"
    ]
    return Table("scores-footnote-4", f"{TITLE}: the softmax under footnote 4's assumption", head, lines, notes)


def _of_softmax(logits_ts: Float[np.ndarray, "t s"]) -> tuple[float, float]:
    """Returns the mean of the largest weight, and of the size of the Jacobian."""
    shifted_ts = logits_ts - logits_ts.max(axis=1, keepdims=True)
    weights_ts = np.exp(shifted_ts)
    weights_ts /= weights_ts.sum(axis=1, keepdims=True)
    diagonal_tss = weights_ts[:, :, None] * np.eye(logits_ts.shape[1])[None]
    jacobian_tss = diagonal_tss - weights_ts[:, :, None] * weights_ts[:, None]
    sizes_t = np.sqrt(np.sum(jacobian_tss**2, axis=(1, 2)))
    return float(weights_ts.max(axis=1).mean()), float(sizes_t.mean())


def widths(kind: str) -> list[int]:
    """Lists the values of d_k that a kind of scores has."""
    return [int(name.partition("-")[2]) for name in NAMES if name.startswith(f"{kind}-")]


def verdict_of_scaling(runs: Runs) -> Verdict:
    """Judges how much worse unscaled products are with the large and the small d_k."""
    large = minus(runs, "unscaled", "scaled", LARGE)
    more = differences_by_seed(_worse(runs, LARGE), _worse(runs, SMALL))
    half_large = half_interval(large)
    half_more = half_interval(more)
    if half_large is None or half_more is None or min(len(large), len(more)) < len(SEEDS):
        return Verdict.open(f"scaled and unscaled products need {len(SEEDS)} seeds with each d_k")
    if large.mean() <= 0:
        return Verdict.refuted(f"with a d_k of {LARGE} unscaled products are no worse")
    if large.mean() > half_large and more.mean() > half_more:
        what = f"unscaled products are worse with a d_k of {LARGE}, and by more than with {SMALL}"
        return Verdict.shown(what)
    return NEITHER


def verdict_of_additive(runs: Runs) -> Verdict:
    """Judges how much worse unscaled products are than additive scores with the large d_k."""
    worse = minus(runs, "unscaled", "additive", LARGE)
    half = half_interval(worse)
    if half is None or len(worse) < len(SEEDS):
        return Verdict.open(f"additive scores and unscaled products need {len(SEEDS)} seeds with a d_k of {LARGE}")
    if worse.mean() <= 0:
        return Verdict.refuted(f"with a d_k of {LARGE} they do not outperform unscaled products")
    if worse.mean() > half:
        return Verdict.shown(f"they outperform unscaled products with a d_k of {LARGE}")
    return NEITHER


def cards(records: Records) -> list[Card]:
    """Claims of each pair of kinds, for each d_k, which is worse; two of them by the rule of the design."""
    runs = ROWS.find(records)
    small, middle, large = widths("unscaled")

    def cards_of(kind: str, other: str, claims: dict[int, tuple[str, int]]) -> list[Card]:
        """Makes a card for each d_k, of a claim and its sign."""
        made = []
        for width, (text, sign) in claims.items():
            row, base = runs[f"{kind}-{width}"], runs[f"{other}-{width}"]
            claim = between(f"d_k {width}: {text}", row, base, "perplexity", sign)
            made.append(claim._replace(margin=0.0 if sign > 0 else MARGIN))
        return compare("Scores of queries and keys, log perplexity", made, 3)

    of_scaling = {
        small: ("undivided products are no worse than divided ones", -1),
        middle: ("undivided products are worse than divided ones", 1),
        large: (f"undivided products are worse than divided ones, by more than with {small}", 1),
    }
    of_additive = {
        small: ("undivided products and additive scores are alike", 0),
        large: ("undivided products are worse than additive scores", 1),
    }
    alike = ("divided products and additive scores are alike", 0)
    *others, worse = cards_of("unscaled", "scaled", of_scaling)
    as_small, outperformed = cards_of("unscaled", "additive", of_additive)
    return [
        *others,
        worse.by_rule(verdict_of_scaling(runs)),
        as_small,
        outperformed.by_rule(verdict_of_additive(runs)),
        *cards_of("scaled", "additive", {small: alike, large: alike}),
    ]


def minus(runs: Runs, kind: str, other: str, width: int) -> Float[np.ndarray, " seeds"]:
    """Subtracts the log perplexity of another kind, for each seed that both have."""
    return paired_differences(runs[f"{kind}-{width}"], runs[f"{other}-{width}"], "perplexity")


def _worse(runs: Runs, width: int) -> dict[int, float]:
    """Subtracts the log perplexity of scaled products from that of unscaled ones, by seed."""
    unscaled, scaled = (by_seed(runs[f"{kind}-{width}"], "perplexity") for kind in ("unscaled", "scaled"))
    return {seed: value - scaled[seed] for seed, value in unscaled.items() if seed in scaled}


def plot(records: Records, path: Path) -> None:
    """Draws log perplexity on test against d_k, a point for each seed and a line through their means.

    Raises:
      UserError: the file cannot be written.
    """
    runs = ROWS.find(records)
    with figure_file(path, 5, 3.5) as figure:
        axes = figure.subplots()
        for place, kind in enumerate(dict.fromkeys(name.partition("-")[0] for name in NAMES)):
            seeds = {width: list(by_seed(runs[f"{kind}-{width}"], "perplexity").values()) for width in widths(kind)}
            scored = {width: values for width, values in seeds.items() if values}
            for width, values in scored.items():
                axes.plot([width] * len(values), values, "o", color=colour(place), markersize=3)
            if scored:
                means = [float(np.mean(values)) for values in scored.values()]
                axes.plot(list(scored), means, color=colour(place), label=LABELS[kind])
        axes.set(xlabel="$d_k$", ylabel="log perplexity of the test set", xscale="log")
        axes.set_xticks(widths("scaled"), [str(width) for width in widths("scaled")])
        axes.minorticks_off()
        legend(figure, axes, 3)


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=[*stages(FILE, "scores"), *ROWS.commands()],
)
