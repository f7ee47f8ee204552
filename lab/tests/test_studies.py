"""The studies from planted runs: values, differences between seeds, what is missing, and figures."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.results import TABLES
from lab.studies.bottleneck import study as bottleneck
from lab.studies.bottleneck.design import RATES
from lab.studies.choice import validated
from lab.studies.distance import study as distance
from lab.studies.extrapolation import study as extrapolation
from lab.studies.extrapolation.design import LENGTH
from lab.studies.families import study as families
from lab.studies.g2p import study as g2p
from lab.studies.g2p.design import LANGUAGES
from lab.studies.index import STUDIES, studies
from lab.studies.layers import study as layers
from lab.studies.layers.design import D_FF
from lab.studies.mup import design as mup_config
from lab.studies.mup import study as mup
from lab.studies.norms import study as norms
from lab.studies.norms.design import ROWS as ROWS_OF_NORMS
from lab.studies.norms.design import SEEDS, WARMUPS
from lab.studies.optimisers import design as optimisers_config
from lab.studies.optimisers import study as optimisers
from lab.studies.scaling import study as scaling
from lab.studies.scaling.design import LONG_ROWS, ROWS
from lab.studies.scan import study as scan
from lab.studies.scan_length import study as scan_length
from lab.studies.scores import study as scores_study
from tests.conftest import ROOT
from tests.planted import plant, planted_config, scores
from vaswani.model.parameter_count import parameter_count
from vaswani.paper.records import Records, find_records
from vaswani.paper.rows import load
from vaswani.tasks.config import model_config
from vaswani.tasks.loss import Loss
from vaswani.train.aot.flops import update_flops
from vaswani.train.metrics import NotFiniteError, Reporter
from vaswani.train.step import Sums
from vaswani.train.table import Table

EMPTY = Records([], [], [], [])


def row(table: Table, name: str) -> dict[str, str]:
    (cells,) = (cells for cells in table.rows if cells[0] == name)
    return dict(zip(table.head, cells, strict=True))


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_stands_there_and_says_that_it_has_not_run(name: str, tmp_path: Path) -> None:
    study = studies()[name]
    table, *_ = study.tables(EMPTY)
    labels = [f"| {cells[0]} " for cells in table.rows]
    committed = (ROOT / TABLES).read_text(encoding="utf-8").partition(f"### {table.title}\n")[2].partition("\n###")[0]
    assert [line for line in labels if f"\n{line}" not in committed] == []
    assert len(labels) == len(set(labels)) == committed.count("\n| ") - 1, "one line is the head"
    assert all("not run" in cells and len(cells) == len(table.head) for cells in table.rows)
    assert all(isinstance(label, str) for label in study.rows(EMPTY)), "labels of curves in the report"
    study.plot(EMPTY, tmp_path / "empty.svg")
    assert (tmp_path / "empty.svg").read_text().rstrip().endswith("</svg>")


def test_mixers_are_compared_with_attention_seed_by_seed(tmp_path: Path) -> None:
    for mixer, seed, perplexity, bleu in (
        ("attention", 0, 1.5, 80.0),
        ("attention", 1, 2.0, 70.0),
        ("recurrent", 0, 1.8, 79.0),
        ("recurrent", 1, 2.2, 67.0),
    ):
        config = planted_config(layers.ROWS.configs[mixer], seed=seed)
        plant(tmp_path / f"{mixer}{seed}", config, scores(config, "test", bleu, perplexity=perplexity), hours=seed + 1)
    records = find_records(tmp_path)
    found = row(layers.tables(records)[0], "recurrent")
    # log(1.8 / 1.5) = 0.1823 and log(2.2 / 2) = 0.0953: mean 0.1388, half their distance 0.0435.
    assert found["log perplexity − attention"] == "+0.139 ± 0.553"  # two seeds: 12.706 standard errors
    assert found["sacreBLEU − attention"] == "−2.00 ± 12.71"
    (note,) = [note for note in layers.tables(records)[0].notes if note.startswith("sacreBLEU − attention: p")]
    assert note.endswith("t-test over the seeds: recurrent 0.3")  # 1 - 2 atan(2) / pi, of t = 2
    assert (found["perplexity"], found["training minutes"], found["seeds"]) == ("2.000 ± 0.283", "90.00 ± 42.43", "2")
    cfg = load(layers.ROWS.configs["recurrent"])
    operations = 300 * update_flops(model_config(cfg, 1_800), 2_048 // 64, 64, 64)
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
    assert rope[1:6] == ["1.000 ± 0.000", band, band, "+3.000 ± 12.706", "+3.000 ± 12.706"]
    assert learned[1:6] == ["2.000 ± 0.000", "not learned", "not learned", "", ""]
    assert alibi[2:4] == ["not evaluated", "not evaluated"]
    cfg = load(f"{extrapolation.FILE}:learned")
    count = parameter_count(model_config(cfg, cfg.data.vocab_size), decoder_only=True)
    assert row(table, "learned")["parameters"] == f"{count:,}"
    extrapolation.plot(find_records(tmp_path), tmp_path / "extrapolation.svg")
    assert (tmp_path / "extrapolation.svg").stat().st_size > 10_000


def test_lengths_of_scan_are_judged_once_all_runs_are_there(tmp_path: Path) -> None:
    def plant_seeds(name: str, values: tuple[float, ...]) -> None:
        for seed, value in enumerate(values):
            config = planted_config(f"{scan_length.FILE}:{name}", seed=seed)
            alone = scores(config, "test", value, time="2027")
            oracle = {} if name == "shaw:22" else {"oracle_match": value + 2}
            plant(tmp_path / f"{name}-{seed}", config, alone, scores(config, "test", value) | oracle)

    plant_seeds("sinusoidal:26", (10.0, 12.0, 10.0, 12.0, 11.0))
    plant_seeds("shaw:26", (90.0, 94.0))
    plant_seeds("shaw:22", (20.0,))
    (table,) = scan_length.tables(find_records(tmp_path))
    assert list(row(table, "shaw:26").values())[1:4] == ["", "92.00 ± 2.83", "94.00 ± 2.83"]
    assert list(row(table, "shaw:22").values())[1:5] == ["", "20.00", "not evaluated on test", "1"]
    assert row(table, "shaw:30")["exact match %: ours"] == "not run"
    # 80 and 82: one half of the interval is 12.706 standard errors of 1.
    better = "relative positions are better, own layers, 26 actions: +81.0 ± 12.7 points"
    assert any(note.startswith(better) for note in table.notes)
    assert not any("t-test" in note for note in table.notes)
    assert "verdict on shaw, as published for shaw-shared: open" in table.notes
    assert "verdict on shaw-shared, as published: not run" in table.notes
    for seed in (0, 1):
        shutil.rmtree(tmp_path / f"shaw:26-{seed}")
    for name in ("shaw:26", "sinusoidal-shared:26", "shaw-shared:26"):
        plant_seeds(name, (90.0, 94.0, 96.0, 96.0, 97.0))
    (table,) = scan_length.tables(find_records(tmp_path))
    assert any(note.startswith("relative positions are better, 26 actions: p of") for note in table.notes)
    assert "verdict on shaw, as published for shaw-shared: not met" in table.notes
    scan_length.plot(find_records(tmp_path), tmp_path / "scan_length.svg")
    assert (tmp_path / "scan_length.svg").stat().st_size > 4_000


def test_what_is_published_of_shared_layers_stands_beside_no_other_model(tmp_path: Path) -> None:
    (table,) = scan_length.tables(find_records(tmp_path))
    published = {cells[0]: cells[1] for cells in table.rows if cells[1]}
    assert published == {"shaw-shared:26": "100.0"}
    assert "verdict on shaw, as published for shaw-shared: not run" in table.notes
    assert "verdict on shaw-shared, as published: not run" in table.notes


def test_the_oracle_length_of_scan_is_of_the_runs_that_the_row_shows(tmp_path: Path) -> None:
    config = planted_config(f"{scan_length.FILE}:shaw:26", seed=0)
    plant(tmp_path / "older", config, scores(config, "test", 20.0, oracle_match=99.0))
    plant(tmp_path / "newer", config, scores(config, "test", 60.0, time="2027"))
    (table,) = scan_length.tables(find_records(tmp_path))
    assert list(row(table, "shaw:26").values())[2:5] == ["60.00", "not evaluated on test", "1"]
    assert not any("with the oracle length, of" in note for note in table.notes)
    config = planted_config(f"{scan_length.FILE}:shaw:26", seed=1)
    plant(tmp_path / "second", config, scores(config, "test", 62.0, oracle_match=70.0))
    (table,) = scan_length.tables(find_records(tmp_path))
    assert list(row(table, "shaw:26").values())[2:5] == ["61.00 ± 1.41", "70.00", "2"]
    assert "with the oracle length, of fewer seeds: shaw:26 (1 of 2)" in table.notes
    config = planted_config(f"{scan_length.FILE}:sinusoidal:26", seed=0)
    plant(tmp_path / "unfinished", config, steps=2_000)
    (table,) = scan_length.tables(find_records(tmp_path))
    assert list(row(table, "sinusoidal:26").values())[2:4] == ["unfinished", "unfinished"]


def test_a_difference_of_one_seed_by_length_is_given_no_interval(tmp_path: Path) -> None:
    for model, value in (("sinusoidal", 52.0), ("shaw", 34.5)):
        config = planted_config(f"{scan_length.FILE}:{model}:26", seed=0)
        plant(tmp_path / model, config, scores(config, "test", value))
    (table,) = scan_length.tables(find_records(tmp_path))
    assert "relative positions are better, own layers, 26 actions: −17.5 points, of one seed" in table.notes


def test_scan_stands_beside_what_is_published(tmp_path: Path) -> None:
    for split, value in (("simple", 99.5), ("around-right", 51.0)):
        config = planted_config(f"{scan.FILE}:{split}")
        plant(tmp_path / split, config, scores(config, "test", value))
    (table,) = scan.tables(find_records(tmp_path))
    assert not any("t-test" in note for note in table.notes)
    assert list(row(table, "simple").values())[1:4] == ["", "99.50", ""]
    assert list(row(table, "around-right").values())[1:4] == ["53.0", "51.00", "−2.0"]
    assert list(row(table, "length").values())[1:4] == ["0.0", "not run", ""]
    config = planted_config(f"{scan.FILE}:around-right", seed=1)
    plant(tmp_path / "second", config, scores(config, "test", 53.0))
    (table,) = scan.tables(find_records(tmp_path))
    # Means 52 beside 53, one apart of two seeds that are two apart: 12.706 standard errors of one are the interval.
    assert row(table, "around-right")["exact match %: delta"] == "−1.0 ± 12.7"
    assert any(note.endswith("over the seeds: around-right 0.5") for note in table.notes)  # as Cauchy's of t = 1
    scan.plot(find_records(tmp_path), tmp_path / "scan.svg")
    assert (tmp_path / "scan.svg").stat().st_size > 4_000


LAW = np.array([0.7, 30.0, 0.45, 900.0, 0.62])


def law_of_first(folder: Path) -> Table:
    runs = scaling.FIRST.find(find_records(folder))
    return scaling.law_table(runs, scaling.fitted(runs), "scaling-law", "Scaling")


def test_a_law_is_found_again_and_the_largest_run_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    for name in ROWS:
        for seed in range(2):
            nll = float(scaling.predicted(LAW, *scaling.size(name))) * float(np.exp(0.003 * random.standard_normal()))
            config = planted_config(f"{scaling.FILE}:{name}", seed=seed)
            whole = scores(config, "test", 1.0, nll=nll, nll_by_position=[nll])
            search = ("beam", "alpha", "extra_length", "sacrebleu")
            plant(tmp_path / f"{name}-{seed}", config, {key: one for key, one in whole.items() if key not in search})
    records = find_records(tmp_path)
    rows = scaling.FIRST.find(records)
    points = scaling.gathered({name: rows[name] for name in ROWS[:-1]})
    assert len(points.n) == 30
    found, exact = scaling.fit(points), scaling.fit(points._replace(nll=scaling.predicted(LAW, points.n, points.d)))
    np.testing.assert_allclose(exact, LAW, rtol=1e-4)
    largest = scaling.size(ROWS[-1])
    assert float(scaling.predicted(found, *largest)) == pytest.approx(float(scaling.predicted(LAW, *largest)), rel=0.01)
    draws = scaling.bootstrapped(points, draws=40)
    low, high = np.percentile([scaling.predicted(law, *largest) for law in draws], [0, 100])
    assert low < scaling.predicted(found, *largest) < high
    scaling.plot(records, tmp_path / "scaling.svg")
    assert (tmp_path / "scaling.svg").stat().st_size > 10_000
    drawn: list[tuple[int, np.ndarray]] = []
    monkeypatch.setattr(scaling, "draw_law", lambda axes, points, law: drawn.append((len(points.n), law)))
    scaling.plot(records, tmp_path / "again.svg")
    ((count, law),) = drawn
    assert count == 32 and np.array_equal(law, found)  # all runs, and the law that is judged


def test_the_second_half_of_rows_stands_beside_the_whole(tmp_path: Path) -> None:
    for seed, last in enumerate((1.0, 2.0)):
        config = planted_config(f"{scaling.FILE}:64-200", seed=seed)
        by_position = [9.0, 9.0, 2.0, last]
        plant(tmp_path / str(seed), config, scores(config, "test", 1.0, nll=5.0, nll_by_position=by_position))
    found = row(scaling.tables(find_records(tmp_path))[0], "64-200")
    assert (found["nats a token"], found["second half"]) == ("5.000 ± 0.000", "1.750 ± 0.354")


def test_a_law_without_a_floor_has_none() -> None:
    """The fit is continuous and not pulled anywhere: between the points of a grid, and with E at its bound of 0."""
    size_of = np.array([scaling.size(name) for name in ROWS], float)
    law = np.array([0.0, 31.7, 0.3337, 480.0, 0.4261])
    found = scaling.fit(scaling.Points(*size_of.T, scaling.predicted(law, *size_of.T)))
    np.testing.assert_allclose(found, law, rtol=1e-3, atol=1e-3)


def test_seeds_alike_do_not_narrow_the_interval_of_the_law() -> None:
    """Three equal seeds of each cell know no more than one: cells are redrawn, not runs."""
    size_of = np.array([scaling.size(name) for name in ROWS[:-1]], float)
    noise = np.exp(0.03 * np.random.default_rng(0).standard_normal(len(size_of)))
    one = scaling.Points(*size_of.T, scaling.predicted(LAW, *size_of.T) * noise)
    three = scaling.Points(*(np.tile(axis, 3) for axis in one))
    largest = scaling.size(ROWS[-1])
    draws = [
        [float(scaling.predicted(law, *largest)) for law in scaling.bootstrapped(points, draws=20)]
        for points in (one, three)
    ]
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-4)
    assert np.std(draws[0]) > 0.01


def test_the_law_says_how_wrong_its_prediction_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "DRAWS", 3)
    monkeypatch.setattr(scaling, "gathered", lambda rows: scaling.Points(*np.array([
        (*scaling.size(name), float(scaling.predicted(LAW, *scaling.size(name)))) for name in rows
    ]).T))  # fmt: skip
    config = planted_config(f"{scaling.FILE}:{ROWS[-1]}")
    double = 2 * float(scaling.predicted(LAW, *scaling.size(ROWS[-1])))
    plant(tmp_path / "run", config, scores(config, "test", 1.0, nll=double, nll_by_position=[double]))
    law = law_of_first(tmp_path)
    assert law.rows[-1][-1] in ("−50.0 %", "−49.9 %", "−50.1 %")
    assert law.rows[2][0] == "a" and float(law.rows[2][1]) == pytest.approx(LAW[2], rel=0.05)


@pytest.mark.parametrize(
    ("low", "high", "missing", "expected"),
    [
        (0.1, 1.77, 0, "shown"),  # of the bound, 24.47 * 4,000 / 50,000 = 1.958 nats a token, nine tenths are 1.762
        (0.1, 1.75, 0, "refuted"),
        (1e-7, 1.9, 0, "refuted"),  # the fit stays above its bound of 0
        (0.1, 1.9, 1, "open"),
        (0.1, 1.9, len(LONG_ROWS), "not run"),
    ],
)
def test_the_floor_is_judged_as_the_design_says(
    tmp_path: Path, low: float, high: float, missing: int, expected: str
) -> None:
    for name in LONG_ROWS[missing:]:
        for seed in range(scaling.SEEDS):
            config = planted_config(f"{scaling.FILE}:{name}", seed=seed)
            plant(tmp_path / f"{name}-{seed}", config, scores(config, "test", 1.0, nll=2.0, nll_by_position=[2.0]))
    runs = scaling.LONG.find(find_records(tmp_path))
    law = scaling.Fitted(9, np.full(7, 0.5), np.full(7, low), np.full(7, high))
    verdict = scaling.verdict_on_floor(runs, law)
    assert verdict.word == expected and verdict.sentence.startswith(expected)
    assert ("at most 1.96" in verdict.sentence) == (expected in ("shown", "refuted"))


def test_the_best_size_grows_with_operations_to_the_power_that_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the law itself: of many sizes, the best at two numbers of operations 6 N D."""
    monkeypatch.setattr(scaling, "DRAWS", 2)
    monkeypatch.setattr(scaling, "fit", lambda points, starts=(): LAW)
    monkeypatch.setattr(scaling, "gathered", lambda rows: scaling.Points(*np.ones((3, scaling.FEWEST))))
    law = law_of_first(tmp_path)
    sizes, budgets = np.geomspace(1e3, 1e12, 100_001), np.array([1e15, 1e18])
    best = [sizes[np.argmin(scaling.predicted(LAW, sizes, flops / (6 * sizes)))] for flops in budgets]
    power = np.log(best[1] / best[0]) / np.log(budgets[1] / budgets[0])
    assert law.rows[5][0].startswith("N_opt") and float(law.rows[5][1]) == pytest.approx(power, abs=1e-3)


def test_the_laws_intervals_leave_out_25_of_1000_draws_on_either_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "fit", lambda points, starts=(): LAW)
    monkeypatch.setattr(scaling, "bootstrapped", lambda points: np.linspace(LAW, LAW + 1, 1_001))
    monkeypatch.setattr(scaling, "gathered", lambda rows: scaling.Points(*np.ones((3, scaling.FEWEST))))
    law = law_of_first(tmp_path)
    for place, fitted in enumerate(LAW):
        low, high = (float(cell) for cell in law.rows[place][2:4])
        assert (low, high) == pytest.approx((fitted + 0.025, fitted + 0.975), rel=5e-3)  # three digits are shown


def test_what_begins_with_other_parameters_is_compared_with_what_does_not(tmp_path: Path) -> None:
    for way, seed, accuracy in (("init", 0, 0.9), ("init", 1, 0.8), ("new", 0, 0.7), ("new", 1, 0.7), ("new", 2, 0.7)):
        config = planted_config(
            "configs/classification.py:tense", seed=seed, data__tokenizer="runs/other/tokenizer.model"
        )
        found = scores(config, "test", 0.0) | {"accuracy": accuracy, "nll": 1.0}
        folder = plant(tmp_path / f"{way}{seed}", config, {key: found[key] for key in found if key != "sacrebleu"})
        if way == "init":
            launches = json.loads((folder / "run.json").read_text())
            launches["launches"][0]["init"] = {"run": "runs/other", "params_sha256": "one"}
            (folder / "run.json").write_text(json.dumps(launches))
    for name, seed, bleu in (("quickstart.py", 0, 90.0), ("quickstart.py", 1, 94.0), ("prefix_lm.py:full", 1, 93.0)):
        config = planted_config(f"configs/{name}", seed=seed)
        plant(tmp_path / f"{name}{seed}", config, scores(config, "test", bleu))
    records = find_records(tmp_path)
    classifiers, translators = families.tables(records)
    found = row(classifiers, "tense")
    assert found["accuracy %, fine-tuned"] == "85.0 ± 7.1" and found["accuracy %, from scratch"] == "70.0 ± 0.0"
    assert (found["difference"], found["seeds"]) == ("+15.0 ± 63.5", "2 and 3")
    assert row(classifiers, "clause")["accuracy %, fine-tuned"] == "not run"
    assert not any("begin" in note for note in translators.notes)
    assert row(translators, "encoder and decoder")["sacreBLEU"] == "92.00 ± 2.83"
    assert row(translators, "decoder alone")["sacreBLEU − encoder and decoder"] == "−1.00"
    assert row(translators, "T5, fine-tuned")["sacreBLEU"] == "not run"
    families.plot(records, tmp_path / "families.svg")
    assert (tmp_path / "families.svg").stat().st_size > 10_000


def test_a_beginning_is_known_by_its_hash_and_shared_by_seeds_or_not(tmp_path: Path) -> None:
    unknown = "pre-trained by runs without a record, or with other parameters in it: runs/pre"

    def notes(*hashes: str) -> list[str]:
        for seed, begun in enumerate(hashes):
            config = planted_config("configs/classification.py:tense", seed=seed)
            found = scores(config, "test", 0.0) | {"accuracy": 0.9, "nll": 1.0}
            shutil.rmtree(tmp_path / str(seed), ignore_errors=True)
            folder = plant(tmp_path / str(seed), config, {key: found[key] for key in found if key != "sacrebleu"})
            launches = json.loads((folder / "run.json").read_text())
            launches["launches"][0]["init"] = {"run": "runs/pre", "params_sha256": begun}
            (folder / "run.json").write_text(json.dumps(launches))
        made = families.tables(find_records(tmp_path))[0].notes
        return [note for note in made if "begin" in note or "pre-trained" in note]

    shared, no_record = notes("one", "one")
    assert shared.startswith("2 fine-tuned runs begin with the parameters of runs/pre: their seeds differ only in what")
    assert no_record == unknown
    own = "2 fine-tuned runs: each seed begins with the parameters of a pre-training run of its own"
    assert notes("one", "two") == [own, unknown]
    pretraining = planted_config(families.PRETRAINING)
    for seed, trained in enumerate(("one", "two")):
        config = {**pretraining, "seed": seed}
        plant(tmp_path / f"pre{seed}", config, scores(config, "test", 1.0, params_sha256=trained))
    assert notes("one", "two") == [own]
    assert notes("one", "three") == [own, unknown]


def plant_lengths(folder: Path, kind: str, seed: int, short: float, long: float) -> None:
    config = planted_config(f"{bottleneck.FILE}:{kind}", seed=seed)
    bands = [([6, 10], short), ([16, 20], long), ([61, None], 1.0)]
    by_length = [{"words": words, "lines": 9, "sacrebleu": value, "exact_match": 0.0} for words, value in bands]
    plant(folder / f"{kind}{seed}", config, scores(config, "test", 70.0, by_length=by_length))


@pytest.mark.parametrize(
    ("fixed", "dot", "expected"),
    [
        ((50.0, 52.0, 51.0), 12.0, "shown"),
        ((10.0, 52.0, 31.0), 12.0, "neither shown nor refuted"),
        ((50.0, 52.0, 51.0), 60.0, "neither shown nor refuted"),
        ((9.0, 10.0, 9.5), 12.0, "refuted"),
        ((50.0, 52.0), 12.0, "open"),  # the design has three seeds
    ],
)
def test_what_one_vector_drops_is_judged_as_the_design_says(
    tmp_path: Path, fixed: tuple[float, ...], dot: float, expected: str
) -> None:
    drops = {"fixed": fixed, "additive": (10.0, 11.0, 10.5), "dot": (dot, dot + 1, dot + 0.5)}
    for kind, values in drops.items():
        for seed, drop in enumerate(values, 1):
            plant_lengths(tmp_path, kind, seed, 90.0, 90.0 - drop)
    records = find_records(tmp_path)
    table, _ = bottleneck.tables(records)
    (said,) = [note for note in table.notes if note.startswith("verdict")]
    assert said.startswith(f"verdict: {expected}")
    if expected == "shown":
        found = row(table, "additive")
        assert found["BLEU of sources of 16 to 20 words"] == "79.50 ± 0.50"
        # 40, 41 and 40.5: a standard error of 0.5 / sqrt(3) times 4.303.
        assert (found["drop"], found["drop minus that of fixed"]) == ("10.50 ± 0.50", "−40.50 ± 1.24")
        assert row(table, "transformer")["BLEU of sources of 6 to 10 words"] == "not run"
        bottleneck.plot(records, tmp_path / "bottleneck.svg")
        assert (tmp_path / "bottleneck.svg").stat().st_size > 10_000


def test_each_kind_takes_the_rate_of_its_lowest_perplexity(tmp_path: Path) -> None:
    for rate, loss in zip(RATES, (1.5, 1.2, 1.3, 1.4), strict=True):
        config = planted_config(f"{bottleneck.FILE}:dot:{rate}")
        plant(tmp_path / str(rate), config, validations=[(config["steps"], loss)])
    _, stage_1 = bottleneck.tables(find_records(tmp_path))
    chosen = row(stage_1, "dot")
    assert chosen["chosen"] == str(RATES[1])
    assert row(stage_1, "fixed")["chosen"] == "not run"


def plant_scores(folder: Path, logs: dict[str, tuple[float, ...]]) -> Records:
    """Plants a run of each row and seed with its log perplexity on test."""
    for name, values in logs.items():
        for seed, log in enumerate(values, 1):
            config = planted_config(f"{scores_study.FILE}:{name}", seed=seed)
            plant(folder / f"{name}{seed}", config, scores(config, "test", 70.0, perplexity=float(np.exp(log))))
    return find_records(folder)


@pytest.mark.parametrize(
    ("small", "large", "scaling", "additive"),
    [
        ((0.1, 0.2, 0.15), (1.5, 1.6, 1.55), "shown", "shown"),
        ((1.6, 1.5, 1.55), (1.5, 1.6, 1.55), "neither shown nor refuted", "shown"),  # as bad with a small d_k
        ((0.1, 0.2, 0.15), (0.2, 1.6, 0.9), "neither shown nor refuted", "neither shown nor refuted"),
        ((0.1, 0.2, 0.15), (-0.2, 0.1, -0.05), "refuted", "refuted"),
        ((0.1, 0.2, 0.15), (1.5, 1.6), "open", "open"),  # the design has three seeds
    ],
)
def test_scaling_is_judged_as_the_design_says(
    tmp_path: Path, small: tuple[float, ...], large: tuple[float, ...], scaling: str, additive: str
) -> None:
    alike = dict.fromkeys(("scaled-8", "scaled-128", "additive-128"), (0.0, 0.0, 0.0))
    records = plant_scores(tmp_path, {**alike, "unscaled-8": small, "unscaled-128": large})
    table, _, _ = scores_study.tables(records)
    (said,) = [note for note in table.notes if note.startswith("verdict on scaling")]
    assert said.startswith(f"verdict on scaling: {scaling}")
    (said,) = [note for note in table.notes if note.startswith("verdict on additive")]
    assert said.startswith(f"verdict on additive scores: {additive}")
    if (scaling, additive) == ("shown", "shown"):
        found = row(table, "unscaled-128")
        # A standard error of 0.05 / sqrt(3) times 4.303.
        assert found["log perplexity − scaled"] == "+1.550 ± 0.124" and found["log perplexity − unscaled"] == ""
        assert row(table, "scaled-32")["perplexity"] == "not run"
        scores_study.plot(records, tmp_path / "scores.svg")
        assert (tmp_path / "scores.svg").stat().st_size > 5_000


def test_the_softmax_of_unscaled_products_has_a_small_gradient_where_d_k_is_large() -> None:
    head, *lines = [scores_study.footnote_4().head, *scores_study.footnote_4().rows]
    by_width = {int(cells[0]): dict(zip(head[1:], map(float, cells[1:]), strict=True)) for cells in lines}
    for width, found in by_width.items():
        assert found["standard deviation of q k"] == pytest.approx(width**0.5, rel=0.05)
        assert found["scaled: size of the gradient"] == pytest.approx(0.30, abs=0.01)
    unscaled = [found["unscaled: size of the gradient"] for found in by_width.values()]
    assert unscaled == sorted(unscaled, reverse=True) and unscaled[-1] < 0.3 * unscaled[0]


def test_of_two_keys_the_softmaxs_gradient_is_that_of_the_formula() -> None:
    largest, size = scores_study._of_softmax(np.log([[3.0, 1.0]]))
    assert largest == pytest.approx(0.75) and size == pytest.approx(2 * 0.75 * 0.25)  # p (1 - p) in all four places


def plant_contrasts(
    folder: Path, accuracies: dict[str, list[tuple[int, int]]], logs: dict[str, list[float]]
) -> Records:
    """Plants a run of each layer and seed: of 100 pairs near and 100 far those that are right, and log perplexity."""
    for name, seeds in accuracies.items():
        for seed, ((near, far), log) in enumerate(zip(seeds, logs[name], strict=True), 1):
            config = planted_config(f"{distance.FILE}:{name}", seed=seed)
            cells = [("agreement", [1, 2], near), ("agreement", [8, None], far), ("it", [3, 4], 80), ("it", [5, 7], 70)]
            contrasts = [{"relation": r, "words": w, "cases": 100, "right": right} for r, w, right in cells]
            whole = scores(config, "test", 80.0, perplexity=float(np.exp(log)), contrasts=contrasts)
            plant(folder / f"{name}{seed}", config, whole)
    return find_records(folder)


SMALL_DROPS = [(95, 91), (96, 91), (95, 92), (95, 91), (96, 91)]  # 4, 5, 3, 4, 5
LARGE_DROPS = [(95, 71), (96, 71), (95, 72), (95, 71), (96, 71)]  # 24, 25, 23, 24, 25
LOGS = [0.4, 0.41, 0.42, 0.43, 0.44]


@pytest.mark.parametrize(
    ("dropping", "expected"),
    [
        (("restricted", "recurrent", "convolution"), "shown; agreement drops more with each of restricted"),
        (("convolution",), "shown for convolution alone"),
        ((), "refuted"),
        (("attention",), "refuted"),
    ],
)
def test_the_drop_of_agreement_is_judged_as_the_design_says(
    tmp_path: Path, dropping: tuple[str, ...], expected: str
) -> None:
    accuracies = {name: LARGE_DROPS if name in dropping else SMALL_DROPS for name in D_FF}
    logs = dict.fromkeys(D_FF, LOGS) | {
        "recurrent": [0.3, 0.311, 0.32, 0.331, 0.34],  # 0.1 better, within 0.001
        "convolution": [0.5, 0.51, 0.52, 0.53, 0.54],
    }
    study, accuracy, _ = distance.tables(plant_contrasts(tmp_path, accuracies, logs))
    said = [note for note in study.notes if note.startswith("verdict")]
    assert said[0].startswith(f"verdict on distance: {expected}")
    assert said[1:] == [
        "verdict on recurrent: shown; it is better than attention after 500 updates",
        "verdict on convolution: refuted; it is not better than attention after 500 updates",
    ]
    found = row(study, "attention")
    near, far = ("95.4 ± 0.5", "71.2 ± 0.4" if "attention" in dropping else "91.2 ± 0.4")
    assert (found["agreement near"], found["agreement far"], found["drop − attention's"]) == (near, far, "")
    if dropping == ("convolution",):
        assert row(study, "convolution")["drop − attention's"] == "+20.0 ± 0.0"
    assert accuracy.rows[0][:3] == ("agreement", "1 to 2", "95.4 ± 0.5")
    assert [cells[:2] for cells in accuracy.rows] == [
        ("agreement", "1 to 2"),
        ("agreement", "8 and more"),
        ("it", "3 to 4"),
        ("it", "5 to 7"),
    ]


@pytest.mark.parametrize("count", [1, 4])
def test_layers_of_too_few_seeds_are_not_judged_by_distance(tmp_path: Path, count: int) -> None:
    records = plant_contrasts(tmp_path, dict.fromkeys(D_FF, LARGE_DROPS[:count]), dict.fromkeys(D_FF, LOGS[:count]))
    said = [note for note in distance.tables(records)[0].notes if note.startswith("verdict")]
    assert all("open" in verdict for verdict in said) and len(said) == 3
    distance.plot(records, tmp_path / "distance.svg")
    assert (tmp_path / "distance.svg").stat().st_size > 10_000


def plant_norms(folder: Path, failing: set[str]) -> Records:
    """Plants every run and seed of the map; those that are `failing` have a perplexity of 200, all others 2."""
    for row, seed in itertools.product(ROWS_OF_NORMS, SEEDS):
        config = planted_config(f"{norms.FILE}:{row}", seed=seed)
        perplexity = 200.0 if row in failing or f"{row}/{seed}" in failing else 2.0
        plant(folder / f"{row}-{seed}", config, validations=[(config["steps"], perplexity)])
    return find_records(folder)


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ({"post-12-4", "post-6-4"}, "shown; where it is deep"),
        (set(), "refuted; post-norm starts with 12 layers"),
        ({"post-12-4/1"}, "neither"),
        ({"post-12-4", "pre-12-4/2"}, "neither"),
        ({"post-12-4", "post-2-40/0"}, "neither"),
    ],
)
def test_what_starts_is_judged_as_the_design_says(tmp_path: Path, failing: set[str], expected: str) -> None:
    records = plant_norms(tmp_path, failing)
    (table,) = norms.tables(records)
    assert table.notes[1].startswith(f"verdict: {expected}")
    if "post-6-4" in failing:
        found = row(table, "post-6")
        assert [found[f"warm-up of {warmup} %"] for warmup in WARMUPS] == [
            "200.00 (0 of 3)",
            "2.00 (3 of 3)",
            "2.00 (3 of 3)",
        ]
        assert found["runs"] == "9"
        norms.plot(records, tmp_path / "norms.svg")
        assert (tmp_path / "norms.svg").stat().st_size > 10_000


def plant_rates(folder: Path, best: dict[str, float]) -> Records:
    """Plants every run of the study of muP; its loss is 1, and more by the square of the factors of 2 from the best."""
    for row, rate, seed in itertools.product(best, mup_config.RATES, mup_config.SEEDS):
        config = planted_config(f"{mup.FILE}:{row}:{rate}", seed=seed)
        loss = 1 + np.log2(rate / best[row]) ** 2
        plant(folder / f"{row}-{rate}-{seed}", config, validations=[(config["steps"], float(np.exp(loss)))])
    return find_records(folder)


STANDARD = {"standard-32": 0.024, "standard-64": 0.016, "standard-128": 0.01, "standard-256": 0.006}  # a move of 4
MUP = {"mup-32": 0.016, "mup-64": 0.014, "mup-128": 0.012, "mup-256": 0.0115}  # of 1.39


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "shown; the best rate stays"),
        ({"mup-256": 0.009}, "neither"),  # 1.8
        ({"standard-256": 0.013}, "neither"),  # 1.85
        ({"mup-256": 0.003}, "refuted; the best rate moves more"),
    ],
)
def test_the_move_of_the_best_rate_is_judged_as_the_design_says(
    tmp_path: Path, changes: dict[str, float], expected: str
) -> None:
    records = plant_rates(tmp_path, STANDARD | MUP | changes)
    (table,) = mup.tables(records)
    assert table.notes[1].startswith(f"verdict: {expected}")
    found = row(table, "standard-32")
    assert (found["best rate"], found["runs"]) == ("0.0240", "14")
    assert found["rate 0.02"] == f"{1 + np.log2(0.02 / 0.024) ** 2:.3f}"
    factor = 0.024 / (STANDARD | changes)["standard-256"]
    assert table.notes[2] == f"standard: the best rate of the widths moves by a factor of {factor:.2f}"
    if not changes:
        mup.plot(records, tmp_path / "mup.svg")
        assert (tmp_path / "mup.svg").stat().st_size > 10_000


def test_a_best_rate_at_an_end_of_the_ladder_is_only_a_bound(tmp_path: Path) -> None:
    records = plant_rates(tmp_path, STANDARD | MUP | {"mup-32": 0.1, "mup-256": 0.078})
    (table,) = mup.tables(records)
    assert row(table, "mup-32")["best rate"] == "0.0800 or beyond"
    assert table.notes[1] == "verdict: neither shown nor refuted"
    assert table.notes[3].endswith("moves by a factor of 1.00 or more")


def test_a_missing_rate_leaves_the_study_of_mup_open(tmp_path: Path) -> None:
    records = plant_rates(tmp_path, {row: rate for row, rate in (STANDARD | MUP).items() if row != "mup-256"})
    (table,) = mup.tables(records)
    assert row(table, "mup-256")["best rate"] == "not run" and row(table, "mup-128")["best rate"] == "0.0120"
    assert table.notes[1].startswith("verdict: open")


@pytest.mark.parametrize(
    ("target", "updates"),
    [
        (5.0, 40.0),
        (4.0, 50.0),
        (3.5, 55.0),
        (3.0, 60.0),
        (6.0, 20.0),
        (7.0, 20.0),
        (2.9, float(optimisers_config.STEPS)),
    ],
)
def test_the_target_is_crossed_on_the_line_between_two_validations(target: float, updates: float) -> None:
    curve = [(20, 6.0), (40, 5.0), (60, 3.0), (80, 3.4)]
    assert optimisers.crossed(curve, target) == pytest.approx(updates)


def plant_curves(folder: Path, slopes: dict[str, list[float]]) -> Records:
    """Plants stage 1 of both bases, with 0.005 the best rate, and stage 2: loss falls from 6 by a slope."""
    steps = range(20, optimisers_config.STEPS + 1, 20)

    def validations(slope: float) -> list[tuple[int, float]]:
        return [(step, float(np.exp(6 - slope * step))) for step in steps]

    for base, best, fastest in (("adam", "0.005-10-0", 0.01), ("warmup-4", "0.005-4-1", 0.008)):
        for option in optimisers_config.OPTIONS[base]:
            config = planted_config(optimisers.run_of(base, option), seed=0)
            slope = fastest if str(option) == best else 0.005
            plant(folder / f"choose-{option}", config, validations=validations(slope))
    for name, of_row in slopes.items():
        for seed, slope in zip(optimisers_config.SEEDS, of_row, strict=True):
            config = planted_config(f"{optimisers.FILE}:{name}", seed=seed)
            plant(folder / f"{name}-{seed}", config, scores(config, "valid", 1.0), validations=validations(slope))
    return find_records(folder)


def test_optimisers_are_judged_by_the_updates_to_what_adam_reached(tmp_path: Path) -> None:
    base = [0.01, 0.0101, 0.0102, 0.0101, 0.01]
    slopes = {
        "adam": base,
        "muon": [0.012, 0.0121, 0.0123, 0.0121, 0.012],
        "schedule_free_adamw": [0.013, 0.0098, 0.0100, 0.0099, 0.0099],
        "ademamix": [0.009, 0.009, 0.0091, 0.009, 0.0089],
        "adafactor": [0.005] * 5,
    }
    records = plant_curves(tmp_path, slopes)
    study, _, _, stage_1 = optimisers.tables(records)
    target = 6 - 0.01 * 240
    assert study.notes[1].endswith(f": {target:.3f}")
    found = row(study, "muon")
    minus = np.array(
        [(6 - target) / muon - (6 - target) / adam for muon, adam in zip(slopes["muon"], base, strict=True)]
    )
    assert found["− Adam's"].startswith(f"−{abs(minus.mean()):.1f} ± ")
    assert found["seeds that got there"] == "5 of 5"
    assert found["nll − Adam's"].startswith(f"−{300 * 0.00202:.3f}")
    assert row(study, "adam")["seeds that got there"] == "5 of 5"  # the seed of stage 1 is not one of them
    assert row(study, "adafactor")["updates to the target"] == "300 ± 0"
    assert row(study, "adafactor")["seeds that got there"] == "0 of 5"
    said = [note.partition(": ")[2].split(";")[0] for note in study.notes if note.startswith("verdict on")]
    assert said == ["shown", "neither shown nor refuted", "refuted", "refuted"]
    assert "adam chose RATE-WARMUP-CLIP 0.005-10-0" in stage_1.notes
    assert stage_1.rows[0][:7] == ("adam", "0.005", "10 %", "never", "4.500", "4.500", "3.000")
    optimisers.plot(records, tmp_path / "optimisers.svg")
    assert (tmp_path / "optimisers.svg").stat().st_size > 10_000


def test_longer_warm_ups_are_judged_by_what_the_papers_reached_and_apart_from_optimisers(tmp_path: Path) -> None:
    slopes = {
        "adam": [0.01, 0.0101, 0.0102, 0.0101, 0.01],
        "warmup-4": [0.008, 0.0081, 0.0082, 0.0081, 0.008],
        "warmup-10": [0.009, 0.0091, 0.0093, 0.0091, 0.009],
        "warmup-20": [0.0079] * 5,
    }
    for row in ("muon", "schedule_free_adamw", "ademamix", "adafactor"):
        slopes[row] = [0.012] * 5
    records = plant_curves(tmp_path, slopes)
    five, decayed, warmed_up, stage_1 = optimisers.tables(records)
    said = {table.name: [note for note in table.notes if note.startswith("verdict on")] for table in (five, decayed)}
    assert all("shown" in note for note in said["optimisers"]), "AdamW, which has not run, leaves only AdamW open"
    assert [": open" in note for note in said["optimisers-adamw"]] == [True]
    assert warmed_up.notes[1].endswith(f"warmup-4's best run of stage 1 after 240 updates: {6 - 0.008 * 240:.3f}")
    assert warmed_up.notes[2:4] == [
        "verdict on warmup-10: shown; it is faster than warmup-4",
        "verdict on warmup-20: refuted; it is no faster than warmup-4",
    ]
    assert "in brackets by Holm for 2 comparisons: warmup-10" in warmed_up.notes[-1]
    assert row_of_stage_1(stage_1, "warmup-4") == ("0.005", "4 %", "1", "4.500", "4.500", "3.600", "4.500", "4.500")


def row_of_stage_1(table: Table, name: str) -> tuple[str, ...]:
    (found,) = (cells[1:] for cells in table.rows if cells[0] == name)
    return found


def test_an_optimiser_that_diverges_is_judged(tmp_path: Path) -> None:
    plant_curves(tmp_path, {name: [0.01] * 5 for name in optimisers_config.ROWS})
    shutil.rmtree(tmp_path / "muon-3")
    config = planted_config(f"{optimisers.FILE}:muon", seed=3)
    plant(tmp_path / "muon-3", config, steps=50, validations=[(20, 300.0), (40, 400.0)])
    (tmp_path / "sweep" / "results").mkdir(parents=True)
    outcome = {"state": "failed", "reason": "update 50: the loss is nan and the gradient norm nan; no checkpoint"}
    (tmp_path / "sweep" / "results" / "muon-3.json").write_text(json.dumps(outcome))
    study, *_ = optimisers.tables(find_records(tmp_path))
    found = row(study, "muon")
    assert (found["seeds that got there"], found["updates to the target"]) == ("4 of 5", "252 ± 27")
    assert found["nll after the last update"] == "3.000 ± 0.000"
    assert not any(": open" in note for note in study.notes if note.startswith("verdict on"))
    optimisers.plot(find_records(tmp_path), tmp_path / "optimisers.svg")
    # A run of the same seed that has not diverged counts in its place.
    plant(tmp_path / "zz", config, scores(config, "valid", 1.0), validations=[(s, 99.0) for s in range(20, 301, 20)])
    assert optimisers.curves_of(find_records(tmp_path), ["muon"])["muon"][3][0] == (20, pytest.approx(np.log(99.0)))


def test_an_optimiser_with_a_seed_too_few_leaves_all_open(tmp_path: Path) -> None:
    records = plant_curves(tmp_path, {name: [0.01] * 5 for name in optimisers_config.ROWS if name != "ademamix"})
    study, *_ = optimisers.tables(records)
    assert all(": open" in note for note in study.notes if note.startswith("verdict on"))


def plant_words(folder: Path, language: str, seed: int, right: float, **changes: Any) -> None:
    """Writes a run of 1,000 words that has `right` % of them right."""
    bands = [{"words": [1, 1], "lines": 1_000, "sacrebleu": right}]
    config = planted_config(f"{g2p.FILE}:{language}", seed=seed)
    found = scores(config, "test", right, edits_as_is=2.0, by_length=bands, **changes)
    plant(folder / f"{language}{seed}{'-'.join(changes)}", config, found)


def test_runs_that_were_validated_at_other_updates_give_no_target(tmp_path: Path) -> None:
    for option in optimisers_config.OPTIONS["adam"]:
        config = planted_config(optimisers.run_of("adam", option), seed=0, eval__every=100)
        plant(tmp_path / str(option), config, validations=[(100, 20.0), (200, 10.0), (300, 5.0)])
    assert optimisers.target_of(find_records(tmp_path), "adam") is None


def test_a_run_that_diverged_is_one_of_those_that_are_chosen_between(tmp_path: Path) -> None:
    reporter = Reporter(None, lambda _: 0.1, first=1, last=9, every=1)
    with pytest.raises(NotFiniteError) as error:
        reporter.update(7, Sums(Loss(np.float32(np.nan), np.float32(1), np.float32(1)), np.int32(1), np.float32(1)), 20)
    for rate, ends in ((optimisers_config.OPTIONS["adam"][0], True), (optimisers_config.OPTIONS["adam"][1], False)):
        name = optimisers.run_of("adam", rate)
        config = planted_config(name, seed=0)
        plant(tmp_path / str(rate), config, steps=None if ends else 6)
        results = tmp_path / "sweep" / "results"
        results.mkdir(parents=True, exist_ok=True)
        outcome = {"state": "done", "reason": ""} if ends else {"state": "failed", "reason": f"{error.value}; no"}
        (results / f"{rate}.json").write_text(json.dumps(outcome))
    names = [optimisers.run_of("adam", option) for option in optimisers_config.OPTIONS["adam"][:3]]
    found = validated(find_records(tmp_path), names)
    perplexities = [{seed: run.perplexity for seed, run in found[name].items()} for name in names]
    assert perplexities == [{0: 5.0}, {0: np.inf}, {}]


def test_pronunciations_are_met_by_ensembles_of_every_language(tmp_path: Path) -> None:
    for place, language in enumerate(LANGUAGES):
        plant_words(tmp_path, language, 1, 90.0 - place)
        plant_words(tmp_path, language, 2, 88.0 - place)
    plant_words(tmp_path, "dut", 0, 1.0)  # of stage 1
    plant_words(tmp_path, "dut", 3, 99.0)  # only one language has this seed
    study, *_ = g2p.tables(find_records(tmp_path))
    dutch = row(study, "dut")
    assert dutch["word errors %: published, an ensemble"] == "14.7"
    assert dutch["word errors %: ours, alone"] == "9.00 ± 7.00"  # 12, 14 and 1 % of the words
    assert dutch["95 % interval"] == "7.4 to 10.9"
    assert (dutch["phone errors %: ours, alone"], dutch["seeds"]) == ("2.00 ± 0.00", "3")
    mean = row(study, "mean")
    assert mean["word errors %: published, an ensemble"] == "10.64"
    assert (mean["word errors %: ours, alone"], mean["seeds"]) == ("15.50 ± 1.41", "2")
    assert mean["word errors %: ours, an ensemble of 3"] == "not run"
    assert study.notes[1] == "verdict: open, because not every language has an ensemble of 3"
    for place, language in enumerate(LANGUAGES):
        third = 99.0 if language == "dut" else 89.0 - place
        if language != "dut":
            plant_words(tmp_path, language, 3, third)
        seeds = [f"{90.0 - place}", f"{88.0 - place}", f"{third}"]  # as hashes of parameters
        plant_words(tmp_path, language, 1, 89.4, members=seeds)
    study, *_ = g2p.tables(find_records(tmp_path))
    assert row(study, "mean")["word errors %: ours, an ensemble of 3"] == "10.60"
    assert row(study, "mean")["word errors %: ours, alone"] == "15.10 ± 1.22"
    assert study.notes[1] == "verdict: met; the ensembles' mean is 10.60 %"
    kor = LANGUAGES.index("kor")
    seeds = [f"{90.0 - kor}", f"{88.0 - kor}", f"{89.0 - kor}"]
    plant_words(tmp_path, "kor", 1, 88.9, members=seeds, time="2027")
    study, *_ = g2p.tables(find_records(tmp_path))
    assert study.notes[1] == "verdict: not met; the ensembles' mean is 10.65 %"
    g2p.plot(find_records(tmp_path), tmp_path / "g2p.svg")
    assert (tmp_path / "g2p.svg").stat().st_size > 10_000


def test_one_language_shows_what_it_chose_between(tmp_path: Path) -> None:
    for dropout, right in ((0.1, 80.0), (0.2, 85.0)):
        config = planted_config(f"{g2p.FILE}:dut:{dropout}", seed=0)
        plant(tmp_path / str(dropout), config, scores(config, "valid", right, edits_as_is=2.0, by_length=[]))
    _, stage_1, _ = g2p.tables(find_records(tmp_path))
    assert stage_1.rows[0][:3] == ("dut", "20.0", "15.0")


def plant_longer(folder: Path, right: dict[str, tuple[float, float]]) -> str:
    """Writes seed 1 of each language with this % right after 2,500 and 5,000 updates; returns the verdict."""
    for language, (short, long) in right.items():
        bands = [{"words": [1, 1], "lines": 1_000, "sacrebleu": 50.0}]
        for name, value in ((language, short), (f"{language}:longer", long)):
            config = planted_config(f"{g2p.FILE}:{name}", seed=1)
            plant(folder / name, config, scores(config, "valid", value, edits_as_is=2.0, by_length=bands))
    *_, table = g2p.tables(find_records(folder))
    return table.notes[0].removeprefix("verdict on longer training: ")


def test_longer_training_is_judged_in_both_languages(tmp_path: Path) -> None:
    assert plant_longer(tmp_path / "a", {"kor": (80.0, 82.0)}) == "open, because not both languages have run"
    *_, table = g2p.tables(find_records(tmp_path / "a"))
    assert row(table, "kor")["word errors % on validation: 5,000 updates"] == "18.0 (15.7 to 20.5)"
    assert row(table, "kor")["fewer by"] == "2.0"
    assert row(table, "hbs_latn")["word errors % on validation: 2,500 updates"] == "not run"
    assert plant_longer(tmp_path / "b", {"kor": (62.1, 64.1), "hbs_latn": (50.0, 54.0)}) == "it helps"
    assert plant_longer(tmp_path / "c", {"kor": (80.0, 81.9), "hbs_latn": (50.0, 54.0)}) == "neither"
    assert plant_longer(tmp_path / "d", {"kor": (80.0, 81.0), "hbs_latn": (50.0, 45.0)}) == "it does not matter"
    assert plant_longer(tmp_path / "e", {"kor": (80.0, 81.1), "hbs_latn": (50.0, 45.0)}) == "neither"


def test_without_far_pairs_the_drop_of_agreement_is_open(tmp_path: Path) -> None:
    plant_contrasts(tmp_path, dict.fromkeys(D_FF, SMALL_DROPS), dict.fromkeys(D_FF, LOGS))
    for file in tmp_path.glob("*/evaluations/*.json"):
        record = json.loads(file.read_text())
        record["contrasts"] = [cell for cell in record["contrasts"] if cell["words"] != [8, None]]
        file.write_text(json.dumps(record))
    notes = distance.tables(find_records(tmp_path))[0].notes
    assert [note for note in notes if note.startswith("verdict on distance: open")]
    assert not any("nan (" in note for note in notes)


def test_the_two_values_of_d_k_are_compared_seed_by_seed(tmp_path: Path) -> None:
    alike = dict.fromkeys(("scaled-8", "scaled-128", "additive-128"), (0.0, 0.0, 0.0))
    plant_scores(tmp_path, {**alike, "unscaled-8": (0.1, 0.2, 0.1), "unscaled-128": (1.5, 1.6, 1.7)})
    shutil.rmtree(tmp_path / "unscaled-83")  # seeds 1 and 2 are left here,
    shutil.rmtree(tmp_path / "unscaled-1281")  # and 2 and 3 here
    notes = scores_study.tables(find_records(tmp_path))[0].notes
    (said,) = [note for note in notes if note.startswith("verdict on scaling")]
    assert said.startswith("verdict on scaling: open")


def test_it_does_not_matter_which_member_of_an_ensemble_is_given_first(tmp_path: Path) -> None:
    for place, language in enumerate(LANGUAGES):
        first, second, third = right = [90.0 - place - 0.1 * seed for seed in g2p.SEEDS]
        for seed, value in zip(g2p.SEEDS, right, strict=True):
            plant_words(tmp_path, language, seed, value)
        members = [str(first), str(second), str(third)]  # as hashes of parameters
        if language == "kor":
            plant_words(tmp_path, language, 2, 89.4, members=[members[1], members[0], members[2]])
        else:
            plant_words(tmp_path, language, 1, 89.4, members=members)
    study, *_ = g2p.tables(find_records(tmp_path))
    assert row(study, "kor")["word errors %: ours, an ensemble of 3"] == "10.60"
    assert row(study, "mean")["word errors %: ours, an ensemble of 3"] == "10.60"
    assert study.notes[1] == "verdict: met; the ensembles' mean is 10.60 %"
    hashes = [str(90.0 - 0.1 * seed) for seed in (2, 3, 1)]
    plant_words(tmp_path, LANGUAGES[0], 2, 80.0, members=hashes, time="2027")  # the same three once more
    study, *_ = g2p.tables(find_records(tmp_path))
    assert row(study, LANGUAGES[0])["word errors %: ours, an ensemble of 3"] == "20.00"


def test_a_standard_rate_at_an_end_of_the_ladder_refutes_nothing(tmp_path: Path) -> None:
    records = plant_rates(tmp_path, STANDARD | MUP | {"standard-32": 0.1, "standard-256": 0.078})
    (table,) = mup.tables(records)
    assert table.notes[2].endswith("moves by a factor of 1.00 or more")
    assert table.notes[1] == "verdict: neither shown nor refuted"
