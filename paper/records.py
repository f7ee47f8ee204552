"""Finds runs, and recognises by the config that each has recorded which row of the paper's tables it is.

A folder's name means nothing. Read are run folders (`config.json`, `metrics.jsonl`, `evaluations/`), the records that
`python -m paper.results` makes of them, the reports of `train.scaling`, and the record of `paper.table1`.
"""

import importlib
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from base.errors import UserError
from base.files import Schema, check, read_json
from base.keys import flat
from base.table import NOT_RUN, spread
from configs.common import default
from infer.scores.bleu import RECORDED
from paper.provenance import caveats
from paper.tables.table1 import check_record as check_layers
from run.config import check_types
from run.folder import FREE_KEYS, LONGEST, as_json, read_metrics
from train.aot.scaling import check_report

# Keys in which a run may differ from a row and still be that row: what a resumed run may change, the seed, and how
# numbers are computed, not which. Where a corpus is stored does not count either, see `_without_folders`.
COMPUTED = ("model.dtype", "model.dropout_bits")
FREE = (*FREE_KEYS, *COMPUTED, "seed", "data.tokenizer")  # a path; the size of its vocabulary counts
PARSING = ("f1", "precision", "recall", "complete_match", "tagging_accuracy", "repaired_share")
_NOT_RUNS = {"checkpoints", "tensorboard", "evaluations", "sweep"}  # folders that hold no runs
_DEFAULTS = flat(as_json(default()))
_EXAMPLES = flat(default().to_dict())  # of the type of each value
_NO_DEVICE = {"kind": "unknown device", "count": 1, "cpus": 0}

CONFIG: Schema = {"seed": int, "steps": int, "data": {"train": str, "valid": str, "test": str}}
LAUNCH: Schema = {"device": {"kind": str, "count": int, "cpus": int}, "command": [str], "data": dict, "git": object}
TRAINING: Schema = {"steps": int, "minutes": float, "validations": [{"step": int, "perplexity": float}]}
EVALUATION: Schema = {
    **dict.fromkeys(("split", "data", "time", "params_sha256"), str),
    **{"params": int, "checkpoints": [int], "signatures": dict},
}
SEARCH: Schema = {"beam": int, "alpha": float, "extra_length": int}
# What an evaluation holds beside that, by the score that tells its kind.
SCORES = {
    "sacrebleu": SEARCH | dict.fromkeys((*RECORDED, "perplexity"), float),
    "f1": SEARCH | dict.fromkeys(PARSING, float),
    "nll_by_position": {"nll": float, "perplexity": float, "nll_by_position": [float]},
    "accuracy": {"accuracy": float, "nll": float},
}


class Evaluation(NamedTuple):
    """A record of `python -m infer` or `infer.parse`, and the file of its output lines, which need not exist."""

    scores: dict[str, Any]
    lines: Path


class RunRecord(NamedTuple):
    """What is known of a run.

    `problem` is "" once all updates are made, else why not; `steps` and `minutes` are of training so far; `launches`
    are those of `run.json`, `validations` the records of `metrics.jsonl`, both oldest first; `caveats` as in
    `paper.provenance`.
    """

    path: Path
    config: dict[str, Any]
    problem: str
    steps: int
    minutes: float
    launches: list[dict[str, Any]]
    evaluations: list[Evaluation]
    validations: list[dict[str, Any]]
    caveats: list[str]

    @property
    def device(self) -> dict[str, Any]:
        """The device of the last launch, as in `run.json`."""
        return self.launches[-1]["device"] if self.launches else _NO_DEVICE


class Records(NamedTuple):
    """Everything below a folder: runs, reports of `train.scaling`, records of `paper.table1`, and what is damaged."""

    runs: list[RunRecord]
    compiled: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    notes: list[str]


class ScoredRun(NamedTuple):
    """A complete run and the evaluation that a row shows."""

    run: RunRecord
    scores: dict[str, Any]
    lines: Path


class RowRuns(NamedTuple):
    """The scored run of each seed of a row; `missing` says in few words why there is none."""

    scored: list[ScoredRun]
    missing: str
    notes: list[str]

    def values(self, key: str) -> list[float]:
        """Returns a score of every seed."""
        return [one.scores[key] for one in self.scored]

    def shown(self, key: str, digits: int = 2) -> str:
        """Returns the mean of a score over the seeds and its spread, or in few words why there is none."""
        return spread(self.values(key), digits) or self.missing or NOT_RUN

    def label(self, name: str) -> str:
        """Returns the row's name, with a dagger if a run has caveats."""
        return f"{name} †" if any(one.run.caveats for one in self.scored) else name


def caveat_notes(rows: dict[str, RowRuns]) -> list[str]:
    """Returns notes that name rows: those of one seed, and for each caveat those with a dagger for it."""
    lone = [name for name, row in rows.items() if len(row.scored) == 1]
    names: dict[str, list[str]] = {}
    for name, row in rows.items():
        for caveat in dict.fromkeys(caveat for one in row.scored for caveat in one.run.caveats):
            names.setdefault(caveat, []).append(name)
    seeds = [f"one seed, so no interval, and no difference is shown to be significant: {', '.join(lone)}"]
    return [*(seeds if lone else []), *(f"† {caveat}: {', '.join(rows)}" for caveat, rows in names.items())]


@cache
def load(name: str) -> ConfigDict:
    """Returns the config that `--config=NAME` would, such as "configs/ablations.py:A1:small"."""
    file, _, argument = name.partition(":")
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    return module.get_config(*([argument] if argument else []))


def find_records(folder: Path) -> Records:
    """Reads everything in `folder` and all folders in it; what is damaged is left out with a note.

    Raises:
      UserError: there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"--runs={folder}: there is no such folder; give one that holds run folders or records")
    records = Records([], [], [], [])
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NOT_RUNS and not name.startswith("."))
        is_run = "config.json" in files
        for file in ["config.json"] if is_run else sorted(name for name in files if name.endswith(".json")):
            try:
                if is_run:
                    records.runs.append(read_run(Path(place)))
                else:
                    _read_file(Path(place) / file, records)
            except UserError as error:
                records.notes.append(f"left out: {error}")
    return records


def read_run(folder: Path) -> RunRecord:
    """Reads a run folder.

    Raises:
      UserError: it is none, or a file in it is damaged.
    """
    config, path = read_json(folder / "config.json", CONFIG), folder / "run.json"
    check_types(flat(config), _EXAMPLES, f"{folder}/config.json: damaged")
    launches = read_json(path, {"launches": [dict]})["launches"] if path.exists() else []
    metrics = read_metrics(folder)
    updates = [record for record in metrics if record["kind"] == "train"] or [{"step": 0, "seconds": 0}]
    evaluations = [(file, read_json(file, dict)) for file in sorted((folder / "evaluations").glob("*.json"))]
    return RunRecord(
        folder,
        config,
        _problem(folder, config["steps"], updates[-1]["step"]),
        updates[-1]["step"],
        updates[-1]["seconds"] / 60,
        _checked_launches(path, "", launches),
        [_evaluation(file, "", scores) for file, scores in evaluations if SCORES.keys() & scores.keys()],
        [record for record in metrics if record["kind"] == "valid"],
        caveats(launches),
    )


def _checked_launches(path: Path, where: str, launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    check(path, where, launches, [LAUNCH])
    check(path, where, [launch["git"] for launch in launches if launch["git"]], [{"commit": str, "dirty": bool}])
    return launches


def _evaluation(path: Path, where: str, scores: dict[str, Any]) -> Evaluation:
    for kind in SCORES.keys() & scores.keys():
        check(path, where, scores, EVALUATION | SCORES[kind])
        if kind == "sacrebleu" and scores["perplexity"] <= 0:
            raise UserError(f"{path}: damaged: perplexity is {scores['perplexity']}; it must be above 0")
        for key, value in scores.items():
            if isinstance(value, int | float) and not value >= 0:
                raise UserError(f"{path}: damaged: {key} is {value}; it must be at least 0")
    return Evaluation(scores, path.with_suffix(".txt"))


def _problem(folder: Path, steps: int, done: int) -> str:
    if done >= steps:
        return ""
    result = folder.parent / "sweep" / "results" / f"{folder.name}.json"
    outcome = {"state": "unfinished", "reason": ""}
    if result.exists():
        outcome = read_json(result, dict.fromkeys(outcome, str))
    state = "unfinished" if outcome["state"] == "done" else outcome["state"]
    return f"{state} ({outcome['reason'] or f'{done:,} of {steps:,} updates'})"


def _read_file(path: Path, records: Records) -> None:
    """Adds what is in a JSON file to `records`; passes over what is of another kind."""
    content = read_json(path, object)
    keys = content.keys() if isinstance(content, dict) else set()
    if {"config", "evaluation", "launches", "training"} <= keys:
        records.runs.append(read_result(path))
    elif {"arguments", "report"} <= keys:
        records.compiled.append(check_report(path, content)["report"])
    elif {"types", "crossovers", "paths_at"} <= keys:
        records.layers.append(check_layers(path, content))


def read_result(path: Path) -> RunRecord:
    """Reads a record that `paper.results` wrote, from a file that holds an object.

    Raises:
      UserError: it is damaged.
    """
    schema = {"config": CONFIG, "evaluation": dict, "launches": [dict], "training": TRAINING}
    content = read_json(path, schema)
    check_types(flat(content["config"]), _EXAMPLES, f"{path}: damaged: config")
    training = content["training"]
    if not 0 <= training["minutes"] <= LONGEST / 60:
        raise UserError(f"{path}: damaged: training.minutes is {training['minutes']}; it cannot be")
    launches = _checked_launches(path, "launches", content["launches"])
    return RunRecord(
        path,
        content["config"],
        _problem(path, content["config"]["steps"], training["steps"]),
        training["steps"],
        training["minutes"],
        launches,
        [_evaluation(path, "evaluation", content["evaluation"])],
        training["validations"],
        check(path, "caveats", content["caveats"], [str]) if "caveats" in content else caveats(launches),
    )


def newest_with_checkpoints(records: Records) -> RunRecord | None:
    """Returns the complete run of translation, last trained, that can still translate; None where there is none."""
    able = [
        run
        for run in records.runs
        if not run.problem
        and (run.path / "checkpoints").is_dir()
        and _complete(run.config)["task"] == "translation"
        and not run.config["data"]["train"].startswith("trees:")
    ]
    return max(able, key=lambda run: (run.path / "metrics.jsonl").stat().st_mtime, default=None)


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """Returns what makes a run the one it is: every key that is not `FREE`, by its dotted name."""
    fixed = {key: value for key, value in _complete(config).items() if not key.startswith(FREE)}
    return fixed | {key: _without_folders(fixed[key]) for key in fixed if key in ("data.train", "data.valid")}


def _complete(config: dict[str, Any]) -> dict[str, Any]:
    """All keys; one that a record lacks is newer than the record and has its default, with which new keys are off."""
    return _DEFAULTS | flat(config)


def _without_folders(spec: str) -> str:
    """A corpus spec without the folders of its files; of `tfds:` the dataset's name stays, without a version."""
    if spec.startswith("tfds:"):
        name, colon, rest = spec.removeprefix("tfds:").partition(":")
        parts = [part for part in name.split("/") if not re.fullmatch(r"\d+\.\d+\.\d+", part)]
        return f"tfds:{'/'.join(parts[-2:])}{colon}{rest}"
    return re.sub(r"[^\s:{}]*/", "", spec)


def row_runs(records: Records, name: str, split: str, measure: str = "sacrebleu") -> RowRuns:
    """Returns the runs of the config `name`, scored on `split` as that config decodes: the newest of each seed.

    An evaluation counts if it has `measure`, was made of the row's text after all updates, and averaged as many
    checkpoints, with the same beam and length penalty, as the row's config says.
    """
    config = as_json(load(name))
    wanted = identity(config)
    mine = [run for run in records.runs if identity(run.config) == wanted]
    scored: list[ScoredRun] = []
    notes: list[str] = []
    problems: list[str] = []
    unscored: list[str] = []  # shown only where no seed is scored, for one run can belong to rows of two tables
    for seed in sorted({run.config["seed"] for run in mine}):
        same = [run for run in mine if run.config["seed"] == seed]
        complete = [run for run in same if not run.problem]
        evaluated = [ScoredRun(run, *e) for run in complete for e in run.evaluations if measure in e.scores]
        if fitting := [one for one in evaluated if fits(one.scores, config, split)]:
            newest = max(fitting, key=lambda one: one.scores["time"])
            scored.append(newest)
            parameters, path = newest.scores["params_sha256"], newest.run.path
            if others := {one.run.path for one in fitting if one.scores["params_sha256"] != parameters} - {path}:
                names = ", ".join(sorted(map(str, others)))
                notes.append(f"{name}, seed {seed}: the newest is taken, {path}; not {names}")
        else:
            problems += [run.problem or f"not evaluated on {split}" for run in same]
            notes += [f"{name}, seed {seed}: {run.problem}, {run.path}" for run in same if run.problem]
            unscored += [f"{name}, seed {seed}: {_wanted(config, split)}, {run.path}" for run in complete]
    differing = {f"{key}={_complete(one.run.config)[key]}" for one in scored for key in COMPUTED}
    differing -= {f"{key}={_complete(config)[key]}" for key in COMPUTED}
    notes += [f"{name}: run with {', '.join(sorted(differing))}"] if differing else []
    notes += [] if scored else unscored
    missing = "" if scored else ", ".join(dict.fromkeys(problem.partition(" (")[0] for problem in problems))
    return RowRuns(scored, missing, notes)


def _wanted(config: dict[str, Any], split: str) -> str:
    decode = config["decode"]
    asked = f"--checkpoint={decode['checkpoint']}, beam {decode['beam']} and alpha {decode['alpha']:g}"
    return f"no evaluation of {split} with {asked}"


def fits(scores: dict[str, Any], config: dict[str, Any], split: str) -> bool:
    """Returns whether an evaluation was made as `config` says, of the parameters after its last update."""
    decode = config["decode"]
    count = 1 if decode["checkpoint"] == "latest" else int(decode["checkpoint"].removeprefix("average:"))
    steps = scores["checkpoints"]
    return (
        scores["split"] == split
        and _without_folders(scores["data"]) == _without_folders(config["data"][split])
        and (len(steps), steps[-1:]) == (count, [config["steps"]])
        and all(scores[key] == decode[key] for key in SEARCH if key in scores)
    )
