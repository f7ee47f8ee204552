"""What a sweep is to do: the points that a config file lists, checked before anything runs, and the folder's plan."""

import importlib.util
import inspect
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.data.from_config import check_specs
from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.keys import flat, suggestion
from vaswani.read_json import read_json
from vaswani.run.config import with_defaults
from vaswani.tasks import task_of
from vaswani.tasks.config import model_config
from vaswani.train.check import check
from vaswani.train.sweep.expressions import Point, name_of

_SCHEMA = {"kind": str, "config": {"steps": int, "eval": {"every": int}}, "storage": object, "study": str}


class Sweep:
    """A config file with a `sweep()` or a `search(trial)`, and the config that its points depart from."""

    def __init__(self, spec: str, base: ConfigDict, given: dict[str, Any]) -> None:
        """Reads FILE of `spec`, FILE or FILE:ARGUMENT; `base` is its checked config with the keys of `given` set."""
        model_config(base, base.data.vocab_size or 1)
        self.spec = spec
        self.base = base
        self.given = given
        self._found: set[tuple[str, str]] = set()  # corpora of points
        self._file, colon, argument = spec.partition(":")
        self._argument = [argument] if colon else []
        loader = SourceFileLoader("sweep_config", self._file)  # whatever the file's ending is
        module_spec = importlib.util.spec_from_loader("sweep_config", loader)
        assert module_spec is not None
        self._module = importlib.util.module_from_spec(module_spec)
        loader.exec_module(self._module)

    def points(self) -> dict[str, Point]:
        """Returns the points of `sweep()` by name, checked; raises `UserError` where there are none or one is wrong.

        A `sweep` that takes an argument gets --config's.
        """
        sweep = self._function("sweep", "for a search(), give --trials=N")
        arguments = self._argument if inspect.signature(sweep).parameters else []
        points = self._call("sweep()", sweep, *arguments)
        if not isinstance(points, list) or not points or not all(isinstance(point, dict) for point in points):
            raise self._error("sweep() must return a list of points, each a dict; see docs/sweeps.md")
        keys = flat(default().to_dict())
        named: dict[str, Point] = {}
        configs: dict[str, dict[str, Any]] = {}
        for point in points:
            name = name_of(point, keys)
            config = flat(self._resolve(point, f"sweep(): point {name}").to_dict())
            for earlier in configs:
                if configs[earlier] == config:
                    raise self._error(f"sweep(): points {earlier} and {name} are the same run")
            named[name] = point
            configs[name] = config
        return named

    def suggest(self, trial: Any) -> Point:
        """Returns the overrides that `search(trial)` chooses, checked; raises `UserError` where they are wrong."""
        search = self._function("search", "a sweep() is trained without --trials")
        point = self._call("search()", search, trial)
        if not isinstance(point, dict):
            raise self._error("search() must return a dict of keys and values; see docs/sweeps.md")
        self._resolve(point, "search()")
        return point

    def arguments(self, point: Point) -> list[str]:
        """Returns the flags of `python -m train` that make the config of a point."""
        changes = {**self.given, **point}
        return [f"--config={self.spec}", *(f"--config.{key}={value}" for key, value in changes.items())]

    def _function(self, name: str, advice: str) -> Callable:
        if not hasattr(self._module, name):
            raise self._error(f"it defines no {name}() (see docs/sweeps.md); {advice}")
        return getattr(self._module, name)

    def _call(self, name: str, function: Callable, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # it is the user's code
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            raise self._error(f"{name}: {kind}{error}") from error

    def _resolve(self, point: Point, where: str) -> ConfigDict:
        """Returns the checked config of a point; `where` begins the messages."""
        cfg = self.base.copy_and_resolve_references()
        known = flat(default().to_dict())
        for key in point:
            if isinstance(point[key], dict):
                raise self._error(f"{where}: the value of {key} is a dict; write each key with dots, like 'model.h': 8")
            if key not in known:
                raise self._error(f"{where}: there is no key {key}{suggestion(key, known)}")
            if key in self.given:
                raise self._error(f"{where} sets {key}, and so does --config.{key}; leave one of them out")
        with cfg.ignore_type():  # `check` has better messages
            cfg.update_from_flattened_dict(point)
        try:
            check(cfg, default())
            model_config(cfg, cfg.data.vocab_size or 1)
            self._check_corpora(cfg)
        except UserError as error:
            raise self._error(f"{where}: {error}") from error
        return cfg

    def _check_corpora(self, cfg: ConfigDict) -> None:
        """Raises a `UserError` where a corpus of texts is missing: one point after another would fail for it."""
        corpora = (cfg.data.train, cfg.data.valid)
        if corpora not in self._found and not task_of(cfg.task).images:
            check_specs(cfg.data)
            self._found.add(corpora)

    def _error(self, message: str) -> UserError:
        return UserError(f"--config={self._file}: {message}")


def read_plan(workdir: Path) -> dict[str, Any]:
    """Returns the plan that `open_plan` wrote; raises `UserError` if there is none, or it is damaged."""
    path = workdir / "sweep" / "plan.json"
    if not path.exists():
        raise UserError(f"--workdir={workdir}: there is no sweep in this folder")
    return read_json(path, _SCHEMA)


def open_plan(workdir: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Makes `workdir` the folder of this sweep, or finds that it already is; returns the plan in `sweep/plan.json`.

    `plan` has "kind" ("grid" or "search"), "config" (that the points depart from), "storage" (a URL without password,
    None for the folder's own) and "study" (its name there). An older sweep's plan may lack newer keys of the config
    (`run.config.with_defaults`). Raises `UserError` where the folder holds something else.
    """
    path = workdir / "sweep" / "plan.json"
    if not path.exists():
        if workdir.is_dir() and any(file.name != "sweep" for file in workdir.iterdir()):
            raise UserError(f"--workdir={workdir}: this folder is not empty and not a sweep; use a new one")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, plan)
    recorded = read_plan(workdir)
    old = flat({**recorded, "config": with_defaults(recorded["config"])})
    new = flat({**plan, "config": with_defaults(plan["config"])})
    for key in ("kind", *sorted(old.keys() | new.keys())):  # a search is no grid, whatever else differs
        if old.get(key) != new.get(key):
            name = key.removeprefix("config.")
            raise another(workdir, f"{name} is {old.get(key)!r} there and {new.get(key)!r} here")
    return recorded


def another(workdir: Path, difference: str) -> UserError:
    """Returns the error that `workdir` holds another sweep."""
    return UserError(
        f"--workdir={workdir}: this folder holds another sweep ({difference}); use another --workdir, or the config "
        "and flags that it was started with"
    )
