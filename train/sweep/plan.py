"""What a sweep is to do: the points that a config file lists, checked before anything runs, and the folder's record."""

import importlib.util
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from base.errors import UserError, flat, suggestion
from configs.common import default
from run.folder import model_config, read_json
from train.check import check
from train.sweep.claims import write_once
from train.sweep.expressions import Point, name_of


class Sweep:
    """A config file with a `sweep()` or a `search(trial)`, and the config that its points depart from."""

    def __init__(self, spec: str, base: ConfigDict, given: dict[str, Any]) -> None:
        """Reads the file.

        Args:
          spec: what --config says, FILE or FILE:ARGUMENT.
          base: `get_config()` with the keys of the command line set, checked.
          given: those keys and their values.

        Raises:
          UserError: its model cannot be built.
        """
        model_config(base, base.data.vocab_size)
        self.spec, self.base, self.given = spec, base, given
        self._file, colon, argument = spec.partition(":")
        self._argument = [argument] if colon else []
        found = importlib.util.spec_from_file_location("sweep_config", self._file)
        assert found is not None and found.loader is not None
        self._module = importlib.util.module_from_spec(found)
        found.loader.exec_module(self._module)

    def points(self) -> dict[str, Point]:
        """Calls `sweep()`, with the argument of --config where it takes one; returns its points by name, all checked.

        Raises:
          UserError: there is no `sweep()`, it has no points, or one is wrong or there twice.
        """
        sweep = self._function("sweep", "for a search(), give --trials=N")
        takes_argument = bool(inspect.signature(sweep).parameters)
        points = self._call("sweep()", sweep, *(self._argument if takes_argument else []))
        if not isinstance(points, list) or not points or not all(isinstance(point, dict) for point in points):
            raise UserError(
                f"--config={self._file}: sweep() must return a list of points, each a dict; see docs/sweeps.md"
            )
        named: dict[str, Point] = {}
        seen: list[dict[str, Any]] = []
        for point in points:
            name = name_of(point, flat(default().to_dict()))
            whole = flat(self._resolved(point, f"sweep(): point {name}").to_dict())
            if whole in seen:
                twin = list(named)[seen.index(whole)]
                raise UserError(f"--config={self._file}: sweep(): points {twin} and {name} are the same run")
            named[name] = point
            seen.append(whole)
        return named

    def suggest(self, trial: Any) -> Point:
        """Calls `search(trial)` of an Optuna trial; returns the keys that it sets, checked.

        Raises:
          UserError: there is no `search()`, or what it returns is wrong.
        """
        search = self._function("search", "a sweep() is trained without --trials")
        point = self._call("search()", search, trial)
        if not isinstance(point, dict):
            raise UserError(
                f"--config={self._file}: search() must return a dict of keys and values; see docs/sweeps.md"
            )
        self._resolved(point, "search()")
        return point

    def _function(self, name: str, other: str) -> Callable:
        if not hasattr(self._module, name):
            raise UserError(f"--config={self._file}: it has no {name}(), which docs/sweeps.md explains; {other}")
        return getattr(self._module, name)

    def _call(self, name: str, function: Callable, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # it is the user's code
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            raise UserError(f"--config={self._file}: {name}: {kind}{error}") from error

    def _resolved(self, point: Point, where: str) -> ConfigDict:
        """Returns the checked config of a point; `where` begins the messages."""
        where = f"--config={self._file}: {where}"
        tree, known = self.base.to_dict(), flat(default().to_dict())
        for key, value in point.items():
            if key not in known:
                raise UserError(f"{where}: there is no key {key}{suggestion(key, known)}")
            if key in self.given:
                raise UserError(f"{where} sets {key}, and so does --config.{key}; leave one of them out")
            *groups, last = key.split(".")
            parent = tree
            for group in groups:
                parent = parent[group]
            parent[last] = value
        cfg = ConfigDict(tree)
        try:
            check(cfg, default())
            model_config(cfg, cfg.data.vocab_size)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        return cfg

    def arguments(self, point: Point) -> list[str]:
        """The flags of `python -m train` that make the config of a point."""
        changes = {**self.given, **point}
        return [f"--config={self.spec}", *(f"--config.{key}={value}" for key, value in changes.items())]


def open_plan(workdir: Path, plan: dict[str, Any]) -> None:
    """Makes `workdir` the folder of this sweep, or finds that it already is; `sweep/plan.json` there says of which.

    Args:
      workdir: folder of the sweep.
      plan: "kind", "grid" or "search"; "config", that the points depart from; a grid's "points" by name, to which new
        ones may be added later; a search's "storage", "study", and "trials", of which there may be more later.

    Raises:
      UserError: the folder holds another sweep, or something else.
    """
    path = workdir / "sweep" / "plan.json"
    if not path.exists() and workdir.is_dir() and any(file.name != "sweep" for file in workdir.iterdir()):
        raise UserError(f"--workdir={workdir}: this folder is not empty and not a sweep; use a new one")
    path.parent.mkdir(parents=True, exist_ok=True)
    plan = json.loads(json.dumps(plan))  # in which tuples are lists
    if write_once(path, plan):
        return
    there = read_json(path)
    if different := _difference(there, plan):
        raise UserError(
            f"--workdir={workdir}: this folder holds another sweep ({different}); use another --workdir, or the config "
            "and flags that it was started with"
        )
    if there != plan:
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(plan, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(path)


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    if there["kind"] != here["kind"]:
        return f"it is a {there['kind']}, not a {here['kind']}"
    old, new = flat(there["config"]), flat(here["config"])
    if here["kind"] == "search":
        old, new = old | {"study": there["study"]}, new | {"study": here["study"]}
        old, new = old | {"storage": there["storage"]}, new | {"storage": here["storage"]}
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            return f"{key} is {old.get(key)!r} there and {new.get(key)!r} here"
    if here["kind"] == "grid":
        gone = [name for name, point in there["points"].items() if here["points"].get(name) != point]
        return f"its point {gone[0]} is not among those of sweep()" if gone else ""
    return ""
