"""Why divide by sqrt(d_k)? Scaled, unscaled and additive scores, judged by the rule of `design.py`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from base.intervals import half_interval, with_interval
from base.table import Table, number
from lab.studies.choice import stage_1
from lab.studies.scores.design import CHOSEN, RATES, ROWS
from lab.studies.two_stages import SEEDS
from paper.drawing import colour, drawn
from paper.records import Records
from paper.rows import RowRuns, caveat_notes, row_runs, run_notes, with_seeds
from paper.tables.cost import cost
from paper.tables.trend import (
    INTERVAL,
    by_seed,
    differences_by_seed,
    paired_differences,
    tested,
)

FILE = "lab/studies/scores/design.py"
SMALL, LARGE = 8, 128  # the values of d_k that the rule compares
TITLE = "Scores of queries and keys"
HEAD = (
    "scores and d_k",
    "rate",
    "perplexity",
    "log perplexity − scaled",
    "log perplexity − unscaled",
    "sacreBLEU",
    "seeds",
    "cost",
)
QUERIES, KEYS = 2_000, 16  # of the table of footnote 4


def tables(records: Records) -> list[Table]:
    """Returns one row for each kind of scores and d_k, with the verdicts in the notes; the rates; and footnote 4."""
    runs = rows(records)
    lines = [_line(name, runs) for name in ROWS]
    worse = {f"unscaled-{width}": minus(runs, "unscaled", "scaled", width) for width in widths("unscaled")}
    notes = [
        "the design, its rule and what was expected: lab/studies/scores/design.py, committed before the first run",
        verdict_of_scaling(runs),
        verdict_of_additive(minus(runs, "unscaled", "additive", LARGE)),
        f"mean over the seeds, ± standard deviation; differences, with the same d_k and seed: {INTERVAL}",
        *tested(worse, "log perplexity − scaled"),
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    study = Table("scores", TITLE, HEAD, lines, notes)
    return [study, stage_1(records, study, FILE, dict.fromkeys(ROWS, RATES), "rate", CHOSEN), footnote_4()]


def footnote_4() -> Table:
    """Returns how large the softmax's gradient is, and its largest weight, if queries and keys are as footnote 4 says.

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


def rows(records: Records) -> dict[str, RowRuns]:
    """Returns the runs of each row with the rate that it chose, and the seeds of the design."""
    of_design = with_seeds(records, SEEDS)
    return {name: row_runs(of_design, f"{FILE}:{name}", "test") for name in ROWS}


def widths(kind: str) -> list[int]:
    """Returns the values of d_k that a kind of scores has."""
    return [int(name.partition("-")[2]) for name in ROWS if name.startswith(f"{kind}-")]


def verdict_of_scaling(runs: Mapping[str, RowRuns]) -> str:
    """Returns what the rule says of how much worse unscaled products are with the large and the small d_k."""
    said = "verdict on scaling:"
    large = minus(runs, "unscaled", "scaled", LARGE)
    more = differences_by_seed(_worse(runs, LARGE), _worse(runs, SMALL))
    half_large = half_interval(large)
    half_more = half_interval(more)
    if half_large is None or half_more is None or min(len(large), len(more)) < len(SEEDS):
        return f"{said} open, because scaled and unscaled products need {len(SEEDS)} seeds with each d_k"
    if large.mean() <= 0:
        return f"{said} refuted; with a d_k of {LARGE} unscaled products are no worse"
    if large.mean() > half_large and more.mean() > half_more:
        return f"{said} shown; unscaled products are worse with a d_k of {LARGE}, and by more than with {SMALL}"
    return f"{said} neither shown nor refuted"


def verdict_of_additive(worse: Float[np.ndarray, " seeds"]) -> str:
    """Returns what the rule says of additive scores, given how much worse unscaled products are with the large d_k."""
    said = "verdict on additive scores:"
    half = half_interval(worse)
    if half is None or len(worse) < len(SEEDS):
        return (
            f"{said} open, because additive scores and unscaled products need {len(SEEDS)} seeds with a d_k of {LARGE}"
        )
    if worse.mean() <= 0:
        return f"{said} refuted; with a d_k of {LARGE} they do not outperform unscaled products"
    if worse.mean() > half:
        return f"{said} shown; they outperform unscaled products with a d_k of {LARGE}"
    return f"{said} neither shown nor refuted"


def minus(runs: Mapping[str, RowRuns], kind: str, other: str, width: int) -> Float[np.ndarray, " seeds"]:
    """Returns the log perplexity of a kind minus another's, for each seed that both have."""
    return paired_differences(runs[f"{kind}-{width}"], runs[f"{other}-{width}"], "perplexity")


def _worse(runs: Mapping[str, RowRuns], width: int) -> dict[int, float]:
    """Returns by seed how much higher the log perplexity of unscaled products is than that of scaled ones."""
    unscaled, scaled = (by_seed(runs[f"{kind}-{width}"], "perplexity") for kind in ("unscaled", "scaled"))
    return {seed: value - scaled[seed] for seed, value in unscaled.items() if seed in scaled}


def _line(name: str, runs: Mapping[str, RowRuns]) -> tuple[str, ...]:
    kind, _, width = name.partition("-")
    row = runs[name]
    differences: list[str] = []
    for other in ("scaled", "unscaled"):
        differences.append("" if kind == other else with_interval(minus(runs, kind, other, int(width)), 3))
    return (
        row.label(name),
        str(CHOSEN.get(name, "not chosen")),
        row.shown("perplexity", 3),
        *differences,
        row.shown("sacrebleu"),
        str(len(row.scored)),
        cost(row.scored),
    )


def plot(records: Records, path: Path) -> None:
    """Draws log perplexity on test against d_k, a point for each seed and a line through their means.

    Raises:
      UserError: the file cannot be written.
    """
    runs = rows(records)
    with drawn(path, 5, 3.5) as figure:
        axes = figure.subplots()
        for place, kind in enumerate(dict.fromkeys(name.partition("-")[0] for name in ROWS)):
            seeds = {width: list(by_seed(runs[f"{kind}-{width}"], "perplexity").values()) for width in widths(kind)}
            scored = {width: values for width, values in seeds.items() if values}
            for width, values in scored.items():
                axes.plot([width] * len(values), values, "o", color=colour(place), markersize=3)
            if scored:
                means = [float(np.mean(values)) for values in scored.values()]
                axes.plot(list(scored), means, color=colour(place), label=kind)
        axes.set(xlabel="d_k", ylabel="log perplexity of the test set", xscale="log")
        axes.set_xticks(widths("scaled"), [str(width) for width in widths("scaled")])
        axes.minorticks_off()
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=3, fontsize=7)
