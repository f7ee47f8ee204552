"""Curves of runs: the nll of training and of validation over updates, the seeds of a config as one with a band."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from vaswani.keys import short_names
from vaswani.train.overview.found import FoundRun, differing_keys

PANELS = {"train": "training", "valid": "validation"}  # of each kind of record, its title
_LONGEST_LABEL = 60  # characters


class Curve(NamedTuple):
    """The mean over runs at the updates that all of them have, and of several the lowest and the highest."""

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


def curves_of(runs: Sequence[FoundRun]) -> dict[str, dict[str, Curve]]:
    """Returns a curve for each kind of record of each config, whatever its seed, by what tells it from the others."""
    drawn: dict[str, dict[str, Curve]] = {}
    for name, group in _by_seeds([run for run in runs if run.records]).items():
        drawn[name] = {kind: _curve(group, kind) for kind in PANELS}
    return drawn


def _by_seeds(runs: Sequence[FoundRun]) -> dict[str, list[FoundRun]]:
    keys = [key for key in differing_keys(runs) if key != "seed"]
    names = short_names(keys)
    groups: dict[str, list[FoundRun]] = {}
    for run in runs:
        changes = ", ".join(f"{name}={run.config[key]}" for name, key in zip(names, keys, strict=True))
        groups.setdefault(changes, []).append(run)
    named: dict[str, list[FoundRun]] = {}
    for changes, group in groups.items():
        label = changes if 0 < len(changes) <= _LONGEST_LABEL else str(group[0].path)
        count = f" ({len(group)} runs)" if len(group) > 1 else ""
        named[f"{label}{count}"] = group
    return named


def _curve(runs: Sequence[FoundRun], kind: str) -> Curve:
    nll_of_runs = [_nll_by_step(run, kind) for run in runs]
    recorded = [nll for nll in nll_of_runs if nll]
    if not recorded:
        return Curve([], [], [], [])
    steps = sorted(set(recorded[0]).intersection(*recorded[1:]))
    values = [[nll[step] for nll in recorded] for step in steps]
    mean = [fmean(column) for column in values]
    if len(recorded) == 1:
        return Curve(steps, mean, [], [])
    return Curve(steps, mean, [min(column) for column in values], [max(column) for column in values])


def _nll_by_step(run: FoundRun, kind: str) -> dict[int, float]:
    records = [record for record in run.records if record["kind"] == kind]
    return {record["step"]: record["nll"] for record in records if "nll" in record}
