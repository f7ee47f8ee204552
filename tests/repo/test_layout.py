"""The rules of CONTRIBUTING.md that can be checked automatically, on the sources and on every config file."""

import ast
import os
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from vaswani.configs import common
from vaswani.run.sharding import AXES

ROOT = Path(__file__).parent.parent.parent
# From the bottom up: a room may import itself and the floors below. `configs/common.py` and `configs/rules.py`, which
# every command reads, are at the bottom; the other config files import the sweep expressions, and only `paper/`, which
# compares runs with them, imports config files.
FLOORS = (
    ("vaswani", "configs.common", "configs.rules"),
    ("model", "data"),
    ("search",),
    ("run",),
    ("tasks",),
    ("infer",),
    ("train",),
    ("configs",),
    ("paper",),
    ("lab",),
)
ROOMS = tuple(room for floor in FLOORS for room in floor if "." not in room)
LINKED = tuple(room for room in ROOMS if room not in ("vaswani", "lab"))  # imported as vaswani.ROOM
FRONT_DOOR = ROOT / "vaswani" / "__init__.py"  # `from vaswani import load_run`
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
NO_CONFIGS = ("__init__", "accelerator", "common", "rules", "small")
CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.py") if path.stem not in NO_CONFIGS)
CONFIGS += sorted(ROOT.glob("lab/studies/*/design.py"))
NEVER_IMPORT = {
    "vaswani": ("jax", "flax", "optax", "orbax", "grain", "ml_collections"),
    "configs": ("jax", "flax", "optax", "tensorflow"),
    "data": ("jax", "flax", "optax"),
    "model": ("ml_collections", "absl", "optax", "orbax", "grain", "time"),
    "run": ("optax", "grain"),
    "search": ("ml_collections", "absl", "optax", "orbax", "grain", "time"),
    "tasks": ("optax", "orbax", "grain"),
    "train": (),
    "infer": ("optax",),
    "paper": ("optax",),
    "lab": (),
}
UNSAFE = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")


def name(path: Path) -> str:
    """Returns the dotted module name of a source file; a package is its folder's name."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name(path): path for path in SOURCES}


def imports(path: Path) -> set[str]:
    """Returns the dotted names that a file imports at any depth, `from a import b` as `a.b` where that is a file."""
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
                found.add(whole if in_its_room(whole) in MODULES else base)
    return {in_its_room(module) for module in found}


def in_its_room(module: str) -> str:
    """Returns model.block for vaswani.model.block, and vaswani.errors as it is."""
    inner = module.removeprefix("vaswani.")
    return inner if inner.partition(".")[0] in LINKED else module


def test_packages_are_imported_by_the_one_name() -> None:
    """A module under two names would be two modules; and an installation has only the one."""
    wrong = []
    for path in [path for path in tracked() if path.suffix == ".py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{place_of(path)} imports {name}" for name in names if name.partition(".")[0] in LINKED]
    assert not wrong, "\n".join(wrong)


def test_the_package_has_a_link_to_every_room() -> None:
    links = {path.name: path.readlink() for path in (ROOT / "vaswani").iterdir() if path.is_symlink()}
    assert links == {room: Path("..", room) for room in LINKED}


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(place + ".") for place in places)


def place_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


IMPORTS = {path: sorted(imports(path)) for path in SOURCES}


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


def test_a_room_imports_only_rooms_below() -> None:
    wrong = []
    for path, modules in IMPORTS.items():
        never = NEVER_IMPORT[name(path).split(".")[0]]
        for module in modules:
            if path == FRONT_DOOR and module == "infer":
                continue
            if module.split(".")[0] in ROOMS and not may_import(name(path), module):
                wrong.append(f"{place_of(path)} imports {module}; packages, from the bottom: {FLOORS}")
            if within(module, never):
                wrong.append(f"{place_of(path)} imports {module}, which its package never does")
    assert not wrong, "\n".join(wrong)


def strings(tree: ast.AST) -> set[str]:
    """Returns the strings of a file, but docstrings, which stand alone."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in alone]
    return {constant.value for constant in constants if isinstance(constant.value, str)}


def of_lab(text: str) -> bool:
    """Returns whether a string names the lab, a module of it or a file, but for a page."""
    return bool(re.search(r"(?<![\w./])lab(?:[./]\w|[./]?$)", text)) and not text.endswith(".md")


def test_nothing_outside_the_lab_needs_it() -> None:
    """By an import, or by the name of a module or a file of code in a string; these tests alone read all files."""
    wrong = []
    for path in tracked():
        if path.suffix != ".py" or path.is_relative_to(ROOT / "lab"):
            continue
        if any(within(module, ("lab",)) for module in imports(path)):
            wrong.append(f"{place_of(path)} imports lab")
        if not path.is_relative_to(Path(__file__).parent):
            named = [text for text in strings(ast.parse(path.read_text())) if of_lab(text)]
            wrong += [f"{place_of(path)} names {text!r}" for text in named]
    assert not wrong, "\n".join(wrong)


def test_which_strings_name_the_lab() -> None:
    text = '"""python -m lab.results"""\nx.run_module("lab.a")\nx.read(f"lab/{x}/a", "label", "lab/*.md")'
    assert {found for found in strings(ast.parse(text)) if of_lab(found)} == {"lab.a", "lab/"}


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("infer.translate.translator", "run.sharding", True),
        ("infer.translate.translator", "train.step", False),
        ("train.step", "infer.translate.translator", True),
        ("run.folder", "infer.runs", False),
        ("model.embed", "data.batching", False),
        ("model.transformer", "search.beam", False),
        ("search.beam", "model.decoding", True),
        ("vaswani.files", "model.config", False),
        ("data.prepare", "configs.common", True),
        ("train.loop", "configs.base", False),
        ("configs.base", "train.sweep.expressions", True),
        ("paper.command", "lab.command", False),
        ("lab.command", "paper.command", True),
    ],
)
def test_the_order_of_the_rooms(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) == allowed


def test_contributing_draws_the_order_that_is_checked() -> None:
    drawn = " → ".join(" ".join(room for room in floor if "." not in room) for floor in FLOORS)
    assert f"`{drawn}`" in (ROOT / "CONTRIBUTING.md").read_text(), f"CONTRIBUTING.md must give the order `{drawn}`"


def test_tensorflow_stays_at_the_edge_and_nothing_unpickles() -> None:
    wrong = []
    edge = ("tensorflow", "tensorflow_datasets", "tensorflow_text")
    for path, modules in IMPORTS.items():
        for module in modules:
            if within(module, UNSAFE):
                wrong.append(f"{place_of(path)} imports {module}: loading such a file runs code from it")
            if within(module, edge) and name(path) != "data.tfds":
                wrong.append(f"{place_of(path)} imports {module}; only data/tfds.py may")
        if re.search(r"allow_pickle\s*=\s*True", path.read_text()):
            wrong.append(f"{place_of(path)} lets NumPy unpickle")
    assert not wrong, "\n".join(wrong)


def test_no_import_circles() -> None:
    graph = {module: {m for m in IMPORTS[path] if m in MODULES and m != module} for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"files import each other in a circle: {' -> '.join(error.args[1])}")


def owner_with_default(call: ast.Call) -> ast.expr | None:
    """Returns what a call reads an attribute or a key of, for which it has a default; None for any other call."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "get":
        return function.value
    if isinstance(function, ast.Name) and function.id == "getattr" and len(call.args) == 3:
        return call.args[0]
    return None


def test_no_config_default_outside_common() -> None:
    wrong = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            owner = owner_with_default(node) if isinstance(node, ast.Call) else None
            if owner is not None and re.search(r"\b(cfg|config)(_\w+)?\b", ast.unparse(owner)):
                wrong.append(f"{place_of(path)}:{owner.lineno}: {ast.unparse(owner)} has a default; keys have one")
    assert not wrong, "\n".join(wrong)


def test_no_path_of_one_machine() -> None:
    place = re.compile(rb"(?<![\w.])/(?:home|Users|root|work|mnt|tmp)/[\w.-]+")
    wrong = []
    for path in tracked():
        content = path.read_bytes()
        found = place.search(content)
        if found and b"\0" not in content and path != Path(__file__):
            wrong.append(f"{place_of(path)} names {found[0].decode()}")
    assert not wrong, "\n".join(wrong)


def test_the_lock_names_no_index_and_no_file() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = re.compile(r"[\w.-]+==[\w.!+]+( ; .+)?")
    odd = [line for line in lines if line and not line.startswith("#") and not pinned.fullmatch(line)]
    assert not odd, f"requirements.lock: {odd[0]!r} is not NAME==VERSION [; MARKER]; run `make lock`"


def test_a_config_is_a_document_that_loads() -> None:
    assert len(CONFIGS) > 20
    wrong = []
    for path in CONFIGS:
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        command = f"--config={place_of(path)}"
        # A study may train by a separate file beside the design, or repeat its records with the code of their time.
        own = path.with_name("train.py")
        module = ".".join(own.relative_to(ROOT).with_suffix("").parts)
        has_own = own.exists() and f"python -m {module} " in docstring
        has_own |= f"python -m lab.reproduce {path.parent.name}/" in docstring
        if not has_own and not re.search(rf"python -m train(\.sweep)? .*{re.escape(command)}", docstring):
            wrong.append(
                f"{place_of(path)}: the docstring must give the exact command (`python -m train {command} ...`)"
            )
        cfg = import_module(module if within(module := name(path), ("lab",)) else f"vaswani.{module}").get_config()
        if not isinstance(cfg, ConfigDict) or keys(cfg) != keys(common.default()):
            wrong.append(f"{place_of(path)} adds or removes keys; configs/common.py defines them all")
    assert not wrong, "\n".join(wrong)


def keys(cfg: ConfigDict) -> set[str]:
    """Returns the dotted names of all leaves."""
    inner = {f"{key}.{leaf}" for key in cfg if isinstance(cfg[key], ConfigDict) for leaf in keys(cfg[key])}
    return inner | {key for key in cfg if not isinstance(cfg[key], ConfigDict)}


def leaves() -> list[str]:
    return sorted(keys(common.default()))


def test_keys_of_common_are_documented() -> None:
    """By a comment behind the one line that defines it, or on the line before."""
    lines = (ROOT / "configs" / "common.py").read_text().splitlines()
    wrong = []
    for key in leaves():
        places = [number for number, line in enumerate(lines) if line.startswith(f"    cfg.{key} = ")]
        if len(places) != 1:
            wrong.append(f"configs/common.py must define {key} on one line of its own")
        elif "  # " not in lines[places[0]] and not lines[places[0] - 1].strip().startswith("# "):
            wrong.append(f"configs/common.py does not say what {key} is")
    assert not wrong, "\n".join(wrong)


def reads(path: Path) -> set[tuple[str, str]]:
    """Returns the attributes that a file reads, each with the last name of its owner: of `cfg.optim.lr` (optim, lr).

    What a check in model/ reads does not count: the checks of model/config.py name every field.
    """
    nodes = list(ast.walk(ast.parse(path.read_text())))
    if within(name(path), ("model",)):
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        checks = [f for f in functions if f.name.startswith("check_") or f.name == "__post_init__"]
        in_checks = {id(node) for function in checks for node in ast.walk(function)}
        nodes = [node for node in nodes if id(node) not in in_checks]
    found = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = ast.unparse(node.value).rpartition(".")[2]
            found.add((owner, node.attr))
    return found


READ = {path: reads(path) for path in SOURCES if not within(name(path), ("configs", "lab"))}
PASSED_ALONE = ("optim", "checkpoint", "eval")  # parts of a config that functions take as their `cfg`


def readers(key: str) -> list[str]:
    """Returns the files that read a key of the config, of an owner that has the name of a config or of that part."""
    group, _, last = key.rpartition(".")
    owners = {group, f"cfg_{group}"} if group else {"cfg", "config"}
    if group in PASSED_ALONE:
        owners.add("cfg")
    places = list(READ)
    if group == "model":  # a field of ModelConfig, and of use where an array is computed from it
        owners = {"c", "config"}
        places = [path for path in places if within(name(path), ("model",))]
    found = []
    for path in places:
        own = {"self"} if name(path) == "model.config" else owners
        if any((owner, last) in READ[path] for owner in own):
            found.append(place_of(path))
    return found


def test_every_key_is_read() -> None:
    """A key that no file reads would be a switch connected to nothing; a list that names it is no reader."""
    wrong = []
    for key in leaves():
        group, _, last = key.rpartition(".")
        if group == "mesh" and last not in AXES:
            wrong.append(f"configs/common.py defines {key}; run/sharding.py reads mesh.{', mesh.'.join(AXES)}")
        elif group != "mesh" and not readers(key):
            wrong.append(f"configs/common.py defines {key}, and no file reads it")
    assert not wrong, "\n".join(wrong)


def test_a_name_in_a_list_or_of_another_owner_reads_no_key() -> None:
    assert readers("model.no_such") == readers("decode.no_such") == []
    assert readers("data.suffix") == [], "path.suffix is no key"
    assert set(readers("model.biases")) <= set(map(place_of, (ROOT / "model" / "mixers").glob("*.py"))), "where it acts"
    assert readers("model.mup_width") == ["model/config.py"], "by its property base_width"
    assert readers("optim.lr") == ["train/optim.py"]


@pytest.mark.skipif(sys.platform == "win32", reason="file modes")
def test_scripts_are_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
