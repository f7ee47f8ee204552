"""Finds runs and reads their records.

Reads run folders (`config.json`, `metrics.jsonl`, `evaluations/`), which may come from anywhere and are checked, and
what our own commands write and nobody edits: files of records, one a line (.jsonl), each of a run or of what
`python -m train.compile` reports, and the record of `paper.table1`. `paper.rows` knows which row of a table a run is.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.files import read_bytes, walk, write_text
from vaswani.infer.scores.bleu import TABLED
from vaswani.paper.provenance import caveats
from vaswani.read_json import Schema, check, read_json, read_json_lines
from vaswani.run.config import check_keys, with_defaults
from vaswani.run.records import read_metrics
from vaswani.train.schedule import Patience

PARSING = ("f1", "precision", "recall", "complete_match", "tagging_accuracy", "repaired_share")
_OF_A_RUN = {"checkpoints", "tensorboard", "evaluations"}  # subfolders of a run that hold no runs
_OF_A_RECORD = {"name", "config", "evaluation", "caveats", "launches", "training"}  # keys in the record of a run
_EXAMPLE = default().to_dict()  # of every key, and of the type of its value
_NO_DEVICE = {"kind": "unknown device", "count": 1, "cpus": 0}

CONFIG: Schema = {"seed": int, "steps": int, "data": {"train": str, "valid": str, "test": str}}
LAUNCH: Schema = {"device": {"kind": str, "count": int, "cpus": int}, "command": [str], "data": dict, "git": object}
EVALUATION: Schema = {
    "split": str,
    "data": str,
    "time": str,
    "params": int,
    "params_sha256": str,
    "checkpoints": [int],
    "signatures": dict,
}
SEARCH: Schema = {"beam": int, "alpha": float, "extra_length": int}
# What else an evaluation holds, by the score that tells its kind.
SCORES = {
    "sacrebleu": SEARCH | dict.fromkeys((*TABLED, "perplexity"), float),
    "f1": SEARCH | dict.fromkeys(PARSING, float),
    "nll_by_position": {"nll": float, "perplexity": float, "nll_by_position": [float], "tokens": int},
    "accuracy": {"accuracy": float, "nll": float},
    "by_length": {"by_length": [{"words": list, "lines": int, "sacrebleu": float}]},
    "contrasts": {"contrasts": [{"relation": str, "words": list, "cases": int, "right": int}]},
}


def without_flags(command: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns a command without these flags and their values, as in --NAME=VALUE, --NAME VALUE, or just --NAME."""
    kept = []
    drops_value = False
    for argument in command:
        if argument.startswith("-"):
            name, has_value, _ = argument.lstrip("-").partition("=")
            is_dropped = name in names
            drops_value = is_dropped and not has_value
        else:
            is_dropped = drops_value
            drops_value = False
        if not is_dropped:
            kept.append(argument)
    return kept


class Evaluation(NamedTuple):
    """A record of `python -m infer` or `infer.parse`, and the file of its output lines, which need not exist."""

    scores: dict[str, Any]
    lines: Path

    @property
    def members(self) -> int:
        """How many runs it is of: more than 1 of an ensemble."""
        return len(self.scores["members"]) if "members" in self.scores else 1


class RunRecord(NamedTuple):
    """What is known of a run.

    `config` has every key; `problem` is "" once training has ended, else why not; `steps` and `minutes` are of
    training so far; `launches` are those of `run.json`, `validations` the records of `metrics.jsonl`, both oldest
    first; `caveats` as in `paper.provenance`; `record` is the name in a file of records, which `path` then is, and ""
    of a run's folder.
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
    record: str = ""

    @property
    def label(self) -> str:
        """What a note calls the run: the name of its record, or its folder."""
        return self.record or str(self.path)

    @property
    def begun(self) -> bool:
        """Whether it began with the parameters of another run."""
        return any("init" in launch for launch in self.launches)

    @property
    def device(self) -> dict[str, Any]:
        """The device of the last launch, as in `run.json`."""
        return self.launches[-1]["device"] if self.launches else _NO_DEVICE


class Records(NamedTuple):
    """Everything below some folders: runs, reports of `train.compile`, records of `paper.table1`, and what is damaged.

    The records of `paper.table1`, `layers`, are oldest first. `of_studies` are records that name their `study`, the
    only code that knows their form.
    """

    runs: list[RunRecord]
    compiled: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    notes: list[str]
    of_studies: Sequence[dict[str, Any]] = ()


def find_records(*folders: Path) -> Records:
    """Reads everything in these folders and all folders in them; what is damaged is left out with a note.

    Raises:
      UserError: there is no such folder.
    """
    of_studies: list[dict[str, Any]] = []
    records = Records([], [], [], [])
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"--runs={folder}: there is no such folder; give one that holds run folders or records")
        for path in _json_files(folder):
            try:
                _read(path, records, of_studies)
            except UserError as error:
                records.notes.append(f"left out: {error}")
    records.layers.sort(key=lambda measured: str(measured.get("time", "")))
    return records._replace(of_studies=tuple(of_studies))


def _json_files(folder: Path) -> Iterator[Path]:
    """Yields the files in which there may be something to read: of a run's folder, only its config."""
    for place, folders, files in walk(folder):
        is_run = "config.json" in files
        without_runs = _OF_A_RUN if is_run else set()
        if (place / "sweep" / "plan.json").is_file():  # anyone may call a folder of runs "sweep"
            without_runs = without_runs | {"sweep"}
        # `walk` goes on with the folders that are left in this list, in its order.
        folders[:] = sorted(name for name in folders if name not in without_runs and not name.startswith("."))
        if is_run:
            yield place / "config.json"
        else:
            yield from sorted(place / name for name in files if name.endswith((".json", ".jsonl")))
        # Only links to runs are followed, since others may lead anywhere.
        for name in folders:
            config = place / name / "config.json"
            if (place / name).is_symlink() and config.is_file():
                yield config


def _read(path: Path, records: Records, of_studies: list[dict[str, Any]]) -> None:
    """Adds the run whose config is at `path`, or what else is in a JSON file; passes over what is of another kind."""
    if path.name == "config.json":
        records.runs.append(read_run(path.parent))
        return
    lines = read_json_lines(path, object) if path.suffix == ".jsonl" else [read_json(path, object)]
    contents = [content for content in lines if isinstance(content, dict)]
    # Nothing is added from a damaged file: half of its seeds would look like a row that has run.
    records.runs.extend([recorded_run(path, content) for content in contents if content.keys() >= _OF_A_RECORD])
    for content in contents:
        if {"name", "arguments", "report"} <= content.keys():
            report = content["report"]
            records.compiled.append({**report, "config": with_defaults(report["config"])})
        elif {"types", "crossovers", "paths_at"} <= content.keys():
            records.layers.append(content)
        elif "study" in content:
            of_studies.append(content)


def read_run(folder: Path) -> RunRecord:
    """Reads a run folder.

    Raises:
      UserError: it is none, or a file in it is damaged.
    """
    config = with_defaults(read_json(folder / "config.json", CONFIG))
    check_keys(config, _EXAMPLE, f"{folder}/config.json: damaged")
    launches = _read_launches(folder / "run.json")
    metrics = read_metrics(folder)
    updates = [record for record in metrics if record["kind"] == "train"]
    steps = max((record["step"] for record in metrics), default=0)  # the last ones may have no separate line
    seconds = updates[-1]["seconds"] if updates else 0.0
    validations = [record for record in metrics if record["kind"] == "valid"]
    evaluations = [_read_evaluation(path) for path in sorted((folder / "evaluations").glob("*.json"))]
    return RunRecord(
        path=folder,
        config=config,
        problem=_problem(folder, config, steps, validations),
        steps=steps,
        minutes=seconds / 60,
        launches=launches,
        evaluations=[evaluation for evaluation in evaluations if evaluation is not None],
        validations=validations,
        caveats=caveats(launches),
    )


def newest_evaluation(run_record: RunRecord, split: str) -> Evaluation:
    """Returns a run's newest evaluation of `split`, by itself, not in an ensemble.

    Raises:
      UserError: the split has not been evaluated.
    """
    evaluations = [
        evaluation
        for evaluation in run_record.evaluations
        if evaluation.scores["split"] == split and evaluation.members == 1
    ]
    if not evaluations:
        raise UserError(
            f"{run_record.path}: no evaluation of the {split} split; run python -m infer --workdir={run_record.path} "
            f"--split={split}, or for a parser infer.parse"
        )
    return max(evaluations, key=lambda evaluation: evaluation.scores["time"])


def _read_launches(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    launches = read_json(path, {"launches": [dict]})["launches"]
    check(path, "", launches, [LAUNCH])
    check(path, "", [launch["git"] for launch in launches if launch["git"]], [{"commit": str, "dirty": bool}])
    check(path, "", [launch["init"] for launch in launches if "init" in launch], [{"run": str}])
    return launches


def _read_evaluation(path: Path) -> Evaluation | None:
    """Returns None for a file of another kind."""
    scores = read_json(path, dict)
    kinds = SCORES.keys() & scores.keys()
    if "members" in scores:
        check(path, "", scores, {"members": [str]})
    for kind in kinds:
        check(path, "", scores, EVALUATION | SCORES[kind])
        if kind == "sacrebleu" and scores["perplexity"] <= 0:
            raise UserError(f"{path}: damaged: perplexity is {scores['perplexity']}; it must be above 0")
        for key, value in scores.items():
            if isinstance(value, int | float) and not value >= 0:
                raise UserError(f"{path}: damaged: {key} is {value}; it must be at least 0")
    return Evaluation(scores, path.with_suffix(".txt")) if kinds else None


def _problem(path: Path, config: dict[str, Any], done: int, validations: list[dict[str, Any]]) -> str:
    """Returns the reason, from its sweep if it has one, that a run made only `done` of its steps.

    Returns "" if it made all, or if its patience has ended.
    """
    limit = config["eval"]["patience"]
    if limit:
        check(path, "", validations, [{"kind": str, "nll": float}])
    if done >= config["steps"] or (limit and Patience(limit, validations).ended):
        return ""
    state = "unfinished"
    reason = f"{done:,} of {config['steps']:,} updates"
    result = path.parent / "sweep" / "results" / f"{path.name}.json"
    if result.exists():
        outcome = read_json(result, {"state": str, "reason": str})
        reason = outcome["reason"] or reason
        if outcome["state"] != "done":
            state = outcome["state"]
    return f"{state} ({reason})"


def recorded_run(path: Path, content: dict[str, Any]) -> RunRecord:
    """Returns the run of a record that `paper.results` wrote into the file `path`."""
    config = with_defaults(content["config"])
    training = content["training"]
    return RunRecord(
        path=path,
        config=config,
        problem=_problem(path, config, training["steps"], training["validations"]),
        steps=training["steps"],
        minutes=training["minutes"],
        launches=content["launches"],
        evaluations=[Evaluation(content["evaluation"], path / content["name"])],  # the lines are not kept
        validations=training["validations"],
        caveats=content["caveats"],
        record=content["name"],
    )


def save(path: Path, record: dict[str, Any]) -> None:
    """Writes a record into a file of records, replacing one of the same name; the file need not exist.

    Raises:
      UserError: the file is damaged, or cannot be written.
    """
    if path.exists() and not read_bytes(path).endswith(b"\n"):
        raise UserError(f"{path}: its last line has no end, and its record would be lost; end it with a line feed")
    others = [other for other in read_json_lines(path, {"name": str}) if other["name"] != record["name"]]
    records = sorted([*others, record], key=lambda saved: saved["name"])
    lines = [json.dumps(saved, ensure_ascii=False, separators=(",", ":")) for saved in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(f"{line}\n" for line in lines))
