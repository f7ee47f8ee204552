"""A training starts again with huge pages, once, and nothing else does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vaswani.train import huge_pages
from vaswani.train.huge_pages import SETTING, TUNABLES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("environment", "kernel", "libc", "expected"),
    [
        ({}, "always [madvise] never", "glibc 2.36", True),
        ({TUNABLES: ""}, "always [madvise] never", "glibc 2.36", False),
        ({TUNABLES: SETTING}, "always [madvise] never", "glibc 2.36", False),
        ({}, "[always] madvise never", "glibc 2.36", False),
        ({}, "always madvise [never]", "glibc 2.36", False),
        ({}, "", "glibc 2.36", False),
        ({}, "always [madvise] never", "glibc 2.35", True),
        ({}, "always [madvise] never", "glibc 2.34", False),
        ({}, "always [madvise] never", "musl", False),
        ({}, "always [madvise] never", "", False),
    ],
)
def test_where_it_helps(environment: dict[str, str], kernel: str, libc: str, expected: bool) -> None:
    assert huge_pages._would_help(environment, kernel, libc) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "-m", "train", "--config=a.py"], True),
        (["python", "/env/bin/vaswani", "train", "--config=a.py"], True),
        (["python", "-u", "-O", "-m", "train", "--config=a.py"], True),
        (["python", "-m", "pytest", "train"], False),
        (["python", "-u"], False),
        (["python", "-m", "train.runs", "runs"], False),
        (["python", "-c", "train"], False),
        (["python", "-m", "ipykernel_launcher"], False),
        (["python"], False),
    ],
)
def test_only_the_command_itself_starts_again(command: list[str], expected: bool) -> None:
    assert huge_pages._runs(command, "train") is expected


def test_streams_that_are_closed_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr("os.execve", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(huge_pages, "_would_help", lambda *_: True)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "train"])
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    huge_pages.start_again("train")
    ((program, arguments, environment),) = started
    assert (program, arguments) == (sys.executable, [sys.executable, "-m", "train"])
    assert environment[TUNABLES] == SETTING


@pytest.mark.parametrize("value", [None, "glibc.malloc.hugetlb=0"])
def test_a_training_starts_again_once(value: str | None, tmp_path: Path) -> None:
    if not huge_pages._would_help({}, huge_pages._kernel_setting(), huge_pages._libc()):
        pytest.skip("this kernel gives huge pages to all or to none, or this is not glibc")
    show = "import os\nprint(os.getpid(), os.environ.get('GLIBC_TUNABLES'))\n"
    (tmp_path / "config.py").write_text(f"{show}from vaswani.configs.quickstart import get_config\n")
    environment = {name: text for name, text in os.environ.items() if name != TUNABLES}
    if value is not None:
        environment[TUNABLES] = value
    command = [sys.executable, "-m", "train", f"--config={tmp_path}/config.py", f"--workdir={tmp_path}/run"]
    command.append("--config.mesh.data=1000")  # refused, so nothing is trained
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)
    output, errors = process.communicate()
    assert process.returncode == 2, errors
    assert output.split() == [str(process.pid), SETTING if value is None else value]
