"""Scores of runs: their evaluations (`python -m infer`, `infer.parse`) in one table, with the spread over seeds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from vaswani.errors import UserError
from vaswani.keys import short_names
from vaswani.read_json import read_json
from vaswani.train.overview.find_runs import SEED, FoundRun, by_seeds, differing_keys, is_aside
from vaswani.train.table import Table, setting, spread

DIGITS = {"BLEU": 2, "chrF": 2, "F1": 2, "accuracy": 4, "nll": 4, "perplexity": 3}
# What tells two evaluations of a run apart; a column each, where that is not the same in all rows.
_CONDITIONS = (
    *("split", "data", "checkpoint", "members"),
    *("beam", "alpha", "extra_length", "length_penalty", "stopping"),
    "row",
)


class Scores(NamedTuple):
    """The scores of an evaluation by their titles, in `DIGITS`, the signatures of some, and when it was made."""

    values: dict[str, float]
    signatures: dict[str, str]
    time: str


Condition = tuple[str, ...]  # the value of each of _CONDITIONS, "" where it does not apply


def evaluations(run: FoundRun) -> dict[Condition, Scores]:
    """Returns the scores of a run, from the newest evaluation under each condition.

    Raises:
      UserError: the record of one is damaged.
    """
    newest: dict[Condition, Scores] = {}
    for path in sorted((run.path / "evaluations").glob("*.json")):
        record = read_json(path, dict)
        if not {"split", "time", "signatures"} <= record.keys():
            continue  # of another command
        if "members" in record:
            record["members"] = len(record["members"])
        condition = tuple(setting(record.get(name, "")) for name in _CONDITIONS)
        if condition not in newest or record["time"] > newest[condition].time:
            newest[condition] = _scores(run, record)
    return newest


def _scores(run: FoundRun, record: dict[str, Any]) -> Scores:
    # A run that writes no capitals has the BLEU of lower-cased references.
    names = {"BLEU": "sacrebleu_lc" if run.config["data.lowercase"] else "sacrebleu", "chrF": "chrf", "F1": "f1"}
    keys = {title: names.get(title, title) for title in DIGITS}
    values = {title: float(record[key]) for title, key in keys.items() if key in record}
    signatures = {title: record["signatures"][key] for title, key in keys.items() if key in record["signatures"]}
    return Scores(values, signatures, record["time"])


def scores_of(runs: Sequence[FoundRun], *, each_run: bool = False) -> Table:
    """Returns the table of the scores of runs: a row for each config, whatever its seed, under each condition.

    Scores are means ± the sample standard deviation over the runs of a row. With `each_run` every run has its own row.

    Raises:
      UserError: no run has been evaluated, or the record of an evaluation is damaged.
    """
    scores = {run.path: evaluations(run) for run in runs if run.config}
    evaluated = [run for run in runs if scores.get(run.path)]
    if not evaluated:
        raise UserError("none of these runs has been evaluated; python -m infer --workdir=RUN --split=test does so")
    keys = [key for key in differing_keys(evaluated) if each_run or key != SEED]
    names = dict(zip(keys, short_names(keys, (*_CONDITIONS, *DIGITS)), strict=True))
    rows = []
    for group in [[run] for run in evaluated] if each_run else by_seeds(evaluated).values():
        config = group[0].config
        before = {names[key]: setting(config[key]) for key in keys if not is_aside(key)}
        after = {names[key]: setting(config[key]) for key in keys if is_aside(key)}
        for condition in dict.fromkeys(condition for run in group for condition in scores[run.path]):
            alike = [scores[run.path][condition] for run in group if condition in scores[run.path]]
            of_evaluation = dict(zip(_CONDITIONS, condition, strict=True))
            name = str(group[0].path) if each_run or not keys else ""  # else the keys say which
            rows.append({"run": name, "runs": str(len(alike))} | before | of_evaluation | _cells(alike) | after)
    left_out = set(_CONDITIONS) - set(_telling([condition for run in evaluated for condition in scores[run.path]]))
    head = tuple(name for name in rows[0] if name not in left_out)
    shared = [f"{name} {rows[0][name]}" for name in _CONDITIONS if name in left_out - {"data"} and rows[0][name]]
    notes = []
    if len(evaluated) < len(runs):
        notes.append(f"not evaluated: {len(runs) - len(evaluated)} of {len(runs)} runs")
    early = [run for run in evaluated if run.state in ("stopped", "training")]
    if early:
        notes.append(f"not trained to the end: {len(early)} of {len(evaluated)} runs")
    if "data" in left_out:
        notes += dict.fromkeys(f"{row['split']} is {row['data']}" for row in rows)
    all_scores = [one for run in evaluated for one in scores[run.path].values()]
    notes += dict.fromkeys(f"{title}: {text}" for one in all_scores for title, text in one.signatures.items())
    return Table("", ", ".join(shared), head, [tuple(row[name] for name in head) for row in rows], notes)


def _telling(conditions: Sequence[Condition]) -> list[str]:
    """Returns the `_CONDITIONS` that differ among evaluations; "data" only if a split has more than one."""
    values = dict(zip(_CONDITIONS, zip(*conditions, strict=True), strict=True))
    telling = [name for name in _CONDITIONS if len(set(values[name])) > 1]
    if "data" in telling and len(set(values["split"])) == len(set(zip(values["split"], values["data"], strict=True))):
        telling.remove("data")
    return telling


def _cells(alike: Sequence[Scores]) -> dict[str, str]:
    """Returns the cell of each score of one or more runs; "" if it was not measured."""
    cells = {}
    for title, digits in DIGITS.items():
        values = [one.values[title] for one in alike if title in one.values]
        cells[title] = spread(values, digits)
    return cells


def score_rows(one: FoundRun, other: FoundRun) -> list[tuple[str, str, str]]:
    """Returns a row for each score that either run has: its name with its condition, and the two values.

    Raises:
      UserError: the record of an evaluation is damaged.
    """
    first, second = evaluations(one), evaluations(other)
    conditions = [*(first | second)]
    rows = []
    for condition in conditions:
        values = dict(zip(_CONDITIONS, condition, strict=True))
        others = [f"{name} {values[name]}" for name in _telling(conditions) if values[name] and name != "split"]
        of_one = _cells([first[condition]] if condition in first else [])
        of_other = _cells([second[condition]] if condition in second else [])
        for title in DIGITS:
            rows.append((", ".join([f"{values['split']} {title}", *others]), of_one[title], of_other[title]))
    return rows
