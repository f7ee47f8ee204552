"""Each notebook runs from top to bottom on tiny runs, shows its figures, and uses nothing private.

The .ipynb files are what `python -m notebooks.build` makes of the percent files.
"""

import ast
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import jax
import matplotlib
import matplotlib.pyplot as plt
import pytest

from notebooks import build
from tests import tiny
from tests.extras import needed
from tests.planted import plant, planted_config, scores
from vaswani import load_run
from vaswani.errors import UserError
from vaswani.paper import figures

matplotlib.use("Agg")
FOLDER = Path(__file__).parent.parent.parent / "notebooks"
NOTEBOOKS = build.SOURCES
LARGEST = 500_000  # bytes of an .ipynb file
NUMBER = re.compile(r"[+−-]?\d[\d.,]*(e[+-]\d+)?")
RULE = re.compile(r"-{2,}")  # under a table's head, as wide as its numbers
LEARNED = re.compile(r"(?<=translation: ).*")  # differs from run to run


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
    assert shown == 4
    assert len(found["by_layer"]) == 6 and found["by_layer"]["post", False]["decoder"][0] == 0, "no gradient arrives"
    assert found["inside"].min() == 1 and abs((found["outside"] != 0).mean() - 0.9**12) < 0.01


@pytest.mark.slow
def test_attention_maps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    needed("ipykernel")  # and with it IPython
    monkeypatch.setattr(figures, "SEARCHED", 60)
    folder = tiny.write_grammar_run(tmp_path / "run")
    _, shown = execute("3_attention_maps", monkeypatch, WORKDIR=folder)
    assert shown == 2
    assert "translation: " in capsys.readouterr().out


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


@pytest.mark.slow
def test_one_sentence_through_the_decoder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    found, shown = execute("5_one_sentence_through_the_decoder", monkeypatch)
    assert shown == 3
    printed = capsys.readouterr().out
    compared = re.findall(r"the model's (\S+)$", printed, re.MULTILINE)
    assert len(compared) == 19 and {"decoder/layer_0", "decoder", "logits"} <= set(compared)
    assert "sums of the rows: [1. 1. 1. 1.]" in printed
    assert all(gap > 0 for position, gap in found["gap"].items() if position > 1), "the model's own prefixes cost"
    assert found["greedy"] == load_run("builtin:tatoeba").translate(found["english"], beam=1), "as greedy search has it"

    def texts(config: Any) -> list[str]:
        _, axes = plt.subplots()
        found["figure_1"](axes, config, "")
        drawn = [text.get_text() for text in axes.texts]
        plt.close("all")
        return drawn

    assert sum("Add & LayerNorm" in text for text in texts(found["base"])) == 5
    assert sum(text == "LayerNorm" for text in texts(found["variant"])) == 7  # five, and one above each stack


@pytest.mark.slow
def test_ten_mistakes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    _, shown = execute("6_ten_mistakes", monkeypatch)
    assert shown == 3
    printed = capsys.readouterr().out
    for symptom in ("wrong: [", "without $W^O$: a head reaches 4 of 16", "weights [nan nan nan]", "wrong, of pieces"):
        assert symptom in printed


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


def committed(source: Path) -> list[dict[str, Any]]:
    """Returns the cells of the .ipynb file beside a percent file."""
    return json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]


def as_percent(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "code":
        return f"# %%\n{source}"
    lines = [f"# {line}".rstrip() for line in source.splitlines()]
    return "\n".join(["# %% [markdown]", *lines])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_the_built_notebook_has_the_cells_of_its_source(path: Path):
    _, *cells = re.split(r"^(?=# %%)", path.read_text(), flags=re.MULTILINE)
    assert [as_percent(cell) for cell in committed(path)] == [cell.rstrip("\n") for cell in cells], (
        "run `make notebooks`"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_the_built_notebook_has_its_outputs(path: Path):
    cells = [cell for cell in committed(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        kinds = [kinds_of(output) for output in cell["outputs"]]
        pictures = [kind for kind in kinds if "image/png" in kind]
        assert len(pictures) == "".join(cell["source"]).count("plt.show()")
        assert ("stream stderr" not in kinds) and ("error" not in kinds)
    assert path.with_suffix(".ipynb").stat().st_size < LARGEST


def kinds_of(output: dict[str, Any]) -> str:
    """Returns of what kind an output is, and in which formats it is kept."""
    return " ".join([output["output_type"], output.get("name", ""), *sorted(output.get("data", {}))])


def outline(cell: dict[str, Any]) -> list[str]:
    """Returns the kind of each output of a cell and what it prints, without numbers and what a model learned."""
    found = []
    for output in cell.get("outputs", []):
        found.append(kinds_of(output))
        for line in "".join(output.get("text", [])).splitlines():
            line = RULE.sub("--", NUMBER.sub("0", line))
            found.append(" ".join(LEARNED.sub("", line).split()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_a_notebook_prints_and_draws_what_was_committed(path: Path, tmp_path: Path):
    for package in ("nbclient", "ipykernel", "jupytext", "torch"):
        needed(package)
    environment = {}
    if path.stem == "3_attention_maps":
        environment = {"WORKDIR": str(tiny.write_grammar_run(tmp_path / "run"))}
    executed = json.loads(build.built(path, **environment))["cells"]
    for now, before in zip(executed, committed(path), strict=True):
        assert outline(now) == outline(before), as_percent(before)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jupytext", None)
    with pytest.raises(UserError, match=r"package jupytext: pip install -e '\.\[notebooks\]'"):
        build.built(NOTEBOOKS[0])


@pytest.mark.slow
def test_an_error_in_a_cell_is_one_line(tmp_path: Path):
    needed("nbclient")
    source = tmp_path / "wrong.py"
    source.write_text("# %%\nprint(1)\n\n# %%\n1 / 0\n")
    with pytest.raises(UserError, match=r"^wrong\.py: ZeroDivisionError: division by zero$"):
        build.built(source)
