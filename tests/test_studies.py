"""The studies from planted runs: values, differences between seeds, what is missing, and figures."""

from pathlib import Path
from typing import Any

import pytest

from base.table import Table
from configs.extrapolation import LENGTH, POSITIONS
from configs.layers import D_FF
from model.config import parameter_count
from paper.records import Records, find_records, load
from paper.studies import STUDIES, extrapolation, layers
from run.folder import model_config
from tests.planted import plant, planted_config, scores
from train.aot.flops import update_flops

EMPTY = Records([], [], [], [])
NAMES = {"layers": tuple(D_FF), "extrapolation": POSITIONS}


def row(table: Table, name: str) -> dict[str, str]:
    (cells,) = (cells for cells in table.rows if cells[0] == name)
    return dict(zip(table.head, cells, strict=True))


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_stands_there_and_says_that_it_has_not_run(name: str, tmp_path: Path) -> None:
    (table,) = STUDIES[name].tables(EMPTY)
    assert [cells[0] for cells in table.rows] == list(NAMES[name])
    assert all("not run" in cells and len(cells) == len(table.head) for cells in table.rows)
    STUDIES[name].plot(EMPTY, tmp_path / "empty.svg")
    assert (tmp_path / "empty.svg").read_text().rstrip().endswith("</svg>")


def test_mixers_are_compared_with_attention_seed_by_seed(tmp_path: Path) -> None:
    for mixer, seed, perplexity, bleu in (
        ("attention", 0, 1.5, 80.0),
        ("attention", 1, 2.0, 70.0),
        ("recurrent", 0, 1.8, 79.0),
        ("recurrent", 1, 2.2, 67.0),
    ):
        config = planted_config(layers.config_of(mixer), seed=seed)
        plant(tmp_path / f"{mixer}{seed}", config, scores(config, "test", bleu, perplexity=perplexity), hours=seed + 1)
    records = find_records(tmp_path)
    found = row(layers.tables(records)[0], "recurrent")
    # log(1.8 / 1.5) = 0.1823 and log(2.2 / 2) = 0.0953: mean 0.1388, half their distance 0.0435.
    assert found["log perplexity − attention"] == "+0.139 ± 0.044"
    assert found["sacreBLEU − attention"] == "−2.00 ± 1.00"
    assert (found["perplexity"], found["training minutes"], found["seeds"]) == ("2.000 ± 0.283", "90.00 ± 42.43", "2")
    cfg = load(layers.config_of("recurrent"))
    operations = 200 * update_flops(model_config(cfg, 1_800), 2_048 // 64, 64, 64)
    assert float(found["training operations"]) == pytest.approx(operations, rel=1e-2)
    assert row(layers.tables(records)[0], "attention")["sacreBLEU − attention"] == ""
    layers.plot(records, tmp_path / "layers.svg")
    assert (tmp_path / "layers.svg").stat().st_size > 10_000


def plant_text(folder: Path, kind: str, seed: int, nll_t: list[float], **changes: Any) -> None:
    config = planted_config(f"{extrapolation.FILE}:{kind}", seed=seed)
    search = ("beam", "alpha", "extra_length", "sacrebleu")
    whole = scores(config, "test", 1.0, nll=sum(nll_t) / len(nll_t), nll_by_position=nll_t, **changes)
    plant(folder / f"{kind}{seed}", config, {key: value for key, value in whole.items() if key not in search})


def test_bands_beyond_the_training_length_are_compared_with_that_within(tmp_path: Path) -> None:
    for seed, beyond in ((0, 3.0), (1, 5.0)):
        plant_text(tmp_path, "rope", seed, [9.0] * (LENGTH // 2) + [1.0] * (LENGTH // 2) + [beyond] * 3 * LENGTH)
        plant_text(tmp_path, "learned", seed, [9.0] * (LENGTH // 2) + [2.0] * (LENGTH // 2))
        plant_text(tmp_path, "alibi", seed, [1.0] * LENGTH)
    (table,) = extrapolation.tables(find_records(tmp_path))
    rope, learned, alibi = (list(row(table, kind).values()) for kind in ("rope", "learned", "alibi"))
    band = "4.000 ± 1.414"
    assert rope[1:6] == ["1.000 ± 0.000", band, band, "+3.000 ± 1.000", "+3.000 ± 1.000"]
    assert learned[1:6] == ["2.000 ± 0.000", "not learned", "not learned", "", ""]
    assert alibi[2:4] == ["not evaluated", "not evaluated"]
    cfg = load(f"{extrapolation.FILE}:learned")
    count = parameter_count(model_config(cfg, cfg.data.vocab_size), decoder_only=True)
    assert row(table, "learned")["parameters"] == f"{count:,}"
    extrapolation.plot(find_records(tmp_path), tmp_path / "extrapolation.svg")
    assert (tmp_path / "extrapolation.svg").stat().st_size > 10_000
