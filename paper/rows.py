"""Which row of a table or study a run is: known by its config, scored as that config decodes, one run for each seed.

A run may differ from its row in what a resumed run may change, in its seed, and in how numbers are computed.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from vaswani.keys import flat
from vaswani.paper.records import SEARCH, Records, RunRecord
from vaswani.run.folder import as_json
from vaswani.run.unchanged import FREE_KEYS
from vaswani.train.table import NOT_RUN, spread

# Keys in which a run may differ from a row and still be that row: what a resumed run may change, the seed, and how
# numbers are computed, not which. Where a corpus is stored does not count either, see `_without_folders`.
COMPUTED = ("model.dtype", "model.dropout_bits", "cpu_bfloat16")
FREE = (*FREE_KEYS, *COMPUTED, "seed", "data.tokenizer")  # a path; the size of its vocabulary counts
PATIENCE = "eval.patience"


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
        return [seed.scores[key] for seed in self.scored]

    def shown(self, key: str, digits: int = 2) -> str:
        """Returns the mean of a score over the seeds and its spread, or in few words why there is none."""
        return spread(self.values(key), digits) or self.missing or NOT_RUN

    def label(self, name: str) -> str:
        """Returns the row's name, with a dagger if a run has caveats."""
        return marked(name, [seed.run for seed in self.scored])


def run_notes(rows: Mapping[str, RowRuns]) -> list[str]:
    """Returns the notes of all rows, one after the other."""
    notes: list[str] = []
    for row in rows.values():
        notes += row.notes
    return notes


def caveat_notes(rows: Mapping[str, RowRuns]) -> list[str]:
    """Returns notes that name rows: with one seed only, and for each caveat the rows with its dagger."""
    runs = {name: [seed.run for seed in row.scored] for name, row in rows.items()}
    notes: list[str] = []
    lone = [name for name, of_row in runs.items() if len(of_row) == 1]
    if lone:
        notes.append(f"one seed, so no interval, and no difference is shown to be significant: {', '.join(lone)}")
    return notes + dagger_notes(runs)


def dagger_notes(runs: Mapping[str, Sequence[RunRecord]]) -> list[str]:
    """Returns for each caveat a note that names the rows with a dagger for it, given the runs of each row."""
    names: dict[str, list[str]] = {}
    for name, of_row in runs.items():
        for caveat in dict.fromkeys(caveat for run in of_row for caveat in run.caveats):
            names.setdefault(caveat, []).append(name)
    return [f"† {caveat}: {', '.join(marked)}" for caveat, marked in names.items()]


def marked(name: str, runs: Sequence[RunRecord]) -> str:
    """Returns a row's name, with a dagger if one of its runs has caveats."""
    return f"{name} †" if any(run.caveats for run in runs) else name


@cache
def load(name: str) -> ConfigDict:
    """Returns the config that `--config=NAME` would, such as "configs/ablations.py:A1:small"."""
    file, _, argument = name.partition(":")
    name_of_file = file.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(f"vaswani.{name_of_file}" if file.startswith("configs/") else name_of_file)
    return module.get_config(argument) if argument else module.get_config()


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """Returns a run's identity: every key that is not `FREE`, and patience, by its dotted name."""
    flat_config = flat(config)
    fixed = {key: value for key, value in flat_config.items() if not key.startswith(FREE)}
    fixed[PATIENCE] = flat_config[PATIENCE]  # it may end a run early
    for key in ("data.train", "data.valid"):
        fixed[key] = _without_folders(fixed[key])
    return fixed


def is_of(config: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Returns whether a config has the identity `wanted`."""
    # First what most differ in: to flatten each config for every row takes a minute.
    if config["steps"] != wanted["steps"] or config["model"]["d_model"] != wanted["model.d_model"]:
        return False
    return _without_folders(config["data"]["train"]) == wanted["data.train"] and identity(config) == wanted


# WMT14 as Hugging Face has it, docs/configs.md: the same pairs as tensorflow-datasets'.
_WMT14_COPY = re.compile(r"parquet:(?:.*/)?wmt14/(\w\w-en)/(train|validation|test)-\*\.parquet:(\{\w\w,\w\w\})")


@cache
def _without_folders(spec: str) -> str:
    """Returns a corpus spec without its files' folders; of `tfds:` the dataset's name stays, without a version."""
    copy = _WMT14_COPY.fullmatch(spec)
    if copy:
        pair, part, languages = copy.groups()
        return f"tfds:wmt14_translate/{pair}:{part}:{languages}"
    if spec.startswith("tfds:"):
        name, colon, rest = spec.removeprefix("tfds:").partition(":")
        parts = [part for part in name.split("/") if not re.fullmatch(r"\d+\.\d+\.\d+", part)]
        return f"tfds:{'/'.join(parts[-2:])}{colon}{rest}"
    return re.sub(r"[^\s:{}]*/", "", spec)


def row_runs(
    records: Records,
    name: str,
    split: str,
    measure: str = "sacrebleu",
    members: int = 1,
    *,
    begun: bool = False,
) -> RowRuns:
    """Returns the runs of the config `name`, scored on `split` as that config decodes: the newest of each seed.

    An evaluation counts if it has `measure`, was made on the row's text after all updates, and has the average of
    checkpoints, the beam and the length penalty of the row's config; if checkpoints are averaged, they must
    have been saved as often as the row says. It must also be of an ensemble of exactly `members` runs, which is listed
    under its first member's seed; 1 is a single run. A run that began with the parameters of another (--init) counts if
    `begun`, and only then.
    """
    config = as_json(load(name))
    wanted = identity(config)
    runs_of_seed: dict[int, list[RunRecord]] = {}
    for run in records.runs:
        if run.begun == begun and is_of(run.config, wanted):
            runs_of_seed.setdefault(run.config["seed"], []).append(run)
    scored: list[ScoredRun] = []
    notes: list[str] = []
    problems: list[str] = []
    unscored: list[str] = []  # shown only where no seed is scored, for one run can belong to rows of two tables
    for seed in sorted(runs_of_seed):
        runs = runs_of_seed[seed]
        where = f"{name}, seed {seed}"
        fitting = _fitting(runs, config, split, measure, members)
        if fitting:
            newest = max(fitting, key=lambda candidate: candidate.scores["time"])
            scored.append(newest)
            notes += _not_taken(fitting, newest, where)
            continue
        for run in runs:
            if run.problem:
                problems.append(run.problem)
                notes.append(f"{where}: {run.problem}, {run.label}")
            else:
                problems.append(f"not evaluated on {split}")
                unscored.append(f"{where}: {_wanted(config, split)}, {run.label}")
    if scored:
        return RowRuns(scored, "", notes + _computed_otherwise(scored, config, name) + _of_other_texts(scored, name))
    in_short = dict.fromkeys(problem.partition(" (")[0] for problem in problems)
    return RowRuns([], ", ".join(in_short), notes + unscored + _of_files(records, wanted, name))


def _of_files(records: Records, wanted: dict[str, Any], name: str) -> list[str]:
    """Returns a note on each run that differs from the row only in reading files instead of its `tfds:` corpus."""
    if not wanted["data.train"].startswith("tfds:"):
        return []
    notes: list[str] = []
    for run in records.runs:
        train = run.config["data"]["train"]
        if not train.startswith(("parquet:", "text:", "tsv:")):
            continue
        files = {f"data.{key}": _without_folders(run.config["data"][key]) for key in ("train", "valid")}
        if is_of(run.config, wanted | files):
            notes.append(f"{name}: {run.label} does not count; it read {train}, and the row has {wanted['data.train']}")
    return notes


def _fitting(runs: list[RunRecord], config: dict[str, Any], split: str, measure: str, members: int) -> list[ScoredRun]:
    """Returns the evaluations of complete runs that a row of this config may show."""
    fitting: list[ScoredRun] = []
    averages = config["decode"]["checkpoint"].startswith("average:")
    for run in runs:
        if run.problem or (averages and not _is_spaced_alike(run, config)):
            continue
        for evaluation in run.evaluations:
            scores = evaluation.scores
            if evaluation.members != members or measure not in scores:
                continue
            if "beam" in scores and not _is_searched_alike(scores, run, config):
                continue
            if fits(scores, config, split, run.steps):
                fitting.append(ScoredRun(run, scores, evaluation.lines))
    return fitting


def _is_searched_alike(scores: dict[str, Any], run: RunRecord, config: dict[str, Any]) -> bool:
    """Returns whether an evaluation has the length penalty and the stopping of the row.

    An older record does not name them: its length penalty was its run's, and its search exact.
    """
    penalty = scores.get("length_penalty", run.config["decode"]["length_penalty"])
    stopping = scores.get("stopping", "exact")
    decode = config["decode"]
    return bool(penalty == decode["length_penalty"] and stopping == decode["stopping"])


def _is_spaced_alike(run: RunRecord, config: dict[str, Any]) -> bool:
    """Returns whether a run's checkpoints are as far apart as the row's; where it was stopped, there is one more."""
    keys = ("every", "every_epochs", "every_minutes")
    return all(run.config["checkpoint"][key] == config["checkpoint"][key] for key in keys)


def _not_taken(fitting: list[ScoredRun], newest: ScoredRun, where: str) -> list[str]:
    """Returns a note that names runs of the same seed with other parameters than the newest; [] if there are none."""
    parameters = newest.scores["params_sha256"]
    older = {candidate.run.label for candidate in fitting if candidate.scores["params_sha256"] != parameters}
    older -= {newest.run.label}
    if not older:
        return []
    return [f"{where}: the newest is taken, {newest.run.label}; not {', '.join(sorted(older))}"]


def _computed_otherwise(scored: list[ScoredRun], config: dict[str, Any], name: str) -> list[str]:
    """Returns a note on keys of `COMPUTED` in which runs of the row differ from its config; [] if none does."""
    asked = flat(config)
    differing: set[str] = set()
    for seed in scored:
        recorded = flat(seed.run.config)
        differing |= {f"{key}={recorded[key]}" for key in COMPUTED if recorded[key] != asked[key]}
    return [f"{name}: run with {', '.join(sorted(differing))}"] if differing else []


def _of_other_texts(scored: list[ScoredRun], name: str) -> list[str]:
    """Returns a note if the runs of a row were not trained on one text; corpora are otherwise compared by name."""
    by_text: dict[str, list[str]] = {}
    for seed in scored:
        launch = seed.run.launches[-1] if seed.run.launches else {}
        sha256 = launch.get("data", {}).get("train", {}).get("sha256")
        if sha256 is not None:
            by_text.setdefault(str(sha256), []).append(seed.run.label)
    if len(by_text) <= 1:
        return []
    groups = "; ".join(", ".join(paths) for paths in by_text.values())
    return [f"{name}: not all seeds have the same training text and subwords: {groups}"]


def _wanted(config: dict[str, Any], split: str) -> str:
    decode = config["decode"]
    every = config["checkpoint"]["every"]
    spaced = f" saved every {every} updates" if decode["checkpoint"].startswith("average:") else ""
    search = f"beam {decode['beam']} and alpha {decode['alpha']:g} ({decode['length_penalty']}, {decode['stopping']})"
    asked = f"--checkpoint={decode['checkpoint']}{spaced}, {search}"
    return f"no evaluation of {split} with {asked}"


def fits(scores: dict[str, Any], config: dict[str, Any], split: str, updates: int) -> bool:
    """Returns whether an evaluation was made as `config` says, of the parameters after the last of the `updates`."""
    decode = config["decode"]
    count = 1 if decode["checkpoint"] == "latest" else int(decode["checkpoint"].removeprefix("average:"))
    steps = scores["checkpoints"]
    # Other averages may have as many checkpoints, as average-best:5 has. Early evaluations do not say which they took.
    chosen = scores.get("checkpoint", decode["checkpoint"])
    return (
        scores["split"] == split
        and _without_folders(scores["data"]) == _without_folders(config["data"][split])
        and len(steps) == count
        and (count == 1 or chosen == decode["checkpoint"])
        and steps[-1:] == [updates]
        and all(scores[key] == decode[key] for key in SEARCH if key in scores)
    )
