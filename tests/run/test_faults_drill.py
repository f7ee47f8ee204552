"""A short fault drill; `python -m tests.faults.drill` is the full one."""

from pathlib import Path

import pytest

from tests.faults.drill import ROOT, drill

CACHE = ROOT / ".cache" / "jax-tests"


@pytest.mark.slow
def test_a_few_faults_change_nothing(tmp_path: Path) -> None:
    assert drill(tmp_path, kills=1, terms=2, runs=1, seed=0, cache=CACHE)


@pytest.mark.long
def test_many_faults_change_nothing(tmp_path: Path) -> None:
    assert drill(tmp_path, kills=50, terms=21, runs=3, seed=1, cache=CACHE)
