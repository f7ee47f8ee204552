"""Every config loads, its keys are known, and its model, built from shapes only, has the stated parameter count."""

import dataclasses
import importlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from tests.slow import slow_but
from vaswani.configs import base, big
from vaswani.configs.ablations import ROWS, sweep
from vaswani.configs.ablations import get_config as ablation
from vaswani.configs.common import default
from vaswani.configs.small import SHORTER
from vaswani.errors import UserError
from vaswani.keys import changed_values
from vaswani.model.transformer import Transformer
from vaswani.tasks.config import model_config
from vaswani.tokens import Tokens
from vaswani.train.check import check

VARIANTS = ("", ":small", ":gpu", ":tpu")
NAMES = [
    *("quickstart", "multi30k", "multi30k_published", "news", "tatoeba", "denoising", "denoising:translate"),
    *(f"{file}:{pair}{of}" for file in ("base", "big") for pair in ("en-de", "en-fr") for of in VARIANTS),
    *(f"ablations:{row}{size}" for row in ROWS for size in ("", ":small")),
    *(f"parsing:{row}" for row in ("wsj", "semi", "small")),
]
FAST = ("quickstart", "multi30k", "base:en-de", "base:en-de:gpu", "big:en-fr", "ablations:A4", "ablations:E:small")


@pytest.mark.parametrize("name", slow_but(FAST, NAMES))
def test_a_config_loads_and_its_model_has_parameters(name: str) -> None:
    file, _, argument = name.partition(":")
    get_config = importlib.import_module(f"vaswani.configs.{file}").get_config
    check_parameters(get_config(argument) if argument else get_config())


def check_parameters(cfg: ConfigDict) -> None:
    check(cfg, default())
    config = model_config(cfg, cfg.data.vocab_size or 100)
    config = dataclasses.replace(config, N=min(config.N, 2))  # tracing all layers takes as long as all other tests here
    tokens = Tokens.of(jnp.zeros((2, 1), jnp.int32))
    assert jax.eval_shape(lambda: Transformer(config).init(jax.random.key(0), tokens, tokens))


@pytest.mark.parametrize("get_config", [base.get_config, big.get_config])
def test_on_an_accelerator_the_recipe_is_the_same(get_config: Callable[[str], ConfigDict]) -> None:
    """What differs is how an update is computed and filled, and what is saved before the checkpoints to average."""
    computed = {"model.dtype", "model.dropout_bits", "model.attention_impl", "loss.chunk"}
    filled = {"data.batching", "checkpoint.every_minutes"}
    plain = get_config("en-de").to_dict()
    assert changed_values(plain, get_config("en-de:gpu").to_dict()).keys() == computed | filled
    assert changed_values(plain, get_config("en-de:tpu").to_dict()).keys() == computed | filled
    assert get_config("en-de:gpu").checkpoint.every_minutes == 10, "as configs/accelerator.py says"
    with pytest.raises(
        ValueError, match=r"^there is no row 'gpu'; the rows are en-de, en-fr, each also as ROW:small or"
    ):
        get_config("gpu")


def test_a_scaled_down_model_differs_from_its_base_as_its_row_does() -> None:
    def ratios(row: str, size: str) -> dict[str, float]:
        base, cfg = ablation(f"base{size}"), ablation(f"{row}{size}")
        sizes = {key: cfg.model[key] / base.model[key] for key in ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop")}
        rest = {"steps": cfg.steps / base.steps, "eps_ls": cfg.loss.eps_ls, "learned": cfg.model.positions == "learned"}
        return sizes | rest

    for row in ROWS:
        assert ratios(row, ":small") == pytest.approx(ratios(row, "")), row
        assert ablation(f"{row}:small").steps == ablation(row).steps // SHORTER, row


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


@pytest.mark.parametrize("argument", ["A1", "A1:small", "big"])
def test_the_rows_are_swept_from_base_alone(argument: str) -> None:
    with pytest.raises(ValueError, match=rf"^there is no sweep of '{argument}'; all rows are swept from base or"):
        sweep(argument)
