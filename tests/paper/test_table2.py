"""Table 2 from planted runs: every reading, operations, and the paired test of two systems."""

from pathlib import Path

import pytest

from tests.planted import plant, planted_config, scores
from vaswani.paper.published import TABLE2
from vaswani.paper.records import Records, find_records
from vaswani.paper.tables import table2
from vaswani.train.table import Table

EMPTY = Records([], [], [], [])


def tables(found: Records) -> dict[str, Table]:
    return {table.name: table for table in table2.tables(found)}


def rows(table: Table, first: str) -> list[dict[str, str]]:
    return [dict(zip(table.head, cells, strict=True)) for cells in table.rows if cells[0] == first]


def test_the_papers_rows_stand_there_and_ours_have_not_run() -> None:
    made = tables(EMPTY)
    for pair in table2.PAIRS:
        table = made[f"table2-{pair}"]
        assert [cells[0] for cells in table.rows] == [s.model for s in TABLE2 if pair in s.bleu]
        assert sum("not run" in cells for cells in table.rows) == 2
    assert "Transformer (big): 41.0 in the proceedings" in made["table2-en-fr"].notes


@pytest.mark.parametrize(("pair", "reading"), [("en-de", "bleu_paper"), ("en-fr", "bleu_tok")])
def test_ours_is_the_papers_reading_and_sacrebleu_has_a_column(tmp_path: Path, pair: str, reading: str) -> None:
    config = planted_config(f"configs/big.py:{pair}")
    plant(tmp_path / "x", config, scores(config, "test", 20.0, **{reading: 28.0, "sacrebleu": 27.0}), hours=84.0)
    (found,) = rows(tables(find_records(tmp_path))[f"table2-{pair}"], "Transformer (big)")
    assert (found["BLEU: ours"], found["sacreBLEU"]) == ("28.00", "27.00")
    assert found["cost: ours"] == "84.0 h, 1 x cpu (2 cores)"
    assert found["BLEU: delta"] == ("−0.40" if pair == "en-de" else "−13.80")


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_a_run_on_an_accelerator_stands_in_the_row_and_a_note_says_so(tmp_path: Path, device: str) -> None:
    config = planted_config(f"configs/base.py:en-de:{device}")
    plant(tmp_path / "x", config, scores(config, "test", 27.0))
    table = tables(find_records(tmp_path))["table2-en-de"]
    (found,) = rows(table, "Transformer (base)")
    note = "configs/base.py:en-de: trained in packed rows, as configs/base.py:en-de:gpu is"
    assert (found["BLEU: ours"], note in table.notes) == ("27.00", True)
    plain = planted_config("configs/base.py:en-de")
    plant(tmp_path / "y", plain, scores(plain, "test", 26.0))
    table = tables(find_records(tmp_path))["table2-en-de"]
    (found,) = rows(table, "Transformer (base)")
    assert (found["BLEU: ours"], note in table.notes) == ("26.00", False)


def test_every_reading_has_its_signature(tmp_path: Path) -> None:
    config = planted_config("configs/base.py:en-de:small")
    plant(tmp_path / "x", config, scores(config, "test", 20.0, chrf=40.0))
    table = tables(find_records(tmp_path))["table2-readings"]
    (found,) = rows(table, "base, scaled-down model")
    assert (found["chrf"], found["bleu_paper"]) == ("40.00", "20.00")
    assert "chrf: chrf:signature (base, scaled-down model en-de)" in table.notes


def test_scaled_down_models_compare_the_step_from_base_to_big(tmp_path: Path) -> None:
    for size, value in (("base", 90.0), ("big", 92.5)):
        config = planted_config(f"configs/{size}.py:en-de:small")
        plant(tmp_path / size, config, scores(config, "test", value))
    (found, _) = rows(tables(find_records(tmp_path))["table2-small"], "Transformer (big), scaled-down model")
    assert (found["big − base: paper"], found["big − base: ours"]) == ("+1.1", "+2.50")


def test_the_step_from_base_to_big_is_of_the_seeds_that_both_have_with_its_error(tmp_path: Path) -> None:
    for size, values in (("base", (90.0, 91.0, 10.0)), ("big", (92.0, 95.0))):
        for seed, value in enumerate(values):
            config = planted_config(f"configs/{size}.py:en-fr:small")
            config["seed"] = seed
            plant(tmp_path / f"{size}-{seed}", config, scores(config, "test", value))
    (_, found) = rows(tables(find_records(tmp_path))["table2-small"], "Transformer (big), scaled-down model")
    assert (found["big − base: paper"], found["big − base: ours"]) == ("+3.7", "+3.00 ± 12.71")


def test_the_scaled_down_models_say_what_is_no_second_experiment_and_what_is_the_average_of_a_whole_run() -> None:
    """Only English-German has Table 3's dropout and direction; only big keeps 20 checkpoints of 20."""
    notes = tables(EMPTY)["table2-small"].notes
    (once,) = [note for note in notes if note.endswith("one experiment, not two")]
    assert once.startswith("en-de: the same models, trained alike, as base and big among Table 3's scaled-down models")
    whole = [note for note in notes if "which is of the whole run" in note]
    assert [note.partition(":")[0] for note in whole] == ["big, en-de", "big, en-fr"]
    assert "the average of the last 20 checkpoints, one every 120 of 2,400 updates" in whole[0]


def test_operations_are_the_papers_by_its_formula() -> None:
    for model, value in (("Transformer (base)", "3.3e18"), ("Transformer (big)", "2.3e19")):
        for found in rows(tables(EMPTY)["table2-flops"], model):
            assert found["paper: printed"] == found["paper: hours x rate"] == value
            assert found["ours: analytic"] != ""
            assert (found["ours: hours x rate"], found["ours: XLA"], found["cost"]) == ("", "", "not run")


def test_a_signature_is_of_a_score_that_is_shown_and_its_models_can_be_told_apart(tmp_path: Path) -> None:
    for size in ("base", "big"):
        config = planted_config(f"configs/{size}.py:en-de:small")
        plant(tmp_path / size, config, scores(config, "test", 20.0))
    notes = tables(find_records(tmp_path))["table2-readings"].notes
    assert "chrf: chrf:signature (base, scaled-down model en-de; big, scaled-down model en-de)" in notes
    assert not [note for note in notes if note.startswith(("chrf_pp:", "ter:"))]
