"""The lab's commands keep the rules of all others: complete help, outputs that are checked first."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import command
from tests.conftest import ROOT
from tests.slow import slow_but
from tests.vaswani.test_commands import GUARD, SCOPES, check_help
from vaswani.errors import UserError

FOLDERS = ("benchmarks", "tests")
PATHS = [path for path in sorted((ROOT / "lab").rglob("*.py")) if GUARD in path.read_text()]
OURS = [path.relative_to(ROOT).with_suffix("").parts for path in PATHS]
COMMANDS = [".".join(parts).removesuffix(".__main__") for parts in OURS if parts[1] not in FOLDERS]


@pytest.mark.parametrize("module", slow_but(["lab"], COMMANDS))
def test_help_lists_every_flag(module: str) -> None:
    check_help(module)


def test_only_commands_define_flags_as_they_are_imported() -> None:
    late = []
    for path in sorted((ROOT / "lab").rglob("*.py")):
        text = path.read_text()
        alone = [statement for statement in ast.parse(text).body if not isinstance(statement, SCOPES)]
        if GUARD not in text and any("DEFINE_" in ast.dump(statement) for statement in alone):
            late.append(str(path.relative_to(ROOT)))
    assert late == []


def test_a_reader_that_has_gone_ends_a_benchmark_too() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "lab.benchmarks.decoding", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("what", "name", "why"),
    [
        ("layers", "a.svg", "this is a folder; name a file"),
        ("layers", "file", r"its name must end in \.svg or \.png or \.pdf"),
        ("cards", "a.svg", "only a study has a figure to put there: layers, "),
    ],
)
def test_the_figure_s_file_is_checked_before_runs_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, name: str, why: str
) -> None:
    monkeypatch.setattr(command, "read", lambda folder: pytest.fail("too late"))
    (tmp_path / "a.svg").mkdir()
    flags = {"plot": str(tmp_path / name), "runs": str(tmp_path)}
    with pytest.raises(UserError, match=rf"^--plot=.*{why}"):
        command.show(what, SimpleNamespace(**flags))
