"""Every command that README, docs, configs and notebooks tell readers to type: its module, flags and config exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.errors import UserError

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("data", "infer", "lab", "paper", "train")
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("lab/**/*.md")]
TEXTS = [*PAGES, *ROOT.glob("notebooks/*.py"), *ROOT.glob("Makefile")]
TEXTS += [path for room in (*ROOMS, "configs") for path in ROOT.glob(f"{room}/**/*.py")]
KEYS = {f"{name}.{key}" for name, value in default().items() if isinstance(value, ConfigDict) for key in value}
KEYS |= set(default())
ELSEWHERE = {"help", "helpfull", "helpshort", "helpxml", "config"}  # absl's, and ml_collections'
CONFIG = re.compile(r"--config=((?:configs|lab/studies/[a-z]\w*)/[a-z]\w*)\.py(?::(\w[\w:-]*))?")
PLACEHOLDER = re.compile(r"[A-Z:]{2,}")  # FOLDER, or ROW:SCHEDULE


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yields the module and the arguments of each `python -m` of ours in a text."""
    whole = re.sub(r"\\(\\n)?\n\s*", " ", text)
    for found in re.finditer(r"python3? -m\s+(\w+(?:\.\w+)*)([^`\n;&<>]*)", whole):
        if found[1].partition(".")[0] in ROOMS:
            yield found[1], re.split(r" [|#] |\)", found[2])[0]


def file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.removeprefix("vaswani.").split("."))
    return next((one for one in (path / "__main__.py", path.with_suffix(".py")) if one.exists()), None)


@cache
def defined(path: Path) -> frozenset[str]:
    """Returns the flags that a module and all that it imports of ours define."""
    tree, flags = ast.parse(path.read_text()), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("DEFINE_"):
            flags.add(node.args[0].value if isinstance(node.args[0], ast.Constant) else "config")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in ("vaswani", "lab"):
            for module in (node.module, *(f"{node.module}.{name.name}" for name in node.names)):
                other = ROOT.joinpath(*module.split(".")).with_suffix(".py")
                flags |= defined(other) if other.exists() and other != path else set()
    return frozenset(flags)


def config_of(file: str, argument: str) -> ConfigDict:
    """Returns the config that --config=FILE.py:ARGUMENT names; the default one if the argument is a placeholder."""
    module = file.replace("/", ".")
    get_config = import_module(f"vaswani.{module}" if module.startswith("configs.") else module).get_config
    return get_config() if PLACEHOLDER.fullmatch(argument) or not argument else get_config(argument)


def flags_of(arguments: str) -> list[str]:
    return re.findall(r"(?<!\S)--([a-z]\w*)(?!\.)\b", arguments)


def why_not(module: str, arguments: str) -> list[str]:
    """Returns why a command cannot be typed: no such module, flags, keys or config."""
    path = file_of(module)
    if path is None or '__name__ == "__main__"' not in path.read_text():
        return [f"there is no command {module}"]
    flags = {name.removeprefix("no") if name not in defined(path) else name for name in flags_of(arguments)}
    found = [f"{module} has no flag --{name}" for name in sorted(flags - defined(path) - ELSEWHERE)]
    keys = re.findall(r"--config\.([a-z]\w*\.\w+|[a-z]\w+)=", arguments)
    found += [f"there is no config key {key}" for key in keys if key not in KEYS]
    for file, argument in CONFIG.findall(arguments):
        try:
            config_of(file, argument)
        except (ImportError, ValueError, UserError) as error:
            found.append(f"{file}.py:{argument} is no config: {error}")
    return found


def beside(arguments: str) -> list[str]:
    """Returns what a command reads that is beside the clone: by a flag, or by its config where no flag replaces it."""
    found = ["../shared"] if "../shared" in arguments else []
    given = re.findall(r"--config\.data\.(\w+)=", arguments)
    for file, argument in CONFIG.findall(arguments):
        data = config_of(file, argument).data
        read = [key for key in ("train", "valid", "test") if key not in given and "../shared" in data[key]]
        found += [f"data.{key} of {file}.py" for key in read]
    return found


WRITTEN = sorted({(path.relative_to(ROOT).as_posix(), *one) for path in TEXTS for one in commands(path.read_text())})


def test_commands_are_found() -> None:
    assert len(WRITTEN) > 150
    modules = {module for _, module, _ in WRITTEN}
    assert {"train", "infer", "infer.translate", "paper", "data.prepare", "lab", "lab.benchmarks.cost"} <= modules
    assert {"README.md", "docs/commands.md", "lab/README.md", "lab/docs/cost.md"} <= {text for text, _, _ in WRITTEN}


def test_a_written_command_can_be_typed() -> None:
    wrong = [f"{text}: {why}" for text, *command in WRITTEN for why in why_not(*command)]
    assert not wrong, "\n".join(wrong)


def test_a_command_of_the_pages_reads_nothing_beside_the_clone() -> None:
    """A reader has no `../shared`: neither a flag names it, nor a default of the config that no flag replaces."""
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES}
    wrong = [
        f"{text}: {module} reads {what}, which a reader has not"
        for text, module, arguments in WRITTEN
        if text in pages
        for what in beside(arguments)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "arguments", "why"),
    [
        ("train.nothing", "", "there is no command train.nothing"),
        ("infer", "--workdir=D --wrong=1", "infer has no flag --wrong"),
        ("train", "--config=configs/base.py --config.model.n=1", "there is no config key model.n"),
        ("train", "--config=configs/no_such.py", "configs/no_such.py: is no config: No module named"),
        ("train", "--config=configs/ablations.py:A9", "configs/ablations.py:A9 is no config: there is no row 'A9'"),
    ],
)
def test_what_cannot_be_typed_is_told(module: str, arguments: str, why: str) -> None:
    (told,) = why_not(module, arguments)
    assert told.startswith(why)
