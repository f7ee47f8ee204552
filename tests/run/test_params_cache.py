"""Parameters kept between commands: those of the checkpoints, bit for bit, whatever happens to the file."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests import tiny
from vaswani import compiled
from vaswani.run import averaging, checkpoint, params_cache
from vaswani.run.parameters import params_sha256

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of the checkpoints that are restored, where parameters are kept as commands keep them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(compiled.DIRECTORY, str(tmp_path / "vaswani" / "2-threads"))
    (tmp_path / "vaswani").mkdir()
    steps: list[int] = []
    load = checkpoint.load_params

    def load_params(workdir: Path, step: int) -> dict:
        steps.append(step)
        return load(workdir, step)

    monkeypatch.setattr(checkpoint, "load_params", load_params)
    return steps


def loaded(workdir: Path, choice: str = "average:2") -> tuple[list[int], str]:
    steps, params = averaging.load_choice(workdir, choice)
    for leaf in jax.tree.leaves(params):
        assert leaf.dtype == np.float32 and leaf.flags.writeable
    return steps, params_sha256(params)


def file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "vaswani" / "parameters").iterdir()
    return path


def test_the_second_time_nothing_is_restored(workdir: Path, restored: list[int]) -> None:
    first = loaded(workdir)
    assert restored == [3, 4] and loaded(workdir) == first and restored == [3, 4]


def test_each_choice_has_its_own(workdir: Path, tmp_path: Path, restored: list[int]) -> None:
    choices = ("latest", "3", "average:2", "average:3")
    right = [loaded(workdir, choice) for choice in choices]
    assert len({digest for _, digest in right}) == 4
    restored.clear()
    assert [loaded(workdir, choice) for choice in choices] == right and restored == []
    # Another run that has a checkpoint of the same number.
    other = shutil.copytree(workdir, tmp_path / "other")
    shutil.rmtree(other / "checkpoints" / "4")
    (other / "checkpoints" / "3").rename(other / "checkpoints" / "4")
    name = params_cache.name_of(other / "checkpoints", [4], "params")
    assert name == params_cache.name_of(workdir / "checkpoints", [3], "params")
    assert name != params_cache.name_of(workdir / "checkpoints", [4], "params")
    assert name != params_cache.name_of(workdir / "checkpoints", [3], "ema")


def test_the_moving_average_is_not_the_parameters(
    workdir: Path, restored: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In either order: whoever asks second must not get what the first has left."""
    params = checkpoint.load_params(workdir, 3)
    monkeypatch.setattr(checkpoint, "load_ema", lambda *_: params)  # those of another step
    right = {"ema": ([4], params_sha256(params)), "latest": loaded(workdir, "latest")}
    assert right["latest"][1] != right["ema"][1]
    for choice in ("ema", "latest", "ema"):
        assert loaded(workdir, choice) == right[choice]


def test_a_damaged_file_is_replaced(workdir: Path, tmp_path: Path, restored: list[int]) -> None:
    right = loaded(workdir)
    whole = file(tmp_path).read_bytes()
    rng = np.random.default_rng(0)
    damages = [b"", bytes(len(whole)), whole[:20], whole[:-1], whole + b"0"]
    for place in (0, 35, 100, len(whole) - 1, *rng.integers(len(whole), size=5)):
        damages.append(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    for damaged in damages:
        restored.clear()
        file(tmp_path).write_bytes(damaged)
        assert loaded(workdir) == right and restored == [3, 4]
        assert file(tmp_path).read_bytes() == whole


def test_where_no_programs_are_kept_no_parameters_are(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: list[int]
) -> None:
    monkeypatch.setenv(compiled.DIRECTORY, str(tmp_path / "mine"))
    assert loaded(workdir) == loaded(workdir) and restored == [3, 4, 3, 4]
    monkeypatch.delenv(compiled.DIRECTORY)
    assert loaded(workdir) == loaded(workdir)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_folder_that_cannot_be_written_is_no_error(workdir: Path, tmp_path: Path, restored: list[int]) -> None:
    (tmp_path / "vaswani" / "parameters").touch()
    assert loaded(workdir) == loaded(workdir) and restored == [3, 4, 3, 4]


def test_what_was_used_longest_ago_goes(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: list[int]
) -> None:
    loaded(workdir, "3")
    first = file(tmp_path)
    os.utime(first, (time.time() - 3600, time.time() - 3600))
    monkeypatch.setattr(params_cache, "MAX_BYTES", int(1.5 * first.stat().st_size))
    loaded(workdir, "4")
    assert file(tmp_path) != first


def test_parameters_that_are_too_large_are_not_kept(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: list[int]
) -> None:
    monkeypatch.setattr(params_cache, "LARGEST", 1000)
    loaded(workdir)
    assert not (tmp_path / "vaswani" / "parameters").exists()


def test_kept_parameters_are_read_without_orbax(workdir: Path, tmp_path: Path) -> None:
    """Loading it takes longer than anything else of ours in a short command."""
    code = """
import sys
from vaswani import compiled
compiled.keep()
from vaswani.infer.runs import open_run
from vaswani.run.parameters import params_sha256
print(params_sha256(open_run(sys.argv[1]).params), "orbax" in sys.modules)
"""
    variables: dict[str, Any] = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    variables |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code, str(workdir)]
    outputs = []
    for _ in range(2):
        outputs.append(
            subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()
        )
    assert outputs[0][0] == outputs[1][0]
    assert [loads_orbax for _, loads_orbax in outputs] == ["True", "False"]
