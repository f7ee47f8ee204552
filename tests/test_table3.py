"""Table 3 from planted runs: means, differences, states, and the trend of the small twins."""

from pathlib import Path

import pytest

from base.table import Table
from model.config import parameter_count
from paper.published import TABLE3
from paper.records import Found, load, search
from paper.tables import table3
from run.folder import model_config
from tests.planted import plant, planted_config, scores

EMPTY = Found([], [], [], [])


def row(table: Table, name: str) -> dict[str, str]:
    (cells,) = (cells for cells in table.rows if cells[0] == name)
    return dict(zip(table.head, cells, strict=True))


def plant_row(folder: Path, row: str, perplexity: float, bleu: float, seed: int = 0) -> None:
    config = planted_config(f"configs/ablations.py:{row}", seed=seed)
    evaluation = scores(config, "valid", bleu, perplexity=perplexity, params_sha256=f"{row}{seed}")
    plant(folder / f"run {row} {seed}".replace(":", " "), config, evaluation)


def test_every_row_of_the_paper_stands_there_and_says_that_it_has_not_run() -> None:
    for table in table3.tables(EMPTY):
        assert [cells[0] for cells in table.rows] == list(TABLE3)
        assert sum("not run" in cells for cells in table.rows) == len(TABLE3)
        assert all(len(cells) == len(table.head) for cells in table.rows)


def test_a_full_size_row_stands_beside_the_papers(tmp_path: Path) -> None:
    plant_row(tmp_path, "A1", 5.39, 24.5, seed=0)
    plant_row(tmp_path, "A1", 5.29, 24.7, seed=1)
    found = row(table3.full(search(tmp_path)), "A1")
    assert found["perplexity: paper"] == "5.29"
    assert found["perplexity: ours"] == "5.34 ± 0.07"
    assert found["perplexity: delta"] == "+0.05"
    assert (found["BLEU: ours"], found["BLEU: delta"]) == ("24.60 ± 0.14", "−0.30")
    assert (found["seeds"], found["cost: ours"]) == ("2", "1.00 h, 1 x cpu (2 cores)")
    assert found["parameters: ours"] == "1,000,000"
    assert row(table3.full(search(tmp_path)), "A2")["perplexity: ours"] == "not run"


def test_parameters_are_exact_beside_the_papers_rounded_ones() -> None:
    cfg = load("configs/ablations.py:C5")
    found = row(table3.full(EMPTY), "C5")
    assert found["parameters: paper"] == "168e6"
    assert found["parameters: ours"] == f"{parameter_count(model_config(cfg, cfg.data.vocab_size)):,}"


def test_small_twins_show_how_far_from_base_they_are(tmp_path: Path) -> None:
    plant_row(tmp_path, "base:small", 1.5, 80.0)
    plant_row(tmp_path, "A1:small", 1.8, 77.0, seed=0)
    plant_row(tmp_path, "A1:small", 1.6, 78.0, seed=1)
    table = table3.small(search(tmp_path))
    found = row(table, "A1")
    assert (found["perplexity − base: paper"], found["perplexity − base: ours"]) == ("+0.37", "+0.200")
    assert (found["BLEU − base: paper"], found["BLEU − base: ours"]) == ("−0.9", "−2.50")
    assert row(table, "A2")["perplexity"] == "not run"
    assert row(table3.full(search(tmp_path)), "A1")["perplexity: ours"] == "not run"


def test_an_unfinished_row_says_so(tmp_path: Path) -> None:
    plant(tmp_path / "run", planted_config("configs/ablations.py:D1:small"), steps=10)
    table = table3.small(search(tmp_path))
    assert row(table, "D1")["perplexity"] == "unfinished"
    assert any("D1:small, seed 0: unfinished (10 of" in note for note in table.notes)


def test_the_trend_counts_sides_and_ranks(tmp_path: Path) -> None:
    for name, perplexity in (("base", 1.5), ("A1", 1.8), ("C1", 1.4), ("C5", 1.3)):
        plant_row(tmp_path, f"{name}:small", perplexity, 50.0)
    notes = table3.small(search(tmp_path)).notes
    # The paper: C5 4.66 < base 4.92 < A1 5.29 < C1 6.11. Ours: C5 < C1 < base < A1, so ranks 0 2 3 1 beside 0 1 2 3.
    sides = "on the paper's side of base in 2 of 3 rows that differ from it there"
    assert f"perplexity: {sides}; rank correlation of 4 rows 0.40" in notes
    assert not any(note.startswith("sacrebleu: ") and "rank" in note for note in notes)


def test_ranks_of_equal_values_are_shared() -> None:
    assert table3.ranks([5.0, 1.0, 5.0, 7.0]) == pytest.approx([1.5, 0, 1.5, 3])


def test_what_a_row_changes_is_said_in_its_own_size() -> None:
    assert table3.changed("A1") == "h 1, d_k 512, d_v 512"
    assert table3.changed("A1:small") == "h 1, d_k 128, d_v 128"
    assert table3.changed("big").endswith("steps 300,000")
