"""Which runs count for a study: the newest of a seed, of the design's seeds alone; and what marks the others."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.studies.choice import notes_on, validated
from lab.studies.families import study as families
from lab.studies.g2p import study as g2p
from lab.studies.layers import study as layers
from lab.studies.mup import study as mup
from lab.studies.mup.design import RATES as RATES_OF_MUP
from lab.studies.norms import study as norms
from lab.studies.optimisers import design as optimisers_config
from lab.studies.optimisers import study as optimisers
from lab.studies.scaling import study as scaling
from lab.studies.scan import study as scan
from lab.studies.scores import study as scores_study
from lab.studies.scores.design import CHOSEN, RATES
from tests.planted import plant, planted_config, scores
from vaswani.paper.records import find_records
from vaswani.paper.rows import row_runs
from vaswani.train.table import Table

DEEP = f"{norms.FILE}:post-12-4"
DIRTY = {"git": {"commit": "0" * 40, "dirty": True}}


def launched(folder: Path, **changes: Any) -> None:
    """Changes what the launch of a planted run says."""
    path = folder / "run.json"
    (launch,) = json.loads(path.read_text())["launches"]
    path.write_text(json.dumps({"launches": [{**launch, **changes}]}))


def first_cells(table: Table) -> list[str]:
    return [cells[0] for cells in table.rows]


@pytest.mark.parametrize(("older", "newer"), [("a", "z"), ("z", "a")])
def test_the_newest_run_of_a_seed_counts_whatever_it_is_called(tmp_path: Path, older: str, newer: str) -> None:
    config = planted_config(DEEP, seed=0)
    for name, started, perplexity in ((older, "2026-01-31", 200.0), (newer, "2026-02-01", 2.0)):
        launched(plant(tmp_path / name, config, validations=[(config["steps"], perplexity)]), started=started)
    taken = validated(find_records(tmp_path), [DEEP])[DEEP][0]
    assert (taken.run.path, taken.perplexity) == (tmp_path / newer, 2.0)
    assert notes_on({"post-12-4": [taken]}) == [
        f"post-12-4, seed 0: {tmp_path / newer} is taken; not {tmp_path / older}"
    ]
    (table,) = norms.tables(find_records(tmp_path))
    assert table.notes[-1] == notes_on({"post-12-4": [taken]})[0]


def test_every_table_of_validations_marks_runs_that_cannot_be_checked_out(tmp_path: Path) -> None:
    adam = optimisers_config.OPTIONS["adam"][0]
    for name, seed in (
        (DEEP, 0),
        (f"{mup.FILE}:mup-64:{RATES_OF_MUP[0]}", 0),
        (f"{scores_study.FILE}:scaled-8:{RATES[0]}", 0),
        (optimisers.run_of("adam", adam), 0),
    ):
        config = planted_config(name, seed=seed)
        launched(plant(tmp_path / name, config, validations=[(config["steps"], 2.0)]), **DIRTY)
    records = find_records(tmp_path)
    for table, row in (
        (norms.tables(records)[0], "post-12"),
        (mup.tables(records)[0], "mup-64"),
        (scores_study.tables(records)[1], "scaled-8"),
        (optimisers.stage_1(records), "adam"),
    ):
        marked = {label for label in first_cells(table) if label.endswith("†")}
        assert marked == {f"{row} †"}, table.name
        notes = [note for note in table.notes if note.startswith("†")]
        assert notes and all(row in note for note in notes), table.name


def test_a_row_says_where_stage_2_has_another_option_than_its_records_choose(tmp_path: Path) -> None:
    for rate in RATES:
        config = planted_config(f"{scores_study.FILE}:scaled-8:{rate}", seed=0)
        perplexity = 3.0 if rate == CHOSEN["scaled-8"] else 2.0
        plant(tmp_path / str(rate), config, validations=[(config["steps"], perplexity)])
    best = next(rate for rate in RATES if rate != CHOSEN["scaled-8"])
    notes = scores_study.tables(find_records(tmp_path))[1].notes
    assert f"scaled-8: stage 2 has {CHOSEN['scaled-8']}, by CHOSEN in {scores_study.FILE}, and not {best}" in notes


def test_a_run_that_began_with_another_is_not_one_of_a_row(tmp_path: Path) -> None:
    name = layers.ROWS.configs["attention"]
    for seed in (0, 1):
        config = planted_config(name, seed=seed)
        plant(tmp_path / str(seed), config, scores(config, "test", 80.0))
    launched(tmp_path / "1", init={"run": "runs/other"})
    records = find_records(tmp_path)
    assert [scored.run.path.name for scored in row_runs(records, name, "test").scored] == ["0"]
    assert [scored.run.path.name for scored in row_runs(records, name, "test", begun=True).scored] == ["1"]


def test_a_row_says_if_its_seeds_were_trained_on_different_texts(tmp_path: Path) -> None:
    name = layers.ROWS.configs["attention"]

    def notes(*texts: str) -> list[str]:
        for seed, text in enumerate(texts):
            folder = tmp_path / str(seed)
            config = planted_config(name, seed=seed)
            if not folder.exists():
                plant(folder, config, scores(config, "test", 80.0))
            launched(folder, data={"train": {"sha256": {"ids.bin": text}}})
        return row_runs(find_records(tmp_path), name, "test").notes

    assert notes("one", "one") == []
    paths = [str(tmp_path / seed) for seed in ("0", "1")]
    assert notes("one", "two") == [
        f"{name}: not all seeds have the same training text and subwords: {paths[0]}; {paths[1]}"
    ]


def test_seeds_beyond_those_of_the_design_do_not_count(tmp_path: Path) -> None:
    for seed in range(9):
        config = planted_config(f"{scaling.FILE}:64-200", seed=seed)
        plant(tmp_path / f"scaling-{seed}", config, scores(config, "test", 1.0, nll=5.0, nll_by_position=[5.0]))
        for split in ("length", "around-right"):
            config = planted_config(f"{scan.FILE}:{split}", seed=seed)
            plant(tmp_path / f"{split}-{seed}", config, scores(config, "test", 50.0))
        config = planted_config("configs/quickstart.py", seed=seed)
        plant(tmp_path / f"translator-{seed}", config, scores(config, "test", 90.0))
        config = planted_config("configs/classification.py:tense", seed=seed)
        found = scores(config, "test", 0.9, accuracy=0.9, nll=0.3)
        plant(tmp_path / f"classifier-{seed}", config, found)
    records = find_records(tmp_path)
    assert len(scaling.FIRST.find(records)["64-200"].scored) == 3
    found_families = families.rows(records)
    assert len(found_families["encoder and decoder"].scored) == 5
    assert len(found_families["tense, from scratch"].scored) == 3
    assert {split: len(row.scored) for split, row in scan.rows(records).items()} == {
        "simple": 0,
        "length": 3,
        "around-right": 7,
    }


def test_stage_1_of_pronunciations_marks_them_too(tmp_path: Path) -> None:
    config = planted_config(f"{g2p.FILE}:dut:0.1", seed=0)
    plant(tmp_path / "dut", config, scores(config, "valid", 80.0, edits_as_is=2.0, by_length=[]))
    launched(tmp_path / "dut", **DIRTY)
    _, stage_1, _ = g2p.tables(find_records(tmp_path))
    assert first_cells(stage_1) == ["dut †"]
    assert any(note.startswith("†") and note.endswith(": dut") for note in stage_1.notes)
