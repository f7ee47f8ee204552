"""The two things that `python -m train.sweep` does: work on a sweep, and show one."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags
from ml_collections import config_flags

from base.errors import UserError, flat
from run.folder import as_json, read_json
from train.sweep.grid import Grid
from train.sweep.plan import Sweep, open_plan
from train.sweep.point import Held, Todo
from train.sweep.table import as_csv, as_records, as_text, draw
from train.sweep.worker import Stop, work

if TYPE_CHECKING:
    from optuna import Study


def train(options: flags.FlagValues, workdir: Path) -> int:
    """Works on the sweep that the flags describe until it has ended, or a signal comes; returns the exit status.

    Raises:
      UserError: the sweep cannot be begun as described, or its storage is out of reach.
    """
    config = options["config"]
    given = config_flags.get_override_values(config)
    sweep = Sweep(config_flags.get_config_filename(config), config.value, given)

    def command(held: Held, folder: Path) -> list[str]:
        return [sys.executable, "-m", "train", *sweep.arguments(held.overrides), f"--workdir={folder}"]

    stop = Stop()
    todo = _grid(options, sweep, workdir) if options.trials is None else _search(options, sweep, workdir)
    work(todo, workdir, command, idle=options.silence / 24, stop=stop)
    if stop.received:
        return 128 + stop.received
    states = [row.state for row in todo.rows()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    print(f"{workdir}: all points have ended: {counts}; --table shows them", file=sys.stderr)
    return 1 if "failed" in states else 0


def show(options: flags.FlagValues, workdir: Path) -> int:
    """Prints the table, and draws the picture, that the flags ask for; returns 0.

    Raises:
      UserError: the folder is not a sweep's, or its storage is out of reach.
    """
    if not (workdir / "sweep" / "plan.json").exists():
        raise UserError(f"--workdir={workdir}: there is no sweep in this folder")
    plan = read_json(workdir / "sweep" / "plan.json")
    if plan["kind"] == "grid":
        rows = Grid(workdir, plan["points"], options.silence).rows()
    else:
        from train.sweep.search import rows_of

        rows = rows_of(_study(options, workdir, plan), workdir, plan["trials"])
    records = as_records(rows, flat(plan["config"]))
    if options.csv or options.json:
        print(as_csv(records) if options.csv else json.dumps(records, indent=1, ensure_ascii=False))
    elif options.table:
        print(as_text(records))
    if options.plot:
        draw(rows, workdir, Path(options.plot), search=plan["kind"] == "search")
    return 0


def _grid(options: flags.FlagValues, sweep: Sweep, workdir: Path) -> Todo:
    points = sweep.points()
    open_plan(workdir, {"kind": "grid", "config": as_json(sweep.base), "points": points})
    return Grid(workdir, points, options.silence)


def _search(options: flags.FlagValues, sweep: Sweep, workdir: Path) -> Todo:
    from train.sweep.search import Search, rehearse, without_password

    rehearse(sweep.suggest)
    plan = {
        "kind": "search",
        "config": as_json(sweep.base),
        "storage": without_password(options.storage),
        "study": options.study or workdir.resolve().name,
        "trials": options.trials,
    }
    open_plan(workdir, plan)
    return Search(_study(options, workdir, plan), workdir, options.trials, options.silence, sweep.suggest)


def _study(options: flags.FlagValues, workdir: Path, plan: dict[str, Any]) -> "Study":
    from train.sweep.search import open_study  # only searches need Optuna

    url = options.storage or plan["storage"]
    if url and ":***@" in url:
        raise UserError("--storage: a URL with a password is not kept in the folder; give it here, too")
    return open_study(plan["study"], url, workdir / "sweep", plan["config"], options.pruner)
