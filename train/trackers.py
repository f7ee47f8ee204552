"""Experiment trackers that receive each record of `metrics.jsonl`: Weights & Biases, and MLflow.

Where they send it is set as each of them documents: `wandb login` or WANDB_MODE=offline, MLFLOW_TRACKING_URI. Nothing
of them is imported without --tracker. A run keeps its id in `tracker.json`, so that a resumed run continues there.
"""

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vaswani.errors import UserError, pip_install
from vaswani.files import in_bucket, write_json
from vaswani.keys import flat
from vaswani.read_json import read_json

PROJECT = "vaswani"
NAMES = ("wandb", "mlflow")
_IDS = "tracker.json"
_LONGEST = 500  # characters of a value that every MLflow server takes


@runtime_checkable
class Tracker(Protocol):
    """What a run tells a tracker."""

    def log(self, step: int, metrics: dict[str, float]) -> None: ...

    def close(self, failed: bool) -> None: ...


class WandB:
    """A run of Weights & Biases."""

    def __init__(self, workdir: Path, known: str | None, config: dict[str, Any]) -> None:
        """Begins a run, or continues the run `known`."""
        import wandb

        settings = wandb.Settings(console="off", silent=True)  # stderr is ours
        self._run = wandb.init(
            project=PROJECT,
            name=workdir.resolve().name,
            dir=tempfile.gettempdir() if in_bucket(workdir) else workdir,
            id=known,
            resume="allow",
            config=config,
            settings=settings,
        )
        self.id = str(self._run.id)
        # Not wandb's own steps, of which each must be above the last: a resumed run may validate a step again.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Adds the metrics of a step."""
        self._run.log({"step": step, **metrics})

    def close(self, failed: bool) -> None:
        """Sends what is left, and whether an error ended the run."""
        self._run.finish(exit_code=int(failed))


class MLflow:
    """A run of MLflow, in an experiment of this project's name."""

    def __init__(self, workdir: Path, known: str | None, config: dict[str, Any]) -> None:
        """Begins a run, or continues the run `known`."""
        import mlflow

        self._entities = mlflow.entities
        self._client = mlflow.MlflowClient()
        if known is None:
            found = self._client.get_experiment_by_name(PROJECT)
            experiment = found.experiment_id if found else self._client.create_experiment(PROJECT)
            known = self._client.create_run(experiment, run_name=workdir.resolve().name).info.run_id
            params = [self._entities.Param(key, str(value)[:_LONGEST]) for key, value in config.items()]
            for start in range(0, len(params), 100):  # that one call takes
                self._client.log_batch(known, params=params[start : start + 100])
        else:
            self._client.update_run(known, "RUNNING")
        self.id = known

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Adds the metrics of a step."""
        now = int(1000 * time.time())
        entries = [self._entities.Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self.id, entries)

    def close(self, failed: bool) -> None:
        """Marks the run as ended, by an error or not."""
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


def check_installed(name: str | None) -> None:
    """Raises a `UserError` that names the extra if the tracker's package is not installed."""
    if name is not None and importlib.util.find_spec(name) is None:
        raise UserError(f"--tracker={name}: the package {name} is not installed; {pip_install(name)}")


@contextmanager
def open_tracker(name: str | None, workdir: Path, config: dict[str, Any]) -> Iterator[Tracker | None]:
    """Yields the tracker `name` of `NAMES` for the run in `workdir`, whose id is kept there; None without a name.

    Raises:
      UserError: it cannot be used; its own message says why.
    """
    if name is None:
        yield None
        return
    kinds: dict[str, Callable[[Path, str | None, dict[str, Any]], WandB | MLflow]] = {"wandb": WandB, "mlflow": MLflow}
    path = workdir / _IDS
    ids = read_json(path, dict) if path.exists() else {}
    try:
        tracker = kinds[name](workdir, ids.get(name), flat(config))
    except Exception as error:  # of any kind: a server that does not answer, a key that is wrong
        raise UserError(f"--tracker={name}: {_last_line(error)}") from error
    write_json(path, {**ids, name: tracker.id})
    failed = True
    try:
        yield tracker
        failed = False
    finally:
        try:
            tracker.close(failed)
        except Exception as error:  # its server may have gone; the run is whole without it
            print(f"note: --tracker={name} could not be told of the end: {_last_line(error)}", file=sys.stderr)


def _last_line(error: Exception) -> str:
    """Returns the last line of what an error says, where these packages say what is wrong; else its kind."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def metrics_of(record: dict[str, Any]) -> dict[str, float]:
    """Returns the metrics of a record of `metrics.jsonl`, named by its kind: "train/loss"."""
    return {f"{record['kind']}/{name}": value for name, value in record.items() if name not in ("step", "kind")}
