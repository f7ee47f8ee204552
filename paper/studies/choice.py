"""Stage 1 of a study in two stages (`base/two_stages.py`): which option each row has chosen."""

from collections.abc import Iterable, Mapping
from typing import Any

from base.table import NOT_RUN, Table, number
from paper.records import Records, identity, load
from run.folder import as_json


def stage_1(records: Records, study: Table, file: str, rows: Iterable[str], options: Iterable[Any], what: str) -> Table:
    """Returns what each row of a study's table has chosen: the lowest perplexity on validation after the last update.

    `what` the options are heads their columns, as in "rate: 0.005".
    """
    lines: list[tuple[str, ...]] = []
    names = [str(option) for option in options]
    for row in rows:
        perplexities = {name: last_validation(records, f"{file}:{row}:{name}") for name in names}
        shown = [NOT_RUN if perplexity is None else number(perplexity, 3) for perplexity in perplexities.values()]
        lines.append((row, *shown, choice(perplexities) or NOT_RUN))
    head = (study.head[0], *(f"validation perplexity with {what}: {name}" for name in names), "chosen")
    notes = [f"one run of seed 0 with each; the choice is recorded in {file} before stage 2"]
    return Table(study.name, f"{study.title}, stage 1: {what}s", head, lines, notes)


def choice(perplexities: Mapping[str, float | None]) -> str:
    """Returns the option of the lowest perplexity, of equals the first; "" unless all have run."""
    known = {option: perplexity for option, perplexity in perplexities.items() if perplexity is not None}
    if len(known) < len(perplexities):
        return ""
    return min(known, key=known.__getitem__)


def last_validation(records: Records, config: str, seed: int = 0) -> float | None:
    """Returns the validation perplexity of a config's complete run after its last update; None without one."""
    wanted = identity(as_json(load(config)))
    for run in records.runs:
        if run.config["seed"] == seed and not run.problem and identity(run.config) == wanted and run.validations:
            return float(run.validations[-1]["perplexity"])
    return None
