"""Curves of runs: the losses over steps, the seeds of a config as one with a band."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from vaswani.keys import short_names
from vaswani.train.overview.find_runs import SEED, FoundRun, by_seeds, differing_keys

_LONGEST_LABEL = 60  # characters


class Curve(NamedTuple):
    """The mean over runs at the steps that all of them have, and of several the lowest and the highest."""

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


def curves_of(runs: Sequence[FoundRun], kind: str) -> dict[str, Curve]:
    """Returns the nll in records of this kind, "train" or "valid": a curve for each config, whatever its seed.

    Their names are what tells the configs apart.
    """
    recorded = [run for run in runs if run.records]
    keys = [key for key in differing_keys(recorded) if key != SEED]
    names = short_names(keys)
    drawn: dict[str, Curve] = {}
    for values, group in by_seeds(recorded).items():
        changes = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        label = changes if 0 < len(changes) <= _LONGEST_LABEL else str(group[0].path)
        count = f" ({len(group)} runs)" if len(group) > 1 else ""
        drawn[f"{label}{count}"] = _curve(group, kind)
    return drawn


def _curve(runs: Sequence[FoundRun], kind: str) -> Curve:
    values_of_runs = [_nll_by_step(run, kind) for run in runs]
    recorded = [values for values in values_of_runs if values]
    if not recorded:
        return Curve([], [], [], [])
    steps = sorted(set(recorded[0]).intersection(*recorded[1:]))
    columns = [[values[step] for values in recorded] for step in steps]
    mean = [fmean(column) for column in columns]
    if len(recorded) == 1:
        return Curve(steps, mean, [], [])
    return Curve(steps, mean, [min(column) for column in columns], [max(column) for column in columns])


def _nll_by_step(run: FoundRun, kind: str) -> dict[int, float]:
    return {record["step"]: record["nll"] for record in run.records if record["kind"] == kind and "nll" in record}
