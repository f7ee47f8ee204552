"""Residual connections and layer norms: the rule of the design on made-up runs, and the page made of the record."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.residuals import report
from lab.residuals.design import BASE, CELLS, DEPTHS, NORMS, Cell, get_config, seeds
from vaswani.errors import UserError
from vaswani.tasks.config import model_config


def made_up(nll: Mapping[Cell, float | None], ratios: Mapping[Cell, float]) -> report.Runs:
    """Returns runs in which base ends at 2 nats and each other cell at 5, or as given."""
    runs: report.Runs = {}
    for cell in CELLS:
        value = nll.get(cell, 2.0 if cell == BASE else 5.0)
        gradient = {f"encoder/layer_{n}": 1.0 for n in range(cell.layers)}
        gradient["encoder/layer_0"] = ratios.get(cell, 1.0)
        runs[cell] = [
            {
                "cell": cell.name,
                "seed": seed,
                "nll": None if value is None else value + 0.01 * seed,
                "gradient": gradient,
                "git": {"commit": "0123456789", "dirty": False},
                "device": {"cpu": "a CPU"},
            }
            for seed in seeds(cell)
        ]
    return runs


def test_residual_connections_are_critical_if_nothing_trains_without_them() -> None:
    pre = {Cell(n, "pre", True): 2.2 for n in DEPTHS}
    assert report.residuals_critical(made_up(pre, {})) == "shown"
    assert report.residuals_critical(made_up(pre | {Cell(6, "post", False): 2.5}, {})) == "neither"
    without = {Cell(n, "post", False): 2.5 for n in DEPTHS}
    assert report.residuals_critical(made_up(pre | without, {})) == "refuted"
    assert report.residuals_critical(made_up({}, {})) == "neither"


def test_norms_are_critical_if_nothing_trains_without_them() -> None:
    pre = {Cell(n, "pre", True): 2.2 for n in DEPTHS}
    bare = {Cell(n, "none", True): 2.2 for n in DEPTHS}
    assert report.norms_critical(made_up(pre, {})) == "shown"
    assert report.norms_critical(made_up(pre | bare, {})) == "refuted"
    assert report.norms_critical(made_up(pre | {Cell(12, "none", True): 2.2}, {})) == "neither"


def test_gradients_collapse_if_they_do_with_every_norm() -> None:
    ratios = {Cell(12, norm, False): 0.01 for norm in NORMS}
    assert report.collapse_prevented(made_up({}, ratios)) == "shown"
    assert report.collapse_prevented(made_up({}, ratios | {Cell(12, "post", False): 0.5})) == "neither"
    assert report.collapse_prevented(made_up({}, {})) == "refuted"
    assert report.collapse_prevented(made_up({}, ratios | {Cell(12, "post", True): math.nan})) == "neither"


def test_a_run_that_was_not_finite_has_not_trained_and_the_table_says_so() -> None:
    runs = made_up({Cell(12, "none", True): None, Cell(2, "pre", True): 2.1}, {})
    assert report.failed(runs, Cell(12, "none", True))
    table = report.table(runs)
    (row,) = [row for row in table.rows if row[0] == "12 layers, no norm"]
    assert row[1:3] == ("not finite", "did not train")
    assert any("of the cells that train: 2-pre +" in note for note in table.notes)


def test_the_cells_are_what_their_names_say() -> None:
    for cell in CELLS:
        config = model_config(get_config(cell, seed=1), 1_000)
        assert (config.N, config.norm, config.residual) == (cell.layers, cell.norm, cell.residual)
    assert sum(len(seeds(cell)) for cell in CELLS) == 56


def test_the_page_and_the_figure_are_made_of_the_record(tmp_path: Path) -> None:
    runs = report.read()
    assert report.page(runs) == report.PAGE.read_text(encoding="utf-8")
    if report.is_complete(runs):
        report.plot(runs, tmp_path / "figure.svg")
        assert (tmp_path / "figure.svg").read_bytes() == report.FIGURE.read_bytes()


def test_a_run_with_uncommitted_changes_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: dict[str, Any] = {**made_up({}, {})[CELLS[0]][0], "updates": 300}
    run["git"] = run["git"] | {"dirty": True}
    (tmp_path / f"{CELLS[0].name}-seed0.json").write_text(json.dumps(run))
    monkeypatch.setattr(report, "RECORDS", tmp_path / "records.jsonl")
    with pytest.raises(UserError, match="trained with changes that are not committed"):
        report.record(tmp_path)
