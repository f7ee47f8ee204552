"""The rules of CONTRIBUTING.md that can be checked automatically, on the sources and on every config file."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from configs import common

ROOT = Path(__file__).parent.parent.parent
# From the bottom up: a room may import itself and the floors below. `configs/common.py`, which every command reads, is
# at the bottom; the other config files import the sweep expressions, and only `paper/`, which compares runs with them,
# imports config files.
FLOORS = (
    ("base", "configs.common"),
    ("model", "data"),
    ("run",),
    ("tasks",),
    ("infer",),
    ("train",),
    ("configs",),
    ("paper",),
)
ROOMS = tuple(room for floor in FLOORS for room in floor if "." not in room)
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.py") if path.stem not in ("__init__", "common", "small"))
NEVER_IMPORT = {
    "base": ("jax", "flax", "optax", "orbax", "grain", "ml_collections"),
    "configs": ("jax", "flax", "optax", "tensorflow"),
    "data": ("jax", "flax", "optax"),
    "model": ("ml_collections", "absl", "optax", "orbax", "grain", "time"),
    "run": ("optax", "grain"),
    "tasks": ("optax", "orbax", "grain"),
    "train": (),
    "infer": ("optax",),
    "paper": ("optax",),
}
UNSAFE = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")


def name(path: Path) -> str:
    """Returns the dotted module name of a source file; a package is its folder's name."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name(path): path for path in SOURCES}


def imports(path: Path) -> set[str]:
    """Returns the dotted names that a file imports at any depth, `from a import b` as `a.b` where that is a file.

    So are the bodies of commands, which `base.command.imported` imports by name.
    """
    package = name(path) if path.stem == "__init__" else name(path).rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in MODULES else base)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "imported":
            (body,) = node.args
            found.add(ast.literal_eval(body))
    return found


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(place + ".") for place in places)


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / file for file in listed.stdout.decode().split("\0") if file and (ROOT / file).is_file()]


def floor(module: str) -> int:
    """Returns the number of the floor that a module of ours is on, counted from the bottom."""
    return min(number for number, rooms in enumerate(FLOORS) if within(module, rooms))


def may_import(importer: str, imported: str) -> bool:
    """Returns whether the order of the rooms allows one module to import another."""
    same_room = importer.split(".")[0] == imported.split(".")[0]
    return same_room or floor(imported) < floor(importer)


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_a_room_imports_only_rooms_below(path: Path) -> None:
    for module in sorted(imports(path)):
        if module.split(".")[0] in ROOMS:
            assert may_import(name(path), module), f"{ids(path)} imports {module}; packages, from the bottom: {FLOORS}"
        never = NEVER_IMPORT[name(path).split(".")[0]]
        assert not within(module, never), f"{ids(path)} imports {module}, which its package never does"


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("infer.translate.translator", "run.sharding", True),
        ("infer.translate.translator", "train.step", False),
        ("train.step", "infer.translate.translator", True),
        ("run.folder", "infer.runs", False),
        ("model.embed", "data.batching", False),
        ("base.files", "model.config", False),
        ("data.prepare", "configs.common", True),
        ("train.loop", "configs.base", False),
        ("configs.base", "train.sweep.expressions", True),
    ],
)
def test_the_order_of_the_rooms(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) == allowed


def test_contributing_draws_the_order_that_is_checked() -> None:
    drawn = " → ".join(" ".join(room for room in floor if "." not in room) for floor in FLOORS)
    assert f"`{drawn}`" in (ROOT / "CONTRIBUTING.md").read_text(), f"CONTRIBUTING.md must give the order `{drawn}`"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_tensorflow_stays_at_the_edge_and_nothing_unpickles(path: Path) -> None:
    for module in sorted(imports(path)):
        assert not within(module, UNSAFE), f"{ids(path)} imports {module}: loading such a file runs code from it"
        if name(path) != "data.sources":
            edge = ("tensorflow", "tensorflow_datasets", "tensorflow_text")
            assert not within(module, edge), f"{ids(path)} imports {module}; only data/sources.py may"
    assert not re.search(r"allow_pickle\s*=\s*True", path.read_text()), f"{ids(path)} lets NumPy unpickle"


def test_no_import_circles() -> None:
    graph = {module: {m for m in imports(path) if m in MODULES and m != module} for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"files import each other in a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_no_config_default_outside_common(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        where = f"{ids(path)}:{node.lineno}"
        if isinstance(function, ast.Attribute) and function.attr == "get":
            owner = ast.unparse(function.value)
            assert not re.search(r"\b(cfg|config)(_\w+)?\b", owner), f"{where}: {owner}.get: keys have one default"
        if isinstance(function, ast.Name) and function.id == "getattr" and len(node.args) == 3:
            owner = ast.unparse(node.args[0])
            assert not re.search(r"\b(cfg|config)(_\w+)?\b", owner), f"{where}: getattr({owner}, ..., default)"


def test_no_path_of_one_machine() -> None:
    place = re.compile(rb"(?<![\w.])/(?:home|Users|root|work|mnt|tmp)/[\w.-]+")
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content and path != Path(__file__):
            found = place.search(content)
            assert not found, f"{ids(path)} names {found[0].decode()}"


def test_the_lock_names_no_index_and_no_file() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = re.compile(r"[\w.-]+==[\w.!+]+( ; .+)?")
    odd = [line for line in lines if line and not line.startswith("#") and not pinned.fullmatch(line)]
    assert not odd, f"requirements.lock: {odd[0]!r} is not NAME==VERSION [; MARKER]; run `make lock`"


@pytest.mark.parametrize("path", CONFIGS, ids=ids)
def test_a_config_is_a_document_that_loads(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    command = f"--config=configs/{path.name}"
    assert re.search(rf"python -m train(\.sweep)? .*{re.escape(command)}", docstring), (
        f"{ids(path)}: the docstring must give the exact command (`python -m train {command} ...`)"
    )
    spec = importlib.util.spec_from_file_location(f"configs.{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cfg = module.get_config()
    assert isinstance(cfg, ConfigDict)
    assert keys(cfg) == keys(common.default()), f"{ids(path)} adds or removes keys; configs/common.py defines them all"


@pytest.mark.parametrize("key", sorted(leaf for leaf in common.default().to_dict()))
def test_keys_of_common_are_documented(key: str) -> None:
    source = (ROOT / "configs" / "common.py").read_text()
    assert re.search(rf"^    cfg\.{key} = ", source, re.MULTILINE), (
        f"configs/common.py must define {key} on its own line"
    )


def keys(cfg: ConfigDict) -> set[str]:
    """Returns the dotted names of all leaves."""
    inner = {f"{key}.{leaf}" for key in cfg if isinstance(cfg[key], ConfigDict) for leaf in keys(cfg[key])}
    return inner | {key for key in cfg if not isinstance(cfg[key], ConfigDict)}


def leaves() -> list[str]:
    return sorted(keys(common.default()))


@pytest.mark.parametrize("key", leaves())
def test_every_key_is_read(key: str) -> None:
    """A key that no source file mentions as `.key` (or "key") would be a switch connected to nothing."""
    last = key.rpartition(".")[2]
    use = re.compile(rf"""\.{last}\b|["']{last}["']""")
    readers = [p for p in SOURCES if not name(p).startswith("configs") and use.search(p.read_text())]
    assert readers, f"configs/common.py defines {key}, and no file reads it"


@pytest.mark.skipif(sys.platform == "win32", reason="file modes")
def test_scripts_are_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
