"""Finds runs below a folder, and reads from the files of each what it is and how far it came."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.errors import UserError
from vaswani.files import in_bucket, place, walk
from vaswani.keys import flat
from vaswani.run.config import read_config
from vaswani.run.lock import is_held
from vaswani.run.records import read_launches, read_metrics
from vaswani.train.schedule import has_ended
from vaswani.train.sweep.point import Summary, summary

_OF_RUNS = ("checkpoints", "metrics.jsonl", "run.json")  # what training or an import leaves in its folder
_AT_ONCE = 32  # runs
SEED = "seed"
# Groups of keys, and keys without one, as a person looks for what was varied.
_FIRST = ("optim", "model", "loss", "task", "steps", SEED)
_LAST = ("data", "checkpoint", "eval", "mesh", "log_every", "diagnose_every")


class FoundRun(NamedTuple):
    """A run: where it is, whether it is still trained, and what it has recorded.

    `state` is "training", "stopped", "done", "imported" (it was never trained here), "not started" (it has neither a
    record nor a checkpoint) or "damaged"; `problem` then says why, and what could not be read is empty. `config` has
    every key by its dotted name; `summary` is `train.sweep.point`'s; `records` come from `metrics.jsonl`, and `launch`
    is the last one of `run.json`.
    """

    path: Path
    state: str
    problem: str
    config: dict[str, Any]
    summary: Summary
    records: list[dict[str, Any]]
    launch: dict[str, Any]

    @property
    def device(self) -> str:
        """The number and kind of the devices of the last launch; "" if there was none."""
        device = self.launch.get("device", {})
        return f"{device['count']} x {device['kind']}" if {"count", "kind"} <= device.keys() else ""


def find_runs(places: Sequence[str]) -> list[FoundRun]:
    """Returns every run in these folders, in the order of their names.

    Raises:
      UserError: a folder does not exist, or holds no run.
    """
    found: dict[Path, FoundRun] = {}
    for name in places:
        path = place(name, name)
        if not path.is_dir():
            raise UserError(f"{name}: there is no such folder")
        folders = sorted(_folders(path))
        if not folders:
            raise UserError(f"{name}: there is no run in this folder; a run has a config.json and checkpoints")
        # From a bucket many at a time: it takes a while to answer.
        with ThreadPoolExecutor(_AT_ONCE if in_bucket(path) else 1) as threads:
            for folder, run in zip(folders, threads.map(read_run, folders), strict=True):
                found.setdefault(folder, run)
    return list(found.values())


def _folders(place: Path) -> Iterator[Path]:
    """Yields the folders of runs at and below `place`; nothing is searched within a run."""
    for path, below, names in walk(place):
        if not {*below, *names}.isdisjoint(_OF_RUNS):
            below.clear()
            yield path
        # Other links are not followed: they may lead anywhere.
        yield from (path / name for name in below if (path / name).is_symlink() and _is_run(path / name))


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in _OF_RUNS)


def read_run(folder: Path) -> FoundRun:
    """Reads a run; a file that is damaged or missing makes the run a damaged one, with the reason."""
    run = FoundRun(folder, "damaged", "", {}, {}, [], {})
    try:
        config = read_config(folder)
        run = run._replace(config=flat(config.to_dict()))
        records = read_metrics(folder)
        run = run._replace(records=records, summary=summary(records))
        launches = read_launches(folder)
        if launches:
            run = run._replace(launch=launches[-1])
        if is_held(folder):
            return run._replace(state="training")
    except UserError as error:
        return run._replace(problem=str(error))
    except OSError as error:
        return run._replace(problem=f"{error.filename or folder}: cannot be read ({error.strerror})")
    if not records and not any((folder / "checkpoints").glob("[0-9]*")):
        return run._replace(state="not started")
    if not records and not launches:
        return run._replace(state="imported")
    is_done = has_ended(records, config.steps, config.eval.patience)
    return run._replace(state="done" if is_done else "stopped")


def differing_keys(runs: Sequence[FoundRun]) -> list[str]:
    """Returns the config keys whose value is not the same in all runs whose config could be read.

    The optimiser's, the model's and the loss's come first, and keys that are `is_aside` last.
    """
    configs = [run.config for run in runs if run.config]
    if not configs:
        return []
    differing = [key for key, value in configs[0].items() if any(config[key] != value for config in configs)]
    return sorted(differing, key=_place)


def _place(key: str) -> int:
    group = key.partition(".")[0]
    others = len(_FIRST) + is_aside(key)
    return _FIRST.index(group) if group in _FIRST else others


def is_aside(key: str) -> bool:
    """Returns whether a key is of paths, batches, checkpoints or reports, which few runs are about."""
    return key.partition(".")[0] in _LAST


def by_seeds(runs: Sequence[FoundRun]) -> dict[tuple[str, ...], list[FoundRun]]:
    """Returns the runs that differ in nothing but their seed, by the values of the other `differing_keys`."""
    keys = [key for key in differing_keys(runs) if key != SEED]
    groups: dict[tuple[str, ...], list[FoundRun]] = {}
    for run in runs:
        values = tuple(str(run.config[key]) for key in keys)
        groups.setdefault(values, []).append(run)
    return groups
