"""Table 3 scaled down, second design: the differences from base, judged by the rule of `design.py`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from lab.cards.card import NO_RULE, NO_SEEDS, OPEN, Card, Claim, Verdict, is_beyond, measure, met, shown_seeds
from lab.drawing import name_points
from lab.studies.choice import stage_1
from lab.studies.plots import legend
from lab.studies.second.design import CHOSEN, EQUIVALENT, MARGIN, PRIMARY, SCHEDULES, STEPS
from lab.studies.second.first import why
from lab.studies.study import Rows, Runs, Study, count_seeds, mean, mean_cost, repeats, table
from lab.studies.two_stages import SEEDS
from vaswani.model.parameter_count import parameter_count
from vaswani.paper.drawing import figure_file
from vaswani.paper.published import TABLE3
from vaswani.paper.records import Records, RunRecord
from vaswani.paper.rows import RowRuns, load
from vaswani.paper.tables.trend import (
    DRAWS,
    LEVEL,
    Correlation,
    Differences,
    paired_differences,
    pooled,
    rank_correlation,
    redrawn,
)
from vaswani.tasks.config import model_config
from vaswani.train.intervals import half_interval, with_interval
from vaswani.train.table import NOT_RUN, Table, number

FILE = "lab/studies/second/design.py"
NAMES = ("base", *(name for name in TABLE3 if name != "base"))
TITLE = "Table 3 scaled down, second design"
AGREEING = 10  # primary rows that must have the paper's sign and exceed two standard errors
CORRELATION, LOWER_END = 0.6, 0.3
STYLE: Any = {"fmt": "o", "color": "C0"}
OTHERS: Any = {"fmt": "s", "color": "grey"}
NOT_SHOWN = Verdict("neither", "not shown")
NOT_STARTED = 4.0  # times base's perplexity, half-way through training


def tables(records: Records) -> list[Table]:
    """Compares the rows of Table 3 with base, as the paper does, then those of the first design that fail."""
    runs = rows(records)
    columns = {
        "kind": lambda name, runs: kind(name),
        "schedule": lambda name, runs: CHOSEN.get(name, "not chosen"),
        "log perplexity − base: paper": shown_paper,
        "log perplexity − base: ours": lambda name, runs: with_interval(minus_base(name, runs), 3),
        "perplexity": mean("perplexity", 3),
        "verdict": lambda name, runs: row_verdict(name, minus_base(name, runs)).sentence,
        "failed seeds": lambda name, runs: ", ".join(map(str, failed(runs[name], runs["base"]))),
        "parameters": lambda name, runs: f"{_parameters(name):,}",
        "seeds": count_seeds,
        "cost": mean_cost,
    }
    conditions, rule = verdict(differences_of(runs))
    notes = [
        f"the design, its rule and its prediction: {FILE}, committed before the first run",
        *conditions,
        *([rule.sentence] if conditions else []),
        *pooled(runs, "perplexity"),
        *pooled(runs, "sacrebleu"),
        f"failed: perplexity on validation at update {STEPS // 2} above {NOT_STARTED:g} times base's of the same seed, "
        "even if their schedules differ; such a run may still learn, and it stays in every mean, interval and "
        "correlation",
        "the opposite: beyond two standard errors with the other sign; not equivalent: the 95 % t interval lies wholly "
        f"beyond {MARGIN:g}. The design has neither verdict; both were added when the results were known",
    ]
    study = table("second", TITLE, "row", columns, runs, notes)
    options = dict.fromkeys(NAMES, SCHEDULES)
    return [study, stage_1(records, study, FILE, options, "schedule", CHOSEN), why(records)]


def rows(records: Records) -> Runs:
    """Finds the runs of each row with the schedule that it chose and the seeds of the design.

    A row that has not chosen has none: those of stage 1 are not scored on test.
    """
    chosen = Rows({name: config_of(name) for name in CHOSEN}, seeds=SEEDS)
    return dict.fromkeys(NAMES, RowRuns([], "", [])) | chosen.find(records)


def config_of(name: str) -> str:
    """Returns the config of a row with its schedule."""
    return f"{FILE}:{name}:{CHOSEN.get(name, 'steep')}"


def paper_difference(name: str) -> float:
    """Returns the paper's log perplexity of a row minus that of base."""
    return math.log(TABLE3[name].perplexity) - math.log(TABLE3["base"].perplexity)


def shown_paper(name: str, runs: Runs) -> str:
    """Shows the paper's difference from base."""
    return "" if name == "base" else number(paper_difference(name), 3, sign=True)


def minus_base(name: str, runs: Runs) -> Float[np.ndarray, " seeds"]:
    """Subtracts base's log perplexity from a row's, seed by seed; base itself has no seed."""
    return NO_SEEDS if name == "base" else paired_differences(runs[name], runs["base"], "perplexity")


def differences_of(runs: Runs) -> dict[str, Float[np.ndarray, " seeds"]]:
    """Gives each row's differences from base, of the rows that have some."""
    differences = {name: minus_base(name, runs) for name in NAMES}
    return {name: seeds for name, seeds in differences.items() if len(seeds)}


def kind(name: str) -> str:
    """Names what the design predicts of a row: a difference, none, or nothing."""
    if name in PRIMARY:
        return "primary"
    return "equivalent" if name in EQUIVALENT else ""


def row_verdict(name: str, seeds: Float[np.ndarray, " seeds"]) -> Verdict:
    """Judges whether a row's differences are as predicted; says nothing of a row of which nothing is."""
    if kind(name) == "":
        return Verdict(NO_RULE, "")
    if len(seeds) < len(SEEDS):
        return Verdict(OPEN, "")
    if name in PRIMARY:
        paper = paper_difference(name)
        if agrees(seeds, paper):
            return Verdict("shown", "as the paper")
        return Verdict("refuted", "the opposite") if agrees(seeds, -paper) else NOT_SHOWN
    if equivalent(seeds):
        return Verdict("shown", "equivalent")
    return Verdict("refuted", "not equivalent") if is_beyond(seeds, MARGIN) else NOT_SHOWN


def agrees(seeds: Float[np.ndarray, " seeds"], paper: float) -> bool:
    """Tells whether the mean difference has the paper's sign and exceeds two standard errors."""
    mean = seeds.mean()
    return bool(np.sign(mean) == np.sign(paper) and abs(mean) > 2 * stats.sem(seeds))


def equivalent(seeds: Float[np.ndarray, " seeds"]) -> bool:
    """Tells whether two one-sided t-tests, each at 5 %, show that the mean difference is within the margin."""
    above = stats.ttest_1samp(seeds, -MARGIN, alternative="greater").pvalue
    below = stats.ttest_1samp(seeds, MARGIN, alternative="less").pvalue
    return bool(max(above, below) < LEVEL)


def failed(row: RowRuns, base: RowRuns) -> list[int]:
    """Returns the seeds whose run had not started half-way."""
    of_base = {scored.run.config["seed"]: _half_way(scored.run) for scored in base.scored}
    seeds: list[int] = []
    for scored in row.scored:
        seed = scored.run.config["seed"]
        perplexity = _half_way(scored.run)
        threshold = of_base.get(seed)
        if perplexity is not None and threshold is not None and perplexity > NOT_STARTED * threshold:
            seeds.append(seed)
    return sorted(seeds)


def _half_way(run: RunRecord) -> float | None:
    """Returns the validation perplexity half-way through training; None if it was not measured then."""
    for record in run.validations:
        if record["step"] == run.config["steps"] // 2:
            return float(record["perplexity"])
    return None


def verdict(differences: Differences) -> tuple[list[str], Verdict]:
    """Judges the three conditions of the design, each in a note, and all together; none until all seeds have run."""
    if any(len(differences.get(name, ())) < len(SEEDS) for name in PRIMARY):
        return [], Verdict(OPEN, "")
    agreeing = [name for name in PRIMARY if agrees(differences[name], paper_difference(name))]
    plain, partial = correlations([differences[name] for name in PRIMARY])
    excludes = partial.low > 0 or partial.high < 0
    conditions = [
        len(agreeing) >= AGREEING,
        plain.value >= CORRELATION and plain.low > LOWER_END,
        excludes,
    ]
    said = list(map(met, conditions))
    notes = [
        f"1. {len(agreeing)} of {len(PRIMARY)} primary rows have the paper's sign and exceed two standard errors "
        f"({', '.join(agreeing) or 'none'}); at least {AGREEING}: {said[0]}",
        f"2. Spearman's rank correlation with the paper over them: {plain} (rows and seeds redrawn {DRAWS:,} times); "
        f"at least {CORRELATION:g}, its lower end above {LOWER_END:g}: {said[1]}",
        f"3. the same, given the logarithm of the number of parameters: {partial}; excludes 0: {said[2]}",
    ]
    claim = "that the scaled-down models differ as the paper's do is"
    if all(conditions):
        return notes, Verdict("shown", f"{claim} shown")
    if plain.high < CORRELATION:
        return notes, Verdict("refuted", f"{claim} refuted")
    return notes, Verdict("neither", f"{claim} neither shown nor refuted")


def correlations(seeds_of_rows: Sequence[Float[np.ndarray, " seeds"]]) -> tuple[Correlation, Correlation]:
    """Returns the rank correlation of the primary rows with the paper, and the partial one given their parameters."""
    paper = np.array([paper_difference(name) for name in PRIMARY])
    sizes = np.array([math.log(_parameters(name)) for name in PRIMARY])
    means = np.array([seeds.mean() for seeds in seeds_of_rows])
    chosen_rows, ours = redrawn([list(seeds) for seeds in seeds_of_rows])
    plain = rank_correlation(paper[chosen_rows], ours)
    partial = partial_correlation(paper[chosen_rows], ours, sizes[chosen_rows])
    return (
        _with_ends(float(rank_correlation(paper, means)), plain),
        _with_ends(float(partial_correlation(paper, means, sizes)), partial),
    )


def partial_correlation(
    paper: Float[np.ndarray, "*draws rows"],
    ours: Float[np.ndarray, "*draws rows"],
    given: Float[np.ndarray, "*draws rows"],
) -> Float[np.ndarray, "*draws"]:
    """Returns the partial rank correlation over the last axis: what is left where `given` explains both."""
    both = rank_correlation(paper, ours)
    paper_given = rank_correlation(paper, given)
    ours_given = rank_correlation(ours, given)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (both - paper_given * ours_given) / np.sqrt((1 - paper_given**2) * (1 - ours_given**2))


def _with_ends(value: float, draws: Float[np.ndarray, " draws"]) -> Correlation:
    # Draws in which a side is constant, or explained wholly, have no correlation.
    defined = draws[np.isfinite(draws)]
    if not len(defined):
        return Correlation(value, math.nan, math.nan)
    low, high = np.percentile(defined, [2.5, 97.5])
    return Correlation(value, float(low), float(high))


def _parameters(name: str) -> int:
    cfg = load(config_of(name))
    return parameter_count(model_config(cfg, cfg.data.vocab_size))


def cards(records: Records) -> list[Card]:
    """Claims that the rows rank as in the paper, and that some are like base."""
    runs = rows(records)
    return [_rank_card(runs), *(_card_of_equivalent(name, runs) for name in EQUIVALENT)]


def _rank_card(runs: Runs) -> Card:
    text = "the scaled-down models differ as the paper's do: rank correlation"
    card = measure(TITLE, Claim(text, list(runs.values()), ours=NOT_RUN), 0)
    counts = [len(row.scored) for row in runs.values()]
    if not any(counts):
        return card
    differences = differences_of(runs)
    conditions, rule = verdict(differences)
    card = card._replace(ours="", seeds=shown_seeds(counts), verdict=rule.word)
    if not conditions:
        return card
    plain, _ = correlations([differences[name] for name in PRIMARY])
    return card._replace(ours=number(plain.value), interval=f"{number(plain.low)} to {number(plain.high)}")


def _card_of_equivalent(name: str, runs: Runs) -> Card:
    seeds = minus_base(name, runs)
    text = f"{name} is within {MARGIN:g} of base in log perplexity"
    card = measure(TITLE, Claim(text, [runs[name], runs["base"]], seeds), 3)
    if len(seeds) > 1:  # two one-sided tests at 5 % are the 90 % interval within the margin
        half = stats.t.ppf(1 - LEVEL, len(seeds) - 1) * stats.sem(seeds)
        card = card._replace(interval=f"{card.interval}; 90 %: ± {half:.3f}")
    return card.by_rule(row_verdict(name, seeds)) if len(seeds) else card.without_runs()


def plot(records: Records, path: Path) -> None:
    """Draws the paper's differences and ours, with t intervals over the seeds, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    differences = differences_of(rows(records))
    with figure_file(path, 5, 4.3) as figure:
        axes = figure.subplots()
        places: dict[str, tuple[float, float]] = {}
        for name, seeds in differences.items():
            paper = paper_difference(name)
            half = half_interval(seeds) or 0.0
            axes.errorbar(paper, seeds.mean(), yerr=half, **(STYLE if name in PRIMARY else OTHERS))
            places[name] = (paper, float(seeds.mean()))
        axes.errorbar([], [], yerr=[], label="rows whose difference in the paper is large", **STYLE)
        axes.errorbar([], [], yerr=[], label="other rows", **OTHERS)
        axes.axhline(0, color="grey", linewidth=0.5)
        axes.axvline(0, color="grey", linewidth=0.5)
        axes.set(xlabel="log perplexity − base: paper", ylabel="log perplexity − base: ours")
        legend(figure, axes, 2)
        figure.draw_without_rendering()  # so that the axes have their place
        name_points(axes, places)


STUDY = Study(
    rows=rows,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=repeats("second", NAMES, SEEDS[0]),
)
