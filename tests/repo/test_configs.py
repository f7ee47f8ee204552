"""Every config loads, its keys are known, and its model, built from shapes only, has the stated parameter count."""

import dataclasses
import importlib
import math

import jax
import jax.numpy as jnp
import pytest

from base.errors import UserError
from base.tokens import Tokens
from configs import g2p
from configs import table3_second as second
from configs.ablations import ROWS, sweep
from configs.ablations import get_config as ablation
from configs.common import default
from configs.layers import D_FF
from configs.layers import get_config as layers
from configs.small import SHORTER
from data.scan import SPLITS
from model.parameter_count import parameter_count
from model.transformer import Transformer
from paper.published import TABLE3
from run.folder import model_config
from tests.slow import slow_but
from train.check import check

NAMES = [
    *(
        "quickstart",
        "multi30k",
        "multi30k_published",
        "multi30k_raw",
        "g2p",
        "news",
        "tatoeba",
        "denoising",
        "denoising:translate",
    ),
    *(f"{file}:{pair}{size}" for file in ("base", "big") for pair in ("en-de", "en-fr") for size in ("", ":small")),
    *(f"ablations:{row}{size}" for row in ROWS for size in ("", ":small")),
    *(f"parsing:{row}" for row in ("wsj", "semi", "small")),
    *(f"layers:{mixer}" for mixer in D_FF),
    *(f"scan:{split}" for split in SPLITS),
    *(f"scan_length:{row}" for row in ("sinusoidal:22", "shaw:26", "shaw-shared:26")),
    *(f"mup:{row}" for row in ("standard-32", "mup-256")),
    *(f"table3_second:{row}:gentle" for row in ("A4", "B1", "C3", "big")),
]
FAST = ("quickstart", "multi30k", "base:en-de", "big:en-fr", "ablations:A4", "ablations:E:small", "layers:linear")


@pytest.mark.parametrize("name", slow_but(FAST, NAMES))
def test_a_config_loads_and_its_model_has_as_many_parameters_as_the_formula_says(name: str) -> None:
    file, _, argument = name.partition(":")
    cfg = importlib.import_module(f"configs.{file}").get_config(*([argument] if argument else []))
    check(cfg, default())
    config = model_config(cfg, cfg.data.vocab_size or 100)
    config = dataclasses.replace(config, N=min(config.N, 2))  # tracing all layers takes as long as all other tests here
    tokens = Tokens.of(jnp.zeros((2, 1), jnp.int32))
    shapes = jax.eval_shape(lambda: Transformer(config).init(jax.random.key(0), tokens, tokens))
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)) == parameter_count(config)


@pytest.mark.parametrize("mixer", D_FF)
def test_every_mixer_is_compared_at_equal_parameters(mixer: str) -> None:
    attention, other = (model_config(cfg, cfg.data.vocab_size) for cfg in (layers("attention"), layers(mixer)))
    assert parameter_count(other) == pytest.approx(parameter_count(attention), rel=1e-3)


@pytest.mark.parametrize("row", ROWS)
def test_a_scaled_down_model_differs_from_its_base_as_the_row_does(row: str) -> None:
    def ratios(size: str) -> dict[str, float]:
        base, cfg = ablation(f"base{size}"), ablation(f"{row}{size}")
        sizes = {key: cfg.model[key] / base.model[key] for key in ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop")}
        rest = {"steps": cfg.steps / base.steps, "eps_ls": cfg.loss.eps_ls, "learned": cfg.model.positions == "learned"}
        return sizes | rest

    assert ratios(":small") == pytest.approx(ratios(""))
    assert ablation(f"{row}:small").steps == ablation(row).steps // SHORTER


def test_the_sweep_of_scaled_down_models_has_three_seeds_of_every_row_and_five_of_base() -> None:
    points = sweep("base:small")
    assert len(points) == len({tuple(point.items()) for point in points}) == 62
    assert [point["seed"] for point in points if list(point) == ["seed"]] == [0, 1, 2, 3, 4]
    assert {"model.d_k": 2, "seed": 1} in points
    big = [point for point in points if "steps" in point]
    assert [point["seed"] for point in big] == [0, 1, 2]
    assert big[0]["checkpoint.every"] == ablation("big:small").checkpoint.every
    assert {"seed": 0, "model.positions": "learned"} in points


@pytest.mark.parametrize("argument", ["A9", "A1:tiny", "", "small"])
def test_a_row_that_is_not_there_is_named_with_those_that_are(argument: str) -> None:
    with pytest.raises(ValueError, match=rf"^there is no row '{argument}'; the rows are base, A1, [^\n]*ROW:small$"):
        ablation(argument)


@pytest.mark.parametrize("edit", [{"N": 10**6}, {"d_ff": 2**21}, {"max_positions": 2**30}])
def test_sizes_that_would_take_for_ever_are_refused(edit: dict[str, int]) -> None:
    cfg = default()
    cfg.model.update(edit)
    ((key, value),) = edit.items()
    with pytest.raises(UserError, match=rf"^config: model\.{key} is {value}; it must be at most [\d,]+$"):
        model_config(cfg, 100)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_second_design_is_a_quarter_as_wide_and_has_either_schedule(row: str) -> None:
    full = ablation(row)
    steep, gentle = (second.get_config(f"{row}:{schedule}") for schedule in second.SCHEDULES)
    for key in ("d_model", "d_ff", "d_k", "d_v"):
        assert steep.model[key] == gentle.model[key] == full.model[key] / 4
    assert (2 * steep.model.N, steep.model.h, steep.model.P_drop) == (full.model.N, full.model.h, full.model.P_drop)
    assert (steep.loss.eps_ls, steep.model.positions) == (full.loss.eps_ls, full.model.positions)
    assert (steep.steps, steep.optim.warmup, gentle.optim.warmup) == (1_000, 200, 400)
    assert steep.optim.lr == 2 * gentle.optim.lr


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


@pytest.mark.parametrize("argument", ["A1", "A1:small", "big"])
def test_the_rows_are_swept_from_base_alone(argument: str) -> None:
    with pytest.raises(ValueError, match=rf"^there is no sweep of '{argument}'; all rows are swept from base or"):
        sweep(argument)


@pytest.mark.parametrize(("row", "schedule"), second.CHOSEN.items())
def test_a_row_of_the_second_design_alone_has_the_schedule_that_it_chose(row: str, schedule: str) -> None:
    assert second.get_config(row).to_dict() == second.get_config(f"{row}:{schedule}").to_dict()
