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
from vaswani.keys import flat
from vaswani.run.config import with_defaults
from vaswani.run.folder import as_json
from vaswani.run.records import read_launches
from vaswani.train.overview.find_runs import FoundRun
from vaswani.train.sweep.expressions import Point
from vaswani.train.sweep.plan import Sweep, open_plan, read_plan
from vaswani.train.sweep.point import PointStatus
from vaswani.train.sweep.ranking import Setting, as_run, best_setting, other_measures
from vaswani.train.sweep.space import try_out
from vaswani.train.sweep.storage import unreachable, without_password
from vaswani.train.sweep.study import HeldPoint, Study
from vaswani.train.sweep.table import table_of_points, table_of_settings
from vaswani.train.sweep.worker import Stop, work
from vaswani.train.table import as_csv, as_text


def train(options: flags.FlagValues, workdir: Path) -> int:
    """Works on the sweep that the flags describe until it has ended, or a signal comes; returns the exit status.

    Raises `UserError` where the sweep cannot be begun as described, or its storage cannot be used.
    """
    given = options["config"]
    spec = config_flags.get_config_filename(given)
    sweep = Sweep(spec, given.value, config_flags.get_override_values(given))
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
    config = flat(with_defaults(plan["config"]))
    best = best_setting([as_run(status, config) for status in statuses])
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
    """Prints the table that the flags ask for; returns 0.

    Raises `UserError` where the folder is not a sweep's, or its storage cannot be used.
    """
    plan = read_plan(workdir)
    if plan["storage"] is not None and options.storage is None:
        raise UserError(f"--workdir={workdir}: the study is in {plan['storage']!r}; to open it, give that as --storage")
    statuses = []
    if options.storage is not None or (workdir / "sweep" / "study.db").exists():
        statuses = Study(workdir, plan, options.storage, options.silence).statuses()
    try:
        _print(options, statuses, plan, workdir)
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:  # of what no worker writes
        raise UserError(f"--storage: the study is damaged ({error})") from error
    return 0


def _print(options: flags.FlagValues, statuses: list[PointStatus], plan: dict[str, Any], workdir: Path) -> None:
    """Prints what the flags ask for."""
    config = flat(with_defaults(plan["config"]))
    points = [as_run(status, config) for status in statuses]
    if options.json:
        print(json.dumps([status._asdict() for status in statuses], indent=1, ensure_ascii=False))
    elif options.csv:
        print(as_csv(table_of_points(points)))
    elif options.table and not points:
        print("no points yet")
    elif options.table:
        print(as_text(table_of_points(points)))
        settings = table_of_settings(points)
        if settings:
            print(f"\n{as_text(settings)}")
    if options.best:
        print(_command_of_best(points, workdir))


def _command_of_best(points: list[FoundRun], workdir: Path) -> str:
    """Returns the command that retrains the best point, in a separate folder; says on stderr which point that is.

    Raises:
      UserError: no point is done, or this machine lacks its folder, the only place that records the command.
    """
    others = other_measures(points)
    if others:
        raise UserError(
            f"--workdir={workdir}: nll is of other texts or tokens ({', '.join(others)}): it does not say which "
            "point is best; compare their scores by python -m infer"
        )
    setting = best_setting(points)
    if setting is None:
        raise UserError(f"--workdir={workdir}: no point is done with a finite validation nll, so none is best")
    run = workdir / setting.best.path
    launches = read_launches(run)
    command = launches[-1].get("command") if launches else None
    if not command:
        raise UserError(f"{run}: it has no run.json with its command; --json prints what the point changes")
    _, *arguments = command
    kept = [argument for argument in arguments if not argument.startswith("--workdir=")]
    print(f"the lowest {_nll_of(setting)}", file=sys.stderr)
    again = workdir.parent / f"{workdir.resolve().name}-best"
    return shlex.join(["python", "-m", "train", *kept, f"--workdir={again}"])


def _nll_of(setting: Setting) -> str:
    """Returns the nll of a setting in words, and of which point it is."""
    best = setting.best.path
    if len(setting.nll) < 2:
        return f"nll, {setting.mean:.4f}, is of {best}"
    return f"mean nll, {setting.mean:.4f} over {len(setting.nll)} seeds, is of {best} and its other seeds"
