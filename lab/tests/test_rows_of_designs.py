"""The rows and sweeps of designs: parameters, what a row changes, and that fresh seeds test what stage 1 chose."""

import importlib
import json
import math
import re

import pytest

from lab.scan import SPLITS
from lab.studies.g2p import design as g2p
from lab.studies.layers.design import D_FF
from lab.studies.layers.design import get_config as layers
from lab.studies.optimisers import design as optimisers
from lab.studies.second import design as second
from tests.conftest import ROOT
from tests.repo.test_configs import check_parameters
from tests.slow import slow_but
from vaswani.configs.ablations import ROWS
from vaswani.configs.ablations import get_config as ablation
from vaswani.keys import changed_values
from vaswani.model.parameter_count import parameter_count
from vaswani.paper.published import TABLE3
from vaswani.tasks.config import model_config

NAMES = [
    *("multi30k_raw", "g2p"),
    *(f"layers:{mixer}" for mixer in D_FF),
    *(f"scan:{split}" for split in SPLITS),
    *(f"scan_length:{row}" for row in ("sinusoidal:22", "shaw:26", "shaw-shared:26")),
    *(f"mup:{row}" for row in ("standard-32", "mup-256")),
    *(f"second:{row}:gentle" for row in ("A4", "B1", "C3", "big")),
]
SHARES = {"fifth": 5, "sixth": 6}


@pytest.mark.parametrize("name", slow_but(["layers:linear"], NAMES))
def test_a_design_loads_and_its_model_has_as_many_parameters_as_the_formula_says(name: str) -> None:
    study, _, argument = name.partition(":")
    get_config = importlib.import_module(f"lab.studies.{study}.design").get_config
    check_parameters(get_config(argument) if argument else get_config())


@pytest.mark.parametrize("mixer", D_FF)
def test_every_mixer_is_compared_at_equal_parameters(mixer: str) -> None:
    attention, other = (model_config(cfg, cfg.data.vocab_size) for cfg in (layers("attention"), layers(mixer)))
    assert parameter_count(other) == pytest.approx(parameter_count(attention), rel=1e-3)


def test_a_row_of_the_second_design_is_a_quarter_as_wide_and_has_either_schedule() -> None:
    for row in ROWS:
        full = ablation(row)
        steep, gentle = (second.get_config(f"{row}:{schedule}") for schedule in second.SCHEDULES)
        for key in ("d_model", "d_ff", "d_k", "d_v"):
            assert steep.model[key] == gentle.model[key] == full.model[key] / 4, row
        assert (2 * steep.model.N, steep.model.h) == (full.model.N, full.model.h), row
        assert (steep.model.P_drop, steep.model.positions) == (full.model.P_drop, full.model.positions), row
        assert (steep.loss.eps_ls, steep.optim.lr) == (full.loss.eps_ls, 2 * gentle.optim.lr), row
        assert (steep.steps, steep.optim.warmup, gentle.optim.warmup) == (1_000, 200, 400), row


def test_the_second_design_has_primary_rows_where_the_paper_differs_and_equivalent_ones_where_it_does_not() -> None:
    def distance(row: str) -> float:
        return abs(math.log(TABLE3[row].perplexity / TABLE3["base"].perplexity))

    others = {row for row in TABLE3 if row != "base"} - {*second.PRIMARY, *second.EQUIVALENT}
    assert {row for row in TABLE3 if distance(row) >= second.MARGIN} == {*second.PRIMARY}
    assert others == {"A2", "A4", "B2"}


def test_the_second_design_tests_three_fresh_seeds_of_what_each_row_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    first = second.sweep("choose")
    assert len(first) == len({tuple(point.items()) for point in first}) == 40
    assert {point["seed"] for point in first} == {0}
    assert len(second.sweep("test")) == 60, "stage 1 has chosen"
    monkeypatch.setattr(second, "CHOSEN", {})
    with pytest.raises(ValueError, match=r"^stage 1 has not chosen for base, A1, .*big: CHOSEN in"):
        second.sweep("test")
    monkeypatch.setattr(second, "CHOSEN", dict.fromkeys(ROWS, "gentle") | {"base": "steep"})
    points = second.sweep("test")
    assert len(points) == len({tuple(point.items()) for point in points}) == 60
    assert {point["seed"] for point in points} == {1, 2, 3}
    assert [point for point in points if "optim.warmup" not in point] == [{"seed": seed} for seed in (1, 2, 3)]
    with pytest.raises(ValueError, match=r"^there is no row 'C3:slow'; the rows are base, .*ROW:steep or ROW:gentle$"):
        second.get_config("C3:slow")
    with pytest.raises(ValueError, match=r"^there is no stage 'final'; the stages are choose, test$"):
        second.sweep("final")


def test_one_language_chooses_the_dropout_of_all_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(g2p.sweep("choose")) == 2
    monkeypatch.setattr(g2p, "CHOSEN", 0.2)
    points = g2p.sweep("test")
    assert len(points) == len({tuple(point.items()) for point in points}) == 30
    assert [point["seed"] for point in points] == [1] * 10 + [2] * 10 + [3] * 10
    assert not any("steps" in point for point in points)
    assert g2p.get_config("kor").model.P_drop_relu == 0.2
    assert g2p.get_config("words/kor").data.test == "tsv:words/kor_test.tsv"
    with pytest.raises(ValueError, match=r"^there is no row 'korean'; the rows are arm_e, .*vie_hanoi"):
        g2p.get_config("korean")


def test_two_languages_train_longer_at_the_chosen_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(g2p, "CHOSEN", 0.2)
    points = g2p.sweep("longer")
    assert [point["seed"] for point in points] == [1, 1]
    assert ["kor_train" in point["data.train"] for point in points] == [False, True]
    assert not any("steps" in point for point in points)
    cfg = g2p.get_config("kor:longer")
    assert (cfg.steps, cfg.optim.warmup, cfg.model.P_drop) == (5_000, 500, 0.2)
    assert g2p.get_config("longer").steps == 5_000
    assert (g2p.get_config("dut:0.1").steps, g2p.get_config("choose").steps) == (4_000, 4_000)
    with pytest.raises(ValueError, match=r"^there is no stage 'final'; the stages are choose, test, longer$"):
        g2p.sweep("final")


def test_a_row_of_the_second_design_alone_has_the_schedule_that_it_chose() -> None:
    for row, schedule in second.CHOSEN.items():
        assert second.get_config(row).to_dict() == second.get_config(f"{row}:{schedule}").to_dict(), row


def test_the_rows_added_to_optimisers_differ_from_adam_in_decay_or_warm_up() -> None:
    adam = optimisers.get_config("adam:0.005-10-1").to_dict()
    decayed = optimisers.get_config("adamw:0.005-10-1").to_dict()
    assert changed_values(adam, decayed) == {"optim.name": "adamw", "optim.weight_decay": 0.01}
    undecayed = optimisers.get_config("undecayed").to_dict()
    assert changed_values(optimisers.get_config("adam").to_dict(), undecayed) == {"optim.name": "adamw"}
    assert changed_values(optimisers.get_config("adamw").to_dict(), undecayed) == {"optim.weight_decay": 0.0}
    for share, updates in ((4, 12), (10, 30), (20, 60)):
        warmed_up = optimisers.get_config(f"warmup-{share}:0.005-{share}-1").to_dict()
        assert changed_values({**adam, "optim": {**adam["optim"], "warmup": updates}}, warmed_up) == {}


def test_a_sweep_of_optimisers_trains_what_two_rows_share_once() -> None:
    points = [tuple(point.items()) for point in optimisers.sweep("choose")]
    every_option = sum(map(len, optimisers.OPTIONS.values()))
    assert len(points) == len(set(points)) == every_option - len(optimisers.LADDER)  # a warm-up of 10 %, Adam's too


@pytest.mark.parametrize("file", ["design.py", "README.md"])
def test_the_study_of_optimisers_trains_for_the_share_of_an_epoch_that_it_says(file: str) -> None:
    folder = ROOT / "lab" / "studies" / "optimisers"
    lines = map(json.loads, (folder / "records.jsonl").read_text(encoding="utf-8").splitlines())
    (record,) = (record for record in lines if record["name"] == "optimisers/adam-seed1")
    tokens = max(record["launches"][0]["data"]["train"]["tokens"].values())
    positions = record["training"]["steps"] * record["config"]["data"]["tokens_per_batch"]  # few of which are padding
    (share,) = re.findall(r"a (\w+) of an epoch", (folder / file).read_text(encoding="utf-8"))
    assert SHARES[share] == round(tokens / positions)
