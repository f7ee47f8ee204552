"""Each notebook runs from top to bottom on tiny runs, shows its figures, and uses nothing private."""

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import jax
import matplotlib
import matplotlib.pyplot as plt
import pytest

from paper import figures
from tests import grammar_run
from tests.planted import plant, planted_config, scores

matplotlib.use("Agg")
FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


def ids(path: Path) -> str:
    return path.stem


def execute(name: str, monkeypatch: pytest.MonkeyPatch, **environment: Any) -> tuple[dict[str, Any], int]:
    """Runs a notebook in its own folder, as its readers do; returns its variables and the number of figures shown."""
    shown: list[int] = []

    def show() -> None:
        for number in plt.get_fignums():
            plt.figure(number).canvas.draw()
            shown.append(number)
        plt.close("all")

    monkeypatch.setattr(plt, "show", show)
    monkeypatch.chdir(FOLDER)
    for key, value in environment.items():
        monkeypatch.setenv(key, str(value))
    with jax.numpy_rank_promotion("allow"):  # as outside of tests
        variables = runpy.run_path(f"{name}.py")
    assert not plt.get_fignums(), "a figure was made and not shown"
    return variables, len(shown)


def test_attention_from_scratch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    _, shown = execute("1_attention_from_scratch", monkeypatch)
    assert shown == 1
    assert len(re.findall(r"largest relative difference \d\.\de-\d\d", capsys.readouterr().out)) >= 6


@pytest.mark.slow
def test_a_walk_through_the_model(monkeypatch: pytest.MonkeyPatch):
    found, shown = execute("2_a_walk_through_the_model", monkeypatch)
    assert shown == 3
    assert found["inside"].min() == 1 and abs((found["outside"] != 0).mean() - 0.9**12) < 0.01


@pytest.mark.slow
def test_attention_maps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(figures, "SEARCHED", 60)
    folder = grammar_run.make(tmp_path / "run")
    _, shown = execute("3_attention_maps", monkeypatch, WORKDIR=folder, SENTENCES=2, CASES=0)
    assert shown == 4
    printed = capsys.readouterr().out
    assert (
        "alignment error rate" in printed and "above every baseline" in printed and "without the best head" in printed
    )


@pytest.mark.parametrize("rows", [(), ("base",), ("base", "A1", "E")])
def test_table_3_in_small(
    rows: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for place, row in enumerate(rows):
        config = planted_config(f"configs/ablations.py:{row}:small")
        plant(tmp_path / row, config, scores(config, "valid", 7.0 + place))
    found, shown = execute("4_table_3_in_small", monkeypatch, RESULTS=tmp_path)
    assert shown == 2 and found["ran"] == [row for row in rows if row != "base"]
    assert "Table 3, scaled-down models" in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_a_notebook_is_text_and_public_names(path: Path):
    text = path.read_text()
    first, *cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    assert re.fullmatch(r"# ---\n(# .*\n)+# ---\n\n", first)
    assert cells[0].startswith(" [markdown]\n# # ") and cells[1].startswith("\n")
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        names += [node.attr] if isinstance(node, ast.Attribute) else []
        assert not [name for name in names if name.startswith("_")]


def test_every_notebook_is_executed_here():
    tests = Path(__file__).read_text()
    assert NOTEBOOKS and all(f'execute("{path.stem}"' in tests for path in NOTEBOOKS)
