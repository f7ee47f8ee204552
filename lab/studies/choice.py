"""Stage 1 of a study in two stages (`lab/studies/two_stages.py`): which option each row has chosen."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vaswani.paper.records import Records, RunRecord
from vaswani.paper.rows import dagger_notes, identity, load, marked
from vaswani.run.folder import as_json
from vaswani.train.table import NOT_RUN, Table, number

_DIVERGED = re.compile(r"(?:step|update) \d+: the loss is \S+ and the gradient norm ")  # train.metrics.NotFiniteError's


def stage_1(
    records: Records,
    study: Table,
    file: str,
    options: Mapping[str, Iterable[Any]],
    what: str,
    chosen: Mapping[str, Any],
) -> Table:
    """Shows what each row of a study's table has chosen: the lowest perplexity on validation after the last update.

    `options` are those of each row; `what` they are heads their columns, as in "rate: 0.005". Where a row had no such
    option the cell is empty. A note says where `chosen`, what stage 2 takes, is another.
    """
    lines: list[tuple[str, ...]] = []
    configs: list[str] = []
    every_option: dict[str, None] = {}  # each once, in the order of the rows
    for row, of_row in options.items():
        configs += [f"{file}:{row}:{option}" for option in of_row]
        every_option |= dict.fromkeys(map(str, of_row))
    names = list(every_option)
    found = validated(records, configs)
    taken: dict[str, list[Validated]] = {}
    notes = [f"one run of seed 0 with each; the choice is recorded in {file} before stage 2"]
    for row, of_row in options.items():
        runs = {str(option): found[f"{file}:{row}:{option}"].get(0) for option in of_row}
        perplexities = {option: run.perplexity if run else None for option, run in runs.items()}
        taken[row] = [run for run in runs.values() if run]
        shown = [_cell(perplexities, name) for name in names]
        best = choice(perplexities)
        lines.append((marked(row, [run.run for run in taken[row]]), *shown, best or NOT_RUN))
        notes += disagreement(row, best, chosen, file)
    of_options = [f"validation perplexity with {what}: {name}" for name in names]
    head = (study.head[0], *of_options, "chosen")
    notes += notes_on(taken)
    return Table(f"{study.name}-stage-1", f"{study.title}, stage 1: {what}s", head, lines, notes)


def disagreement(row: str, best: str, chosen: Mapping[str, Any], file: str) -> list[str]:
    """Returns a note if a row has chosen another option than the records of stage 1 do."""
    if not best or row not in chosen or str(chosen[row]) == best:
        return []
    return [f"{row}: stage 2 has {chosen[row]}, by CHOSEN in {file}, and not {best}"]


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


class Validated(NamedTuple):
    """A complete run and its validations, oldest first; of one that diverged the last perplexity is infinite.

    `others` are the folders or names of records of runs of the same config and seed that were not taken.
    """

    run: RunRecord
    validations: list[dict[str, Any]]
    others: list[str]

    @property
    def perplexity(self) -> float:
        """That after the last update."""
        return float(self.validations[-1]["perplexity"])


def validated(records: Records, configs: Iterable[str]) -> dict[str, dict[int, Validated]]:
    """Returns by config and seed the newest complete run, of those that have not diverged if there is one.

    A run that ended because its loss was no longer finite is complete, too.
    """
    wanted = {config: identity(as_json(load(config))) for config in configs}
    found: dict[str, dict[int, Validated]] = {config: {} for config in wanted}
    newest_first = sorted(records.runs, key=_launched, reverse=True)
    for run in sorted(newest_first, key=_has_diverged):
        validations = run.validations
        if _has_diverged(run):
            validations = [*validations, {"step": run.config["steps"], "perplexity": math.inf}]
        elif run.problem or not validations:
            continue
        of_run = identity(run.config)
        for config, of_config in wanted.items():
            if of_run == of_config:
                taken = found[config].setdefault(run.config["seed"], Validated(run, validations, []))
                if taken.run is not run:
                    taken.others.append(run.label)
    return found


def notes_on(rows: Mapping[str, Iterable[Validated]]) -> list[str]:
    """Returns notes on the runs of rows: which one of a seed was taken if there are several, and their caveats."""
    notes: list[str] = []
    runs: dict[str, list[RunRecord]] = {}
    for name, of_row in rows.items():
        runs[name] = [taken.run for taken in of_row]
        for taken in of_row:
            if taken.others:
                others = ", ".join(sorted(taken.others))
                seed = taken.run.config["seed"]
                notes.append(f"{name}, seed {seed}: {taken.run.label} is taken; not {others}")
    return notes + dagger_notes(runs)


def _launched(run: RunRecord) -> str:
    """Returns when a run was last launched; "" if that is not known."""
    return max((str(launch.get("started", "")) for launch in run.launches), default="")


def _has_diverged(run: RunRecord) -> bool:
    return _DIVERGED.search(run.problem) is not None
