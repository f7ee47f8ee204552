"""Every command that README, docs, configs and notebooks tell readers to type: its module, flags and config exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from configs.common import default

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("base", "benchmarks", "data", "infer", "paper", "train")
TEXTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.py"), *ROOT.glob("Makefile")]
TEXTS += [path for room in (*ROOMS, "configs") for path in ROOT.glob(f"{room}/**/*.py")]
KEYS = {f"{name}.{key}" for name, value in default().items() if isinstance(value, ConfigDict) for key in value}
KEYS |= set(default())
ELSEWHERE = {"help", "helpfull", "helpshort", "helpxml", "config"}  # absl's, and ml_collections'


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yields the module and the arguments of each `python -m` of ours in a text."""
    whole = re.sub(r"\\(\\n)?\n\s*", " ", text)
    for found in re.finditer(r"python3? -m\s+(\w+(?:\.\w+)*)([^`\n;&<>]*)", whole):
        if found[1].partition(".")[0] in ROOMS:
            yield found[1], re.split(r" [|#] |\)", found[2])[0]


def file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((one for one in (path / "__main__.py", path.with_suffix(".py")) if one.exists()), None)


@cache
def defined(path: Path) -> frozenset[str]:
    """Returns the flags that a module and all that it imports of ours define."""
    tree, flags = ast.parse(path.read_text()), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("DEFINE_"):
            flags.add(node.args[0].value if isinstance(node.args[0], ast.Constant) else "config")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in ROOMS:
            for module in (node.module, *(f"{node.module}.{name.name}" for name in node.names)):
                other = ROOT.joinpath(*module.split(".")).with_suffix(".py")
                flags |= defined(other) if other.exists() and other != path else set()
    return frozenset(flags)


WRITTEN = sorted({(path.relative_to(ROOT).as_posix(), *one) for path in TEXTS for one in commands(path.read_text())})


def test_commands_are_found() -> None:
    assert len(WRITTEN) > 150
    assert {"train", "infer", "infer.translate", "paper", "data.prepare"} <= {module for _, module, _ in WRITTEN}


@pytest.mark.parametrize(("text", "module", "arguments"), WRITTEN)
def test_a_written_command_can_be_typed(text: str, module: str, arguments: str) -> None:
    path = file_of(module)
    assert path is not None and '__name__ == "__main__"' in path.read_text(), f"{text}: there is no command {module}"
    flags = {name.removeprefix("no") if name not in defined(path) else name for name in flags_of(arguments)}
    assert flags <= defined(path) | ELSEWHERE, f"{text}: {module} has no such flags"
    for key in re.findall(r"--config\.([a-z]\w*\.\w+|[a-z]\w+)=", arguments):
        assert key in KEYS, f"{text}: there is no config key {key}"
    for name, argument in re.findall(r"--config=configs/([a-z]\w*)\.py(?::([a-z][\w:-]*))?", arguments):
        get_config = import_module(f"configs.{name}").get_config
        assert isinstance(get_config(argument) if argument else get_config(), ConfigDict)


@pytest.mark.parametrize(("text", "module", "arguments"), [one for one in WRITTEN if one[0].endswith(".md")])
def test_a_command_of_the_pages_reads_nothing_beside_the_clone(text: str, module: str, arguments: str) -> None:
    """A reader has no `../shared`: neither a flag names it, nor a default of the config that no flag replaces."""
    assert "../shared" not in arguments, f"{text}: {module} names a folder that a reader has not"
    for name, argument in re.findall(r"--config=configs/([a-z]\w*)\.py(?::(\S+))?", arguments):
        get_config = import_module(f"configs.{name}").get_config
        data = (get_config(argument) if argument else get_config()).data
        given = re.findall(r"--config\.data\.(\w+)=", arguments)
        read = {key: data[key] for key in ("train", "valid", "test") if key not in given}
        beside = [key for key, corpus in read.items() if "../shared" in corpus]
        assert not beside, f"{text}: data.{beside[0]} of configs/{name}.py is a file that a reader has not"


def flags_of(arguments: str) -> list[str]:
    return re.findall(r"(?<!\S)--([a-z]\w*)(?!\.)\b", arguments)
