"""A short fault drill; `python -m tests.faults.drill` is the full one."""

import os
from pathlib import Path

import pytest

from tests.emulator import BUCKET, emulator
from tests.extras import needed
from tests.faults.drill import drill
from vaswani.compiled import DIRECTORY

CACHE = Path(os.environ[DIRECTORY])


@pytest.mark.slow
def test_a_few_faults_change_nothing(tmp_path: Path) -> None:
    assert drill(tmp_path, kills=1, terms=2, runs=1, seed=0, cache=CACHE)


@pytest.mark.slow
def test_a_few_faults_change_nothing_in_a_bucket(tmp_path: Path) -> None:
    needed("gcsfs")
    with emulator(tmp_path / "buckets"):
        assert drill(tmp_path, kills=2, terms=1, runs=1, seed=0, cache=CACHE, bucket=tmp_path / "buckets" / BUCKET)


@pytest.mark.long
def test_many_faults_change_nothing(tmp_path: Path) -> None:
    assert drill(tmp_path, kills=50, terms=21, runs=3, seed=1, cache=CACHE)
