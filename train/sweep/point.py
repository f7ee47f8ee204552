"""One point of a sweep: the process that trains it, and what its run measured."""

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import vaswani
from vaswani.files import in_bucket
from vaswani.train.sweep.expressions import Point

Summary = dict[str, int | float]
_ROOT = Path(vaswani.__file__).parent.parent  # the clone, or the folder of all installed packages
OBJECTIVE = "nll"  # not "loss", which is label-smoothed: comparable also where eps_ls differs
_LIFELINE = Path(__file__).with_name("lifeline.py")


class Outcome(NamedTuple):
    """How a point ended: "done", "failed" or "pruned", the reason in one line, and the `summary` of its run."""

    state: str
    reason: str
    summary: Summary


class PointStatus(NamedTuple):
    """What is known of a point; `state` may also be "waiting", "running" or "interrupted".

    `nll` maps the step of each validation to its nll; `chosen` is False for a search's trial without overrides yet.
    """

    name: str
    overrides: Point
    state: str
    reason: str
    summary: Summary
    nll: dict[int, float]
    chosen: bool = True


def summary(records: list[dict[str, Any]]) -> Summary:
    """Returns the last "step", training "minutes", and of each validation measure the last and the best ("NAME_best").

    Measures are "loss", "nll" and "perplexity", lowest is best, "bleu", and "accuracy" in [0, 1]. What has not been
    measured is left out.
    """
    measures: Summary = {}
    if records:
        measures["step"] = records[-1]["step"]
    times = [record["seconds"] for record in records if record["kind"] == "train"]
    if times:
        measures["minutes"] = times[-1] / 60
    validations = [record for record in records if record["kind"] == "valid"]
    for name, best in (("loss", min), ("nll", min), ("perplexity", min), ("bleu", max), ("accuracy", max)):
        values = [record[name] for record in validations if name in record]
        if values:
            measures[name] = values[-1]
            numbers = [value for value in values if not math.isnan(value)]  # `min` would return a NaN that comes first
            measures[f"{name}_best"] = best(numbers or [math.nan])
    return measures


def run_child(command: list[str], log: Path, watch: Callable[[], bool]) -> tuple[int, str]:
    """Runs `command` to its end, its output appended to `log`; returns the exit status and the last line it printed.

    `watch` is called twice a second. Once it returns True the child is asked to stop (SIGTERM: it
    saves first); if it raises, the child is killed at once. Ctrl-C reaches the child only through `watch`, for it has
    its own process group. On Linux the kernel kills it when this process dies: no run outlives its worker.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() if in_bucket(log) else log.open("a+b") as output:
        start = output.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LIFELINE), str(os.getpid()), *command],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _wait(child, watch)
        output.seek(start)
        printed = output.read()
    if in_bucket(log):
        before = log.read_bytes() if log.exists() else b""
        log.write_bytes(before + printed)
    if child.returncode < 0:
        return child.returncode, f"killed by {signal.Signals(-child.returncode).name}"
    text = printed.decode("utf-8", "replace")
    return child.returncode, _last_error(text) or f"exit status {child.returncode}"


def _environment() -> dict[str, str]:
    """Returns the environment of a child, which finds this very code."""
    places = filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"), str(Path.cwd())))
    # `python -m` would put the current folder first, where there may be a train.py or a data.py of the user's.
    return os.environ | {"PYTHONPATH": os.pathsep.join(places), "PYTHONSAFEPATH": "1"}


def _wait(child: subprocess.Popen[bytes], watch: Callable[[], bool]) -> None:
    """Waits for the end of a child, which is asked to stop, or killed, as `run_child` says."""
    asked = False
    try:
        while child.poll() is None:
            if watch() and not asked:
                child.send_signal(signal.SIGTERM)
                asked = True
            time.sleep(0.5)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def _last_error(text: str) -> str:
    """Returns the last line of a log that reports an error, or else its last line; "" if it has none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1]
    return lines[-1] if lines else ""
