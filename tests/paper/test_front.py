"""The README's table: means over seeds, the minutes of what came before, and what has no record."""

from pathlib import Path

import pytest

from tests.planted import plant, planted_config, scores
from vaswani.paper import front
from vaswani.paper.records import RunRecord, read_run


def run_with(folder: Path, seed: int, hours: float, **values: float) -> RunRecord:
    config = planted_config("configs/quickstart.py", seed=seed)
    return read_run(plant(folder, config, {**scores(config, "test", 1.0), **values}, hours=hours))


def cells(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture
def records(tmp_path: Path) -> dict[str, RunRecord]:
    found = {f"multi30k_published/seed{n}": run_with(tmp_path / f"{n}", n, 2.0, bleu_as_is=40.0 + n) for n in range(3)}
    found["multi30k"] = run_with(tmp_path / "first", 0, 1.0, bleu_tok_lc=39.5)
    found["multi30k_longer"] = run_with(tmp_path / "longer", 0, 0.5, bleu_tok_lc=40.5)
    return found


def test_seeds_are_one_row_with_their_mean_and_its_interval(records: dict[str, RunRecord]) -> None:
    *_, published, ours, seeds, minutes = cells(front.table(records), "image captions (Multi30k), published recipe")
    assert (published, ours, seeds) == ("41.02", "41.00 ± 2.48", "3")  # 4.303 / sqrt(3)
    assert minutes == "120, 1 x cpu (2 cores)"


def test_the_minutes_of_a_run_that_another_began_with_count(records: dict[str, RunRecord]) -> None:
    *_, ours, seeds, minutes = cells(front.table(records), "the same, longer")
    assert (ours, seeds, minutes) == ("40.50", "1", "90, 1 x cpu (2 cores)")


def test_what_has_no_record_has_not_run(records: dict[str, RunRecord]) -> None:
    assert cells(front.table(records), "a bundled grammar")[-3:] == ["not run", "0", ""]
