"""Records that a study writes itself, a line of JSON for each run, where a config does not describe a run in full."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from vaswani.paper.provenance import caveats
from vaswani.paper.records import RunRecord
from vaswani.paper.rows import RowRuns, ScoredRun
from vaswani.run.folder import as_json
from vaswani.run.records import read_launches

Record = dict[str, Any]


def about(workdir: Path) -> Record:
    """Returns the commits, the device and the versions with which a run was trained."""
    launches = read_launches(workdir)
    last = launches[-1]
    return {
        "git": [launch["git"] for launch in launches],
        "device": last["device"],
        "versions": last["versions"],
    }


def newest(records: Iterable[Record]) -> list[Record]:
    """Keeps the last record of each row and seed."""
    by_run = {(record.get("row", ""), record.get("seed", 0)): record for record in records}
    return [*by_run.values()]


def runs_of(
    records: Iterable[Record],
    rows: Iterable[str],
    get_config: Callable[[str], ConfigDict],
    scores: Callable[[Record], Mapping[str, float]],
) -> dict[str, RowRuns]:
    """Returns the runs of each row, by seed; `scores` returns what a record is scored by."""
    by_seed = sorted(records, key=lambda record: record["seed"])
    runs: dict[str, RowRuns] = {}
    for row in rows:
        cfg = get_config(row)
        of_row = [_scored(record, cfg, scores) for record in by_seed if record["row"] == row]
        runs[row] = RowRuns(of_row, "", [])
    return runs


def _scored(record: Record, cfg: ConfigDict, scores: Callable[[Record], Mapping[str, float]]) -> ScoredRun:
    launches = [{"git": git, "device": record["device"]} for git in record["git"]]
    run = RunRecord(
        path=Path("lab/studies") / record["study"],
        config={**as_json(cfg), "seed": record["seed"]},
        problem="",
        steps=record["steps"],
        minutes=record["minutes"],
        launches=launches,
        evaluations=[],
        validations=[],
        caveats=caveats(launches),
    )
    return ScoredRun(run, {**record, **scores(record)}, run.path)
