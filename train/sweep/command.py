"""The two things that `python -m train.sweep` does: work on a sweep, and show one."""

import json
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_flags

from vaswani.errors import UserError
from vaswani.files import output_file
from vaswani.keys import flat
from vaswani.run.config import with_defaults
from vaswani.run.folder import as_json
from vaswani.run.records import read_launches
from vaswani.train import table
from vaswani.train.sweep.expressions import Point
from vaswani.train.sweep.picture import draw
from vaswani.train.sweep.plan import Sweep, open_plan, read_plan
from vaswani.train.sweep.point import PointStatus
from vaswani.train.sweep.ranking import Setting, best_setting, other_measures
from vaswani.train.sweep.seeds import over_seeds
from vaswani.train.sweep.space import try_out
from vaswani.train.sweep.storage import unreachable, without_password
from vaswani.train.sweep.study import HeldPoint, Study
from vaswani.train.sweep.table import as_csv, as_records, as_text
from vaswani.train.sweep.worker import Stop, work


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
        "study": options.study or _study_of(workdir),
    }
    plan = open_plan(workdir, plan)
    study = Study(workdir, plan, options.storage, options.silence, options.pruner)
    study.enqueue(points, sweep.suggest, retry=options.retry)

    def command(point: HeldPoint, folder: Path) -> list[str]:
        return [sys.executable, "-m", "vaswani.train", *sweep.arguments(point.overrides), f"--workdir={folder}"]

    stop = Stop()
    threading.excepthook = _say_heart_stopped
    work(study, command, stop, every=options.silence / 6)
    if stop.received:
        return 128 + stop.received
    statuses = study.statuses()
    states = [point.state for point in statuses]
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    best = best_setting(statuses, flat(with_defaults(plan["config"])))
    won = f"; the lowest {_nll_of(best)}" if best else ""
    ended = "all points have ended" if study.finished() else "no point is waiting"
    print(f"{workdir}: {ended}: {counts}{won}; --table shows them", file=sys.stderr)
    return 1 if "failed" in states else 0


def _say_heart_stopped(thread: threading.ExceptHookArgs) -> None:
    """Says in one line that Optuna's thread has ended, which records the heartbeats of a point."""
    assert isinstance(thread.exc_value, Exception)
    reason = unreachable(thread.exc_value)
    print(f"note: no more heartbeats ({reason}): another worker may take this point over", file=sys.stderr)


def _study_of(workdir: Path) -> str:
    """Returns the name that the folder's study has, and a new one would have: the folder may have been renamed."""
    begun = (workdir / "sweep" / "plan.json").exists()
    return read_plan(workdir)["study"] if begun else workdir.resolve().name


def show(options: flags.FlagValues, workdir: Path) -> int:
    """Prints the table, and draws the picture, that the flags ask for; returns 0.

    Raises `UserError` where the folder is not a sweep's, or its storage cannot be used.
    """
    drawn = None if options.plot is None else output_file("plot", options.plot)
    plan = read_plan(workdir)
    if plan["storage"] is not None and options.storage is None:
        raise UserError(f"--workdir={workdir}: the study is in {plan['storage']!r}; to open it, give that as --storage")
    study = None
    points = []
    database = workdir / "sweep" / "study.db"
    results = workdir / "sweep" / "results"
    if options.storage is None and not database.exists() and any(results.glob("*.json")):
        raise UserError(f"{database}: no such file, but {results} has results; restore a copy of it")
    if options.storage is not None or database.exists():
        study = Study(workdir, plan, options.storage, options.silence)
        points = study.statuses()
    try:
        _print(options, points, plan, workdir)
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:  # of what no worker writes
        raise UserError(f"--storage: the study is damaged ({error})") from error
    if drawn:
        search = plan["kind"] == "search"
        importances = study.importances() if study and search else {}
        draw(points, drawn, search=search, config=flat(with_defaults(plan["config"])), importances=importances)
    return 0


def _print(options: flags.FlagValues, points: list[PointStatus], plan: dict[str, Any], workdir: Path) -> None:
    """Prints what the flags ask for."""
    config = flat(with_defaults(plan["config"]))
    records = as_records(points, config)
    if options.csv:
        print(as_csv(records))
    elif options.json:
        print(json.dumps(records, indent=1, ensure_ascii=False))
    elif options.table:
        print(as_text(records, other_measures(points, config)))
        seeds = over_seeds(points, config)
        if seeds:
            print(f"\n{table.as_text(seeds)}")
    if options.best:
        print(_command_of_best(points, config, workdir))


def _command_of_best(points: list[PointStatus], config: dict[str, Any], workdir: Path) -> str:
    """Returns the command that retrains the best point, in a separate folder; says on stderr which point that is.

    Raises:
      UserError: no point is done, or this machine lacks its folder, the only place that records the command.
    """
    others = other_measures(points, config)
    if others:
        raise UserError(
            f"--workdir={workdir}: nll is of other texts or tokens ({', '.join(others)}): it does not say which "
            "point is best; compare their scores by python -m infer"
        )
    setting = best_setting(points, config)
    if setting is None:
        raise UserError(f"--workdir={workdir}: no point is done with a finite validation nll, so none is best")
    best = setting.best
    launches = read_launches(workdir / best.name)
    command = launches[-1].get("command") if launches else None
    if not command:
        found = " ".join(f"--config.{key}={value}" for key, value in best.overrides.items())
        raise UserError(
            f"{workdir / best.name}: it has no run.json with its command; the best point has {found or 'no changes'}"
        )
    _, *arguments = command
    kept = [argument for argument in arguments if not argument.startswith("--workdir=")]
    print(f"the lowest {_nll_of(setting)}", file=sys.stderr)
    again = workdir.parent / f"{workdir.resolve().name}-best"
    return shlex.join(["python", "-m", "train", *kept, f"--workdir={again}"])


def _nll_of(setting: Setting) -> str:
    """Returns the nll of a setting in words, and of which point it is."""
    best = setting.best.name
    if len(setting.nll) < 2:
        return f"nll, {setting.mean:.4f}, is of {best}"
    return f"mean nll, {setting.mean:.4f} over {len(setting.nll)} seeds, is of {best} and its other seeds"
