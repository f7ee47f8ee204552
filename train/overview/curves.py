"""Curves of runs: losses, BLEU, rate and speed over steps, the seeds of a config as one with a band."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from vaswani.keys import short_names
from vaswani.train.overview.find_runs import SEED, FoundRun, by_seeds, differing_keys

_LONGEST_LABEL = 60  # characters


class Panel(NamedTuple):
    """Which records are drawn, which of their values, and the title that says its unit."""

    kind: str
    measure: str
    title: str


LOSSES = (Panel("train", "nll", "training nll"), Panel("valid", "nll", "validation nll"))
PANELS = (
    *LOSSES,
    Panel("valid", "bleu", "validation BLEU"),
    Panel("train", "learning_rate", "learning rate"),
    Panel("train", "tokens_per_second", "target tokens a second"),
)


class Curve(NamedTuple):
    """The mean over runs at the steps that all of them have, and of several the lowest and the highest."""

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


def curves_of(runs: Sequence[FoundRun]) -> dict[str, list[Curve]]:
    """Returns a curve for each of `PANELS`, for each config whatever its seed, by what tells it from the others."""
    recorded = [run for run in runs if run.records]
    keys = [key for key in differing_keys(recorded) if key != SEED]
    names = short_names(keys)
    drawn: dict[str, list[Curve]] = {}
    for values, group in by_seeds(recorded).items():
        changes = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        label = changes if 0 < len(changes) <= _LONGEST_LABEL else str(group[0].path)
        count = f" ({len(group)} runs)" if len(group) > 1 else ""
        drawn[f"{label}{count}"] = [_curve(group, panel) for panel in PANELS]
    return drawn


def _curve(runs: Sequence[FoundRun], panel: Panel) -> Curve:
    values_of_runs = [_values_by_step(run, panel) for run in runs]
    recorded = [values for values in values_of_runs if values]
    if not recorded:
        return Curve([], [], [], [])
    steps = sorted(set(recorded[0]).intersection(*recorded[1:]))
    columns = [[values[step] for values in recorded] for step in steps]
    mean = [fmean(column) for column in columns]
    if len(recorded) == 1:
        return Curve(steps, mean, [], [])
    return Curve(steps, mean, [min(column) for column in columns], [max(column) for column in columns])


def _values_by_step(run: FoundRun, panel: Panel) -> dict[int, float]:
    records = [record for record in run.records if record["kind"] == panel.kind]
    return {record["step"]: record[panel.measure] for record in records if panel.measure in record}
