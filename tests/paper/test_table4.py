"""Table 4 from planted runs."""

from pathlib import Path

from tests.planted import plant, planted_config, scores
from vaswani.paper.published import TABLE4
from vaswani.paper.records import PARSING, Records, find_records
from vaswani.paper.tables import table4


def test_the_papers_rows_stand_there_and_ours_have_not_run() -> None:
    full, small = table4.tables(Records([], [], [], []))
    assert [cells[:2] for cells in full.rows] == [(row.parser, row.training) for row in TABLE4]
    assert [cells[0] for cells in full.rows if "not run" in cells] == ["Transformer (4 layers)"] * 2
    assert small.rows[0][1:7] == ("not run",) * 6


def test_f1_stands_beside_the_papers(tmp_path: Path) -> None:
    measures = dict.fromkeys(PARSING, 90.0)
    for row, f1 in (("wsj", 91.0), ("semi", 93.0), ("small", 99.0)):
        config = planted_config(f"configs/parsing.py:{row}")
        plant(tmp_path / row, config, {**scores(config, "test", 1.0), **measures, "f1": f1})
    full, small = table4.tables(find_records(tmp_path))
    ours = [cells[2:6] for cells in full.rows if cells[0] == "Transformer (4 layers)"]
    assert ours == [("91.3", "91.00", "−0.30", "1"), ("92.7", "93.00", "+0.30", "1")]
    assert small.rows[0][1:3] == ("99.00", "90.00")
    assert all("gold trees' tags decide" in table.notes[0] and "EVALB" in table.notes[0] for table in (full, small))


def test_bleu_of_trees_is_not_f1(tmp_path: Path) -> None:
    for row in ("wsj", "small"):
        config = planted_config(f"configs/parsing.py:{row}")
        plant(tmp_path / row, config, scores(config, "test", 1.0))
    full, small = table4.tables(find_records(tmp_path))
    assert next(cells[3] for cells in full.rows if cells[0] == "Transformer (4 layers)") == "not evaluated on test"
    assert small.rows[0][1] == "not evaluated on test"
