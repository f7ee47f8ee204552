"""Which optimiser is the fastest, and which warm-up? Updates to a loss on validation, by the rule of `design.py`."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from lab.cards.card import NEITHER, Card, Claim, Verdict, compare
from lab.drawing import curve
from lab.studies.choice import Validated, choice, disagreement, notes_on, validated
from lab.studies.optimisers.design import (
    BASE,
    CHOSEN,
    COMPARISONS,
    EVERY,
    FIVE,
    LADDER,
    OPTIONS,
    SEEDS,
    STEPS,
    Comparison,
    Option,
)
from lab.studies.optimisers.design import ROWS as NAMES
from lab.studies.plots import legend
from lab.studies.study import Rows, Runs, Study, configs, mean_cost, stages, table
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import marked
from vaswani.paper.tables.trend import INTERVAL, LEVEL, Differences, differences_by_seed, holm, p_values_of, tested
from vaswani.train.intervals import with_interval
from vaswani.train.table import NOT_RUN, Table, number, spread

FILE = "lab/studies/optimisers/design.py"
ROWS = Rows(configs(FILE, NAMES), "valid", seeds=SEEDS)
GRID = list(range(EVERY, STEPS + 1, EVERY))
AT = STEPS * 80 // 100  # the update at which the base's best run of stage 1 defines the target
Curve = list[tuple[int, float]]  # updates, and nll on validation
Curves = dict[str, dict[int, Curve]]  # by row and seed

LABELS = {
    "adam": "Adam (the paper)",
    "muon": "Muon",
    "schedule_free_adamw": "schedule-free AdamW",
    "ademamix": "AdEMAMix",
    "adafactor": "Adafactor",
}


def tables(records: Records) -> list[Table]:
    """Makes a table of each comparison, with the verdicts in the notes, and shows what stage 1 found."""
    runs = ROWS.find(records)
    compared = [compare_rows(comparison, runs, records) for comparison in COMPARISONS]
    return [*compared, stage_1(records)]


def compare_rows(comparison: Comparison, runs: Runs, records: Records) -> Table:
    """Makes the table of one comparison."""
    base = comparison.base
    curves = curves_of(records, comparison.rows)
    target = target_of(records, comparison.target)
    updates = updates_to(curves, target)
    last = {row: _last_of(of_row) for row, of_row in curves.items()}
    fewer = minus_base(updates)
    lower = minus_base(last)

    def arrived(row: str, runs: Runs) -> str:
        reached = sum(value < STEPS for value in updates[row].values())
        return f"{reached} of {len(updates[row])}" if updates[row] else ""

    columns = {
        "rate, warm-up, gradients clipped at": lambda row, runs: _described(CHOSEN.get(row)),
        "updates to the target": lambda row, runs: spread(list(updates[row].values()), 0) or NOT_RUN,
        f"− {base}'s": lambda row, runs: with_interval(fewer[row], 1) if row in fewer else "",
        "seeds that got there": arrived,
        "nll after the last update": lambda row, runs: spread(list(last[row].values()), 3),
        f"nll − {base}'s": lambda row, runs: with_interval(lower[row], 3) if row in lower else "",
        "cost": mean_cost,
    }
    notes = [
        f"the design, its rule and what was expected: {FILE}, {comparison.committed}",
        f"the target, the nll on validation of {base}'s best run of stage 1 after {AT} updates: "
        f"{NOT_RUN if target is None else number(target, 3)}",
        *(f"verdict on {row}: {verdict(row, fewer, base).sentence}" for row in fewer),
        f"a run that does not get to the target counts as all of its {STEPS} updates: what it needs more than {base} "
        "is at least the difference shown",
        f"mean over the seeds, ± standard deviation; differences, with the same seed: {INTERVAL}",
        *tested(fewer, f"updates − {base}'s"),
    ]
    of_comparison = {row: runs[row] for row in comparison.rows}
    return table(comparison.name, comparison.title, comparison.row, columns, of_comparison, notes)


def _last_of(of_row: Mapping[int, Curve]) -> dict[int, float]:
    """Returns the nll after the last update of each seed that has not diverged."""
    ends = {seed: curve_of_seed[-1][1] for seed, curve_of_seed in of_row.items()}
    return {seed: nll for seed, nll in ends.items() if math.isfinite(nll)}


def stage_1(records: Records) -> Table:
    """Returns the nll on validation of every option: the five rates of a row in columns, the rest in lines."""
    found = validated(records, [run_of(row, option) for row, of_row in OPTIONS.items() for option in of_row])
    taken: dict[str, list[Validated]] = {}
    lines: list[tuple[str, ...]] = []
    notes = [
        f"nats a subword on validation after {STEPS} updates, one run of seed 0 with each; the choice is recorded in "
        f"{FILE} before stage 2"
    ]
    for row, of_row in OPTIONS.items():
        runs = {str(option): found[run_of(row, option)].get(0) for option in of_row}  # of seed 0
        perplexities = {option: run.perplexity if run else None for option, run in runs.items()}
        taken[row] = [run for run in runs.values() if run]
        name = marked(row, [run.run for run in taken[row]])
        ladder = sorted({option.lr for option in of_row})
        settings = dict.fromkeys((option.warmup, option.clip_norm) for option in of_row)  # each once, in order
        for warmup, clip_norm in settings:
            cells = [_nll(perplexities[str(Option(rate, warmup, clip_norm))]) for rate in ladder]
            lines.append((name, str(ladder[2]), f"{warmup} %", _clipped(clip_norm), *cells))
        chosen = choice(perplexities)
        if chosen:
            options_at_an_end = [str(option) for option in of_row if option.lr in (ladder[0], ladder[-1])]
            beyond = "; its rate is an end of the ladder" if chosen in options_at_an_end else ""
            notes.append(f"{row} chose RATE-WARMUP-CLIP {chosen}{beyond}")
            notes += disagreement(row, chosen, CHOSEN, FILE)
    notes += notes_on(taken)
    factors = (f"nll, × {rate / LADDER[2]:g}" for rate in LADDER)
    head = ("optimiser", "middle rate", "warm-up", "gradients clipped at", *factors)
    return Table("optimisers-stage-1", f"{FIVE.title}, stage 1", head, lines, notes)


def _nll(perplexity: float | None) -> str:
    return NOT_RUN if perplexity is None else number(float(np.log(perplexity)), 3)


def _described(option: Option | None) -> str:
    if option is None:
        return "not chosen"
    return f"{option.lr}, {option.warmup} %, {_clipped(option.clip_norm)}"


def _clipped(clip_norm: int) -> str:
    return str(clip_norm) if clip_norm else "never"


def run_of(row: str, option: Option) -> str:
    """Returns the name of the config of a run of stage 1."""
    return f"{FILE}:{row}:{option}"


def curves_of(records: Records, rows: Sequence[str]) -> Curves:
    """Returns the validations of stage 2 of rows, of runs that were validated as often as the design says."""
    found = validated(records, [ROWS.configs[row] for row in rows])
    curves: Curves = {row: {} for row in rows}
    for row in rows:
        for seed, run in found[ROWS.configs[row]].items():
            points = dict(_curve(run.validations))
            if math.inf in points.values():  # it diverged
                points |= {step: math.inf for step in GRID if step not in points}
            if seed in SEEDS and sorted(points) == GRID:
                curves[row][seed] = sorted(points.items())
    return curves


def _curve(validations: Sequence[Mapping[str, Any]]) -> Curve:
    return [(record["step"], float(np.log(record["perplexity"]))) for record in validations]


def target_of(records: Records, base: str) -> float | None:
    """Returns the nll on validation of a row's best run of stage 1 after 80 % of its updates; None before stage 1."""
    found = validated(records, [run_of(base, option) for option in OPTIONS[base]])
    curves: dict[str, Curve] = {}
    last: dict[str, float | None] = {}
    for option in OPTIONS[base]:
        run = found[run_of(base, option)].get(0)
        points = _curve(run.validations) if run else []
        curves[str(option)] = points
        last[str(option)] = points[-1][1] if points else None
    best = choice(last)
    if not best:
        return None
    return dict(curves[best]).get(AT)


def updates_to(curves: Curves, target: float | None) -> dict[str, dict[int, float]]:
    """Returns by row and seed how many updates it takes to the target; no seed without one."""
    updates: dict[str, dict[int, float]] = {row: {} for row in curves}
    if target is None:
        return updates
    for row, of_row in curves.items():
        for seed, of_seed in of_row.items():
            updates[row][seed] = crossed(of_seed, target)
    return updates


def crossed(validations: Curve, target: float) -> float:
    """Finds where the line through the validations first comes down to the target; `STEPS` if it does not."""
    before: tuple[int, float] | None = None
    for step, nll in validations:
        if nll <= target:
            if before is None or before[1] == nll:
                return float(step)
            part = (before[1] - target) / (before[1] - nll)
            return before[0] + part * (step - before[0])
        before = step, nll
    return float(STEPS)


def minus_base(values: Mapping[str, Mapping[int, float]]) -> dict[str, Float[np.ndarray, " seeds"]]:
    """Returns each row's value minus that of the first, for each seed that both have."""
    base, *others = values
    return {row: differences_by_seed(values[row], values[base]) for row in others}


def verdict(row: str, fewer: Differences, base: str) -> Verdict:
    """Judges a row, given the updates of every one minus those of what is called `base`."""
    if any(len(seeds) < len(SEEDS) for seeds in fewer.values()):
        return Verdict.open("not all seeds of all rows are there")
    if fewer[row].mean() >= 0:
        return Verdict.refuted(f"it is no faster than {base}")
    p = holm(p_values_of(fewer))[row]
    return Verdict.shown(f"it is faster than {base}") if p < LEVEL else NEITHER


def cards(records: Records) -> list[Card]:
    """Claims that each row of a comparison is faster than its base."""
    runs = ROWS.find(records)
    made: list[Card] = []
    for comparison in COMPARISONS:
        base, *_ = comparison.rows
        updates = updates_to(curves_of(records, comparison.rows), target_of(records, comparison.target))
        fewer = minus_base(updates)
        claims = [Claim(f"{row} gets there earlier", [runs[row], runs[base]], fewer[row], -1) for row in fewer]
        about = f"{comparison.title}: updates to a loss, minus {comparison.base}'s"
        for row, card in zip(fewer, compare(about, claims, 1), strict=True):
            made.append(card.by_rule(verdict(row, fewer, comparison.base)))
    return made


def plot(records: Records, path: Path) -> None:
    """Draws the five optimisers' nll on validation against updates: the mean of the seeds, and a band of their range.

    Raises:
      UserError: the file cannot be written.
    """
    curves = curves_of(records, FIVE.rows)
    target = target_of(records, BASE)
    with figure_file(path, 5, 3.5) as figure:
        axes = figure.subplots()
        for place, (row, of_row) in enumerate(curves.items()):
            if of_row:
                steps_p = np.array([step for step, _ in next(iter(of_row.values()))])
                nlls_sp = np.array([[nll for _, nll in of_seed] for of_seed in of_row.values()])
                curve(axes, steps_p, nlls_sp, place, LABELS[row])
        if target is not None:
            label = f"the target: Adam after {AT} updates in stage 1"
            axes.axhline(target, color="black", linestyle=":", linewidth=1, label=label)
        axes.set(xlabel="updates", ylabel="nats a subword, validation")
        legend(figure, axes, 2)


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=[*stages(FILE, "optimisers"), *ROWS.commands()],
)
