"""Every module has one name and one path, in a clone as where it is installed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.repo.test_layout import LINKED as ROOMS
from tests.repo.test_layout import tracked

ROOT = Path(__file__).parent.parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("room", ROOMS)
def test_a_short_name_is_refused(room: str) -> None:
    done = run("-c", f"import {room}")
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, "")
    assert last.startswith(f"ImportError: import vaswani.{room}, not {room}: ")


def test_a_class_has_no_second_identity() -> None:
    done = run("-c", "from model.block import Block")
    assert "import vaswani.model, not model" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["train", "infer", "infer.translate", "paper", "data.prepare"])
def test_a_command_has_its_short_name(command: str) -> None:
    done = run("-m", command, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_has_the_path_that_git_knows() -> None:
    files = {str(path) for path in tracked()}
    for room in ROOMS:
        spec = find_spec(f"vaswani.{room}")
        assert spec is not None and spec.origin in files
    done = run("-c", "import vaswani.model.block as block; print(block.__file__)")
    assert done.stdout.strip() == str(ROOT / "model" / "block.py")
