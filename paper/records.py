"""Finds runs, and tells by the config that each has recorded which row of the paper's tables it is.

A folder's name means nothing. Found are run folders (`config.json`, `metrics.jsonl`, `evaluations/`), the records that
`python -m paper.results` makes of them, the reports of `train.scaling`, and the record of `paper.table1`.
"""

import importlib
import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from base.errors import UserError, flat
from configs.common import default
from run.folder import FREE_KEYS, as_json, read_json, read_metrics

# Keys in which a run may differ from a row and be that row all the same: what a resumed run may change, the seed, and
# how numbers are computed, not which. Where a corpus lies is left out as well, see `_without_folders`.
COMPUTED = ("model.dtype", "model.dropout_bits")
FREE = (*FREE_KEYS, *COMPUTED, "seed")
_NOT_RUNS = {"checkpoints", "tensorboard", "evaluations", "sweep"}  # folders in which no run begins


class Evaluation(NamedTuple):
    """A record of `python -m infer`, and the file in which its translations are, if they were kept."""

    scores: dict[str, Any]
    translations: Path


class Run(NamedTuple):
    """A run as it was left.

    `problem` is "" once all updates are made, else why not. `minutes` is of training, `device` as in `run.json`;
    `validations` are records of `metrics.jsonl`, oldest first.
    """

    path: Path
    config: dict[str, Any]
    problem: str
    minutes: float
    device: dict[str, Any]
    evaluations: list[Evaluation]
    validations: list[dict[str, Any]]


class Found(NamedTuple):
    """Everything below a folder: runs, reports of `train.scaling`, records of `paper.table1`, and unreadable files."""

    runs: list[Run]
    compiled: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    notes: list[str]


class Scored(NamedTuple):
    """A complete run and the evaluation that belongs into its row."""

    run: Run
    scores: dict[str, Any]
    translations: Path


class Row(NamedTuple):
    """What there is of a row: a scored run for each seed, and if there is none, in few words why."""

    scored: list[Scored]
    missing: str
    notes: list[str]

    def values(self, key: str) -> list[float]:
        """A score of every seed."""
        return [one.scores[key] for one in self.scored]


@cache
def load(name: str) -> ConfigDict:
    """Returns the config that `--config=NAME` would, such as "configs/ablations.py:A1:small"."""
    file, _, argument = name.partition(":")
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    return module.get_config(*([argument] if argument else []))


def search(folder: Path) -> Found:
    """Looks through `folder` and all folders in it.

    Raises:
      UserError: there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"--runs={folder}: there is no such folder; give one that holds run folders or records")
    found = Found([], [], [], [])
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NOT_RUNS and not name.startswith("."))
        try:
            if "config.json" in files:
                found.runs.append(read_run(Path(place)))
                continue
        except UserError as error:
            found.notes.append(f"left out: {error}")
            continue
        for file in sorted(name for name in files if name.endswith(".json")):
            _read_file(Path(place) / file, found)
    return found


def read_run(folder: Path) -> Run:
    """Reads a run folder; `UserError` where a file of it is damaged."""
    config = read_json(folder / "config.json")
    launches = read_json(folder / "run.json")["launches"] if (folder / "run.json").exists() else []
    records = read_metrics(folder)
    updates = [record for record in records if record["kind"] == "train"]
    return Run(
        folder,
        config,
        _problem(folder, config["steps"], updates[-1]["step"] if updates else 0),
        updates[-1]["seconds"] / 60 if updates else 0.0,
        launches[-1]["device"] if launches else {},
        [Evaluation(read_json(path), path.with_suffix(".txt")) for path in (folder / "evaluations").glob("*.json")],
        [record for record in records if record["kind"] == "valid"],
    )


def _problem(folder: Path, steps: int, done: int) -> str:
    if done >= steps:
        return ""
    result = folder.parent / "sweep" / "results" / f"{folder.name}.json"
    outcome = read_json(result) if result.exists() else {"state": "unfinished", "reason": ""}
    state = "unfinished" if outcome["state"] == "done" else outcome["state"]
    return f"{state} ({outcome['reason'] or f'{done:,} of {steps:,} updates'})"


def _read_file(path: Path, found: Found) -> None:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        found.notes.append(f"left out: {path}: damaged, not JSON ({error})")
        return
    if not isinstance(content, dict):
        return
    if {"config", "evaluation", "launches", "training"} <= content.keys():
        training, steps = content["training"], content["config"]["steps"]
        found.runs.append(
            Run(
                path,
                content["config"],
                _problem(path, steps, training["steps"]),
                training["minutes"],
                content["launches"][-1]["device"] if content["launches"] else {},
                [Evaluation(content["evaluation"], path.with_suffix(".txt"))],
                training.get("validations", []),  # older records have none
            )
        )
    elif {"arguments", "report"} <= content.keys():
        found.compiled.append(content["report"])
    elif {"types", "crossovers", "paths_at"} <= content.keys():
        found.layers.append(content)


def newest_with_checkpoints(found: Found) -> Run | None:
    """The complete run of translation, last trained, that can still translate; None where there is none."""
    able = [
        run
        for run in found.runs
        if not run.problem
        and (run.path / "checkpoints").is_dir()
        and not str(run.config["data"]["train"]).startswith("trees:")
    ]
    return max(able, key=lambda run: (run.path / "metrics.jsonl").stat().st_mtime, default=None)


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """What makes a run the one it is: every key that is not `FREE`, by its dotted name."""
    kept = {key: value for key, value in _whole(config).items() if not key.startswith(FREE)}
    return kept | {key: _without_folders(kept[key]) for key in kept if key in ("data.train", "data.valid")}


def _whole(config: dict[str, Any]) -> dict[str, Any]:
    """All keys: one that a record lacks is younger than the record and has its default, for new keys are off there."""
    return _defaults() | flat(config)


@cache
def _defaults() -> dict[str, Any]:
    return flat(as_json(default()))


def _without_folders(spec: str) -> str:
    """A corpus spec without the folders that its files lie in; of `tfds:` the set's name stays, without a version."""
    if spec.startswith("tfds:"):
        name, colon, rest = spec.removeprefix("tfds:").partition(":")
        parts = [part for part in name.split("/") if not re.fullmatch(r"\d+\.\d+\.\d+", part)]
        return f"tfds:{'/'.join(parts[-2:])}{colon}{rest}"
    return re.sub(r"[^\s:{}]*/", "", spec)


def find(found: Found, name: str, split: str, measure: str = "sacrebleu") -> Row:
    """Returns the runs of the config `name`, scored on `split` as that config decodes: the newest of each seed.

    An evaluation counts if it has `measure`, its text is the row's, all updates were made before it, and as many
    checkpoints were averaged, with the same beam and length penalty, as the row's config says.
    """
    config = as_json(load(name))
    wanted = identity(config)
    mine = [run for run in found.runs if identity(run.config) == wanted]
    scored: list[Scored] = []
    notes: list[str] = []
    problems: list[str] = []
    idle: list[str] = []  # said only where no seed is scored, for one run can belong to rows of two tables
    for seed in sorted({run.config["seed"] for run in mine}):
        same = [run for run in mine if run.config["seed"] == seed]
        whole = [run for run in same if not run.problem]
        kept = [Scored(run, *e) for run in whole for e in run.evaluations if measure in e.scores]
        choice = [one for one in kept if fits(one.scores, config, split)]
        choice.sort(key=lambda one: one.scores["time"])
        if choice:
            scored.append(choice[-1])
            others = {one.run.path for one in choice if not _is_same(one, choice[-1])} - {choice[-1].run.path}
            if others:
                names = ", ".join(sorted(map(str, others)))
                notes.append(f"{name}, seed {seed}: the newest is taken, {choice[-1].run.path}; not {names}")
        else:
            problems += [run.problem or f"not evaluated on {split}" for run in same]
            notes += [f"{name}, seed {seed}: {run.problem}, {run.path}" for run in same if run.problem]
            idle += [f"{name}, seed {seed}: {_ask(config, split)}, {run.path}" for run in same if not run.problem]
    departures = {f"{key}={_whole(one.run.config)[key]}" for one in scored for key in COMPUTED}
    departures -= {f"{key}={_whole(config)[key]}" for key in COMPUTED}
    notes += [f"{name}: run with {', '.join(sorted(departures))}"] if departures else []
    notes += [] if scored else idle
    missing = "" if scored else ", ".join(dict.fromkeys(problem.partition(" (")[0] for problem in problems))
    return Row(scored, missing, notes)


def _is_same(one: Scored, other: Scored) -> bool:
    return one.scores["params_sha256"] == other.scores["params_sha256"]


def _ask(config: dict[str, Any], split: str) -> str:
    decode = config["decode"]
    asked = f"--checkpoint={decode['checkpoint']}, beam {decode['beam']} and alpha {decode['alpha']:g}"
    return f"no evaluation of {split} with {asked}"


def fits(scores: dict[str, Any], config: dict[str, Any], split: str) -> bool:
    """Whether an evaluation was made as `config` says, of the parameters after its last update."""
    decode = config["decode"]
    count = 1 if decode["checkpoint"] == "latest" else int(decode["checkpoint"].removeprefix("average:"))
    steps = scores["checkpoints"]
    return (
        scores["split"] == split
        and _without_folders(scores["data"]) == _without_folders(config["data"][split])
        and (len(steps), steps[-1]) == (count, config["steps"])
        and all(scores[key] == decode[key] for key in ("beam", "alpha", "extra_length"))
    )
