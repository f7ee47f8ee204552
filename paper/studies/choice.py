"""Stage 1 of a study in two stages (`base/two_stages.py`): which option each row has chosen."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from base.table import NOT_RUN, Table, number
from paper.records import Records, RunRecord
from paper.rows import identity, load
from run.folder import as_json

_DIVERGED = re.compile(r"update \d+: the loss is \S+ and the gradient norm ")  # of train.metrics.NotFiniteError


def stage_1(records: Records, study: Table, file: str, options: Mapping[str, Iterable[Any]], what: str) -> Table:
    """Returns what each row of a study's table has chosen: the lowest perplexity on validation after the last update.

    `options` are those of each row; `what` they are heads their columns, as in "rate: 0.005". Where a row had no such
    option the cell is empty.
    """
    lines: list[tuple[str, ...]] = []
    configs: list[str] = []
    every_option: dict[str, None] = {}  # each once, in the order of the rows
    for row, of_row in options.items():
        configs += [f"{file}:{row}:{option}" for option in of_row]
        every_option |= dict.fromkeys(map(str, of_row))
    names = list(every_option)
    found = last_validations(records, configs)
    for row, of_row in options.items():
        perplexities = {str(option): found[f"{file}:{row}:{option}"].get(0) for option in of_row}
        shown = [_cell(perplexities, name) for name in names]
        lines.append((row, *shown, choice(perplexities) or NOT_RUN))
    of_options = [f"validation perplexity with {what}: {name}" for name in names]
    head = (study.head[0], *of_options, "chosen")
    notes = [f"one run of seed 0 with each; the choice is recorded in {file} before stage 2"]
    return Table(f"{study.name}-stage-1", f"{study.title}, stage 1: {what}s", head, lines, notes)


def _cell(perplexities: Mapping[str, float | None], name: str) -> str:
    if name not in perplexities:
        return ""
    perplexity = perplexities[name]
    return NOT_RUN if perplexity is None else number(perplexity, 3)


def choice(perplexities: Mapping[str, float | None]) -> str:
    """Returns the option of the lowest perplexity, of equals the first; "" unless all have run."""
    known = {option: perplexity for option, perplexity in perplexities.items() if perplexity is not None}
    if len(known) < len(perplexities):
        return ""
    return min(known, key=known.__getitem__)


def last_validations(records: Records, configs: Iterable[str]) -> dict[str, dict[int, float]]:
    """Returns by config and seed the validation perplexity after the last update; of a run that diverged, infinity."""
    last: dict[str, dict[int, float]] = {}
    for config, of_seeds in validations_of(records, configs).items():
        last[config] = {}
        for seed, validations in of_seeds.items():
            last[config][seed] = float(validations[-1]["perplexity"])
    return last


def validations_of(records: Records, configs: Iterable[str]) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Returns by config and seed the validations of a complete run, the first if there are several; oldest first.

    A run that ended because its loss was no longer finite is complete, too, with an infinite last perplexity.
    """
    wanted = {config: identity(as_json(load(config))) for config in configs}
    found: dict[str, dict[int, list[dict[str, Any]]]] = {config: {} for config in wanted}
    for run in sorted(records.runs, key=_has_diverged):  # one that has not comes before one that has
        validations = run.validations
        if _has_diverged(run):
            validations = [*validations, {"step": run.config["steps"], "perplexity": math.inf}]
        elif run.problem or not validations:
            continue
        of_run = identity(run.config)
        for config, of_config in wanted.items():
            if of_run == of_config:
                found[config].setdefault(run.config["seed"], validations)
    return found


def _has_diverged(run: RunRecord) -> bool:
    return _DIVERGED.search(run.problem) is not None
