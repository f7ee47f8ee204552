"""The two things that `python -m train.sweep` does: work on a sweep, and show one."""

import json
import sys
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from base.errors import UserError
from base.files import output_file
from base.keys import flat
from run.folder import as_json
from train.sweep.expressions import Point
from train.sweep.plan import Sweep, open_plan, read_plan
from train.sweep.study import HeldPoint, Study, try_out, without_password
from train.sweep.table import as_csv, as_records, as_text, draw
from train.sweep.worker import Stop, work


def train(options: flags.FlagValues, workdir: Path) -> int:
    """Works on the sweep that the flags describe until it has ended, or a signal comes; returns the exit status.

    Raises `UserError` where the sweep cannot be begun as described, or its storage cannot be used.
    """
    config = options["config"]
    spec = config_flags.get_config_filename(config)
    sweep = Sweep(spec, config.value, config_flags.get_override_values(config))
    points: dict[str, Point | None]
    if options.trials is None:
        points = {**sweep.points()}
    else:
        points = {f"trial-{number:03d}": None for number in range(options.trials)}
        try_out(sweep.suggest)
    plan = {
        "kind": "grid" if options.trials is None else "search",
        "config": as_json(sweep.base),
        "storage": without_password(options.storage),
        "study": options.study or workdir.resolve().name,
    }
    open_plan(workdir, plan)
    study = Study(workdir, plan, options.storage, options.silence, options.pruner)
    study.enqueue(points, sweep.suggest, retry=options.retry)

    def command(point: HeldPoint, folder: Path) -> list[str]:
        return [sys.executable, "-m", "train", *sweep.arguments(point.overrides), f"--workdir={folder}"]

    stop = Stop()
    work(study, command, stop, idle=options.silence / 24)
    if stop.received:
        return 128 + stop.received
    states = [point.state for point in study.statuses() if point.name in points]
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    print(f"{workdir}: all points have ended: {counts}; --table shows them", file=sys.stderr)
    return 1 if "failed" in states else 0


def show(options: flags.FlagValues, workdir: Path) -> int:
    """Prints the table, and draws the picture, that the flags ask for; returns 0.

    Raises `UserError` where the folder is not a sweep's, or its storage cannot be used.
    """
    drawn = None if options.plot is None else output_file("plot", options.plot)
    plan = read_plan(workdir)
    if plan["storage"] is not None and options.storage is None:
        raise UserError(f"--workdir={workdir}: the study is in {plan['storage']!r}; to open it, give that as --storage")
    points = []
    database = workdir / "sweep" / "study.db"
    results = workdir / "sweep" / "results"
    if options.storage is None and not database.exists() and any(results.glob("*.json")):
        raise UserError(f"{database}: no such file, but {results} has results; restore a copy of it")
    if options.storage is not None or database.exists():
        points = Study(workdir, plan, options.storage, options.silence).statuses()
    records = as_records(points, flat(plan["config"]))
    if options.csv:
        print(as_csv(records))
    elif options.json:
        print(json.dumps(records, indent=1, ensure_ascii=False))
    elif options.table:
        print(as_text(records))
    if drawn:
        draw(points, drawn, search=plan["kind"] == "search")
    return 0
