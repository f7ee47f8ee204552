"""Training operations three ways: the paper's formula gives the paper's numbers, and the others what they should."""

from pathlib import Path
from typing import Any

import pytest

from tests.planted import planted_config
from vaswani.paper.published import TABLE2
from vaswani.paper.records import Records, RunRecord
from vaswani.paper.rows import ScoredRun, load
from vaswani.paper.tables.cost import (
    analytic_flops,
    cost,
    device_time_flops,
    paper_flops,
    row_length,
    run_flops,
    xla_flops,
)


def scored(kind: str, minutes: float = 60.0, count: int = 1) -> ScoredRun:
    device = {"kind": kind, "count": count, "cpus": 2}
    return ScoredRun(RunRecord(Path("x"), {}, "", 1, minutes, [{"device": device}], [], [], []), {}, Path("x.txt"))


@pytest.mark.parametrize("size", ["base", "big"])
def test_the_papers_hours_give_the_papers_operations(size: str) -> None:
    (printed,) = (s.flops["en-de"] for s in TABLE2 if s.model == f"Transformer ({size})")
    assert f"{paper_flops(size):.1e}" == f"{printed:.1e}"


def test_the_formula_is_time_by_devices_by_rate() -> None:
    assert device_time_flops(2.0, 3, 5.0) == 2 * 3600 * 3 * 5


def test_a_run_is_counted_on_devices_that_the_paper_has_a_rate_for() -> None:
    assert run_flops(scored("Tesla P100-SXM2-16GB", count=8)) == pytest.approx(8 * 3600 * 9.5e12)
    assert run_flops(scored("cpu")) is None


def test_analytic_operations_of_base_are_those_of_its_parameters() -> None:
    """6 N D over source and target, the softmax on the target alone: 9.4e17, and attention's share on top."""
    base, big = (analytic_flops(load(f"configs/{size}.py:en-de")) for size in ("base", "big"))
    assert 9.4e17 < base < 1.05 * 9.4e17
    assert 9.6e18 < big < 1.05 * 9.6e18


def test_rows_are_as_long_as_the_middle_bucket_or_as_packed() -> None:
    assert row_length(load("configs/base.py:en-de")) == 28
    assert row_length(load("configs/base.py:en-de:small")) == 32


def report(config: dict[str, Any], flops: float) -> dict[str, Any]:
    return {"config": config, "devices": 4, "train_middle": {"flops": flops, "rows": 1024, "length": 28}}


def test_xla_counts_are_those_of_the_same_config_for_a_whole_run() -> None:
    name = "configs/base.py:en-de"
    config = planted_config(name, model__dtype="bfloat16", model__scan_layers=True)
    other = planted_config(name, model__N=5)
    on_a_gpu = report(config, 1e11)  # whose count leaves out what cuDNN computes
    on_a_gpu["train_middle"]["kernels"] = {"__cudnn$fmhaSoftmax": 18}
    refused = {"config": config, "refused": {}}
    found = Records([], [report(other, 1.0), refused, on_a_gpu, report(config, 1e12)], [], [])
    planned = 25_000 // 28
    assert xla_flops(found, load(name)) == pytest.approx(100_000 * 4 * 1e12 * planned / 1024)
    assert xla_flops(found, load("configs/big.py:en-de")) is None


def test_cost_is_the_mean_of_the_seeds() -> None:
    assert cost([]) == ""
    assert cost([scored("cpu", 3.0), scored("cpu", 9.0)]) == "0.10 h, 1 x cpu (2 cores)"
    assert cost([scored("TPU v5e", 900.0, 16)]) == "15.0 h, 16 x TPU v5e"


@pytest.mark.parametrize("kind", ["Quadro P1000", "Quadro K4000", "Quadro M4000"])
def test_a_device_whose_name_goes_on_has_no_rate(kind: str) -> None:
    assert run_flops(scored(kind)) is None
    assert run_flops(scored("Tesla K40m")) == pytest.approx(3600 * 3.7e12)


def test_a_run_of_seconds_costs_seconds() -> None:
    assert cost([scored("cpu", 0.2), scored("cpu", 0.1)]) == "9 s, 1 x cpu (2 cores)"
    assert cost([scored("cpu", 0.3)]) == "0.01 h, 1 x cpu (2 cores)"
