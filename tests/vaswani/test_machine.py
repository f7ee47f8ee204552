"""The peak of a process's memory: its own, in bytes."""

import subprocess
import sys
from pathlib import Path

import pytest

from vaswani import machine

OWN = "from vaswani import machine; print(machine.largest_resident())"
BIG = 300 * 2**20


@pytest.mark.skipif(not machine.STATUS.exists(), reason="needs Linux, whose getrusage begins at the parent's peak")
def test_it_is_not_that_of_the_process_that_started_this_one() -> None:
    begin = f"import subprocess, sys; x = b'x' * {BIG}; subprocess.run([sys.executable, '-c', {OWN!r}], check=True)"
    done = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, check=True)
    assert 2**20 < int(done.stdout) < BIG / 3


def test_it_counts_what_was_used_and_freed() -> None:
    code = f"from vaswani import machine; x = b'x' * {BIG}; del x; print(machine.largest_resident())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert BIG < int(done.stdout) < 2 * BIG


def test_without_such_a_file_the_system_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = machine.largest_resident()
    monkeypatch.setattr(machine, "STATUS", tmp_path / "none")
    assert own / 2 < machine.largest_resident() < 64 * 2**30


def test_a_container_or_a_job_may_use_less_than_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    monkeypatch.setattr(machine, "GROUPS", groups)
    monkeypatch.setattr(machine, "LIMITS", tmp_path)
    whole = machine.most_allowed()  # no groups
    job = tmp_path / "slurm" / "job_7"
    (job / "step_0").mkdir(parents=True)
    groups.write_text("0::/slurm/job_7/step_0\n")
    (job / "step_0" / "memory.max").write_text("max\n")
    assert machine.most_allowed() == whole
    (job / "memory.max").write_text(f"{3 << 20}\n")
    assert machine.most_allowed() == 3 << 20
