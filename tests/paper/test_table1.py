"""Counts and paths of each layer type against its formula, and the committed record against both."""

import json
import math
from pathlib import Path

import pytest

from vaswani.errors import UserError
from vaswani.paper.published import TABLE1
from vaswani.paper.table1_plot import plot
from vaswani.paper.tables import table1
from vaswani.paper.tables.table1 import ATTENTION, DILATED, LINEAR, PROJECTED, RECURRENT, TYPES, Sizes
from vaswani.train.table import as_text

RECORD = Path(__file__).parent.parent.parent / "paper" / "records" / "table1.json"

# Products of a layer, each multiplication and addition an operation; restricted attention covers three blocks, linear
# attention multiplies out blocks of 64 positions and sums up over those before and after, convolutions are gated.
PRODUCTS = {
    ATTENTION: lambda s: 4 * s.n**2 * s.d,
    PROJECTED: lambda s: 4 * s.n**2 * s.d + 8 * s.n * s.d**2,
    RECURRENT: lambda s: 16 * s.n * s.d**2,
    "convolutional": lambda s: 4 * s.k * s.n * s.d**2,
    DILATED: lambda s: 4 * s.k * s.n * s.d**2,
    "self-attention, restricted": lambda s: 6 * (s.r - 1) * s.n * s.d,
    LINEAR: lambda s: 2 * 64 * s.n * (2 * s.d + 1) + 8 * s.n * s.d * (s.d + 1),
}
PATHS = {
    ATTENTION: lambda s: 1,
    PROJECTED: lambda s: 1,
    RECURRENT: lambda s: s.n,
    "convolutional": lambda s: math.ceil((s.n - 1) / (s.k - 1)),
    DILATED: lambda s: next(layers for layers in range(s.n) if s.k**layers >= s.n),
    "self-attention, restricted": lambda s: math.ceil((s.n - 1) / (s.r // 2)),
    LINEAR: lambda s: 1,
}
SEQUENTIAL = {  # those of attention include its projections
    **{ATTENTION: lambda n: 4, PROJECTED: lambda n: 4, "self-attention, restricted": lambda n: 4, LINEAR: lambda n: 4},
    **{"convolutional": lambda n: 1, DILATED: lambda n: 1, RECURRENT: lambda n: n},
}


@pytest.fixture(scope="module")
def record() -> dict:
    return json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_operations_are_the_products_and_a_little_more(name: str) -> None:
    """Softmax, gates, masks and the counting of loops are more."""
    sizes = Sizes(n=256, d=96, k=3, r=17)
    found = table1.measure(name, sizes, runs=1)
    assert 0.97 < found["operations"] / PRODUCTS[name](sizes) < 1.06
    assert found["sequential"] == SEQUENTIAL[name](sizes.n)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [Sizes(n=9, d=4, k=3, r=5), Sizes(n=17, d=4, k=2, r=3), Sizes(n=28, d=4, k=3, r=9)])
@pytest.mark.parametrize("name", TYPES)
def test_paths_are_as_long_as_their_formula(name: str, sizes: Sizes) -> None:
    assert table1.longest_path(name, sizes) == PATHS[name](sizes)


@pytest.mark.parametrize("name", TYPES)
def test_the_committed_exponents_are_the_papers(name: str, record: dict) -> None:
    found = record["types"][name]
    for axis, expected in TYPES[name].exponents.items():
        assert found["exponents"]["operations"][axis] == pytest.approx(expected, abs=0.25), axis
    grows = float(TYPES[name].paper.sequential == "O(n)")
    assert found["exponents"]["sequential"] == pytest.approx(grows, abs=0.01)
    if name != DILATED:  # the paper's O(log_k n) is for dilated kernels
        assert found["exponents"]["path"] == pytest.approx(float("n" in TYPES[name].paper.path), abs=0.05)


@pytest.mark.parametrize("name", TYPES)
def test_the_committed_exponents_are_those_of_the_committed_points(name: str, record: dict) -> None:
    found = record["types"][name]
    for quantity in ("operations", "seconds"):
        for axis, power in found["exponents"][quantity].items():
            start = record["fitted_from"][axis]
            assert table1.exponent(found["lines"][axis], quantity, axis, start) == pytest.approx(power)
    assert table1.exponent(found["lines"]["n"], "sequential", "n") == pytest.approx(found["exponents"]["sequential"])
    assert table1.exponent(found["paths"], "length", "n") == pytest.approx(found["exponents"]["path"])


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_the_committed_points_are_this_codes(name: str, record: dict) -> None:
    point = record["types"][name]["lines"]["n"][0]
    again = table1.measure(name, Sizes(**{axis: point[axis] for axis in "ndkr"}), runs=1)
    assert again["operations"] == pytest.approx(point["operations"], rel=0.03)
    assert again["sequential"] == point["sequential"]
    at = record["paths_at"]
    for path in record["types"][name]["paths"]:
        assert path["length"] == PATHS[name](Sizes(n=path["n"], **at))


def test_an_exponent_is_a_slope_in_the_range_that_is_asked_for() -> None:
    points = [{"n": n, "work": 3.0 * n**1.5 if n > 8 else 1.0} for n in (4, 8, 16, 32, 64)]
    assert table1.exponent(points, "work", "n", start=16) == pytest.approx(1.5)
    assert table1.exponent(points, "work", "n") > 1.8


def test_a_crossover_is_where_two_powers_meet() -> None:
    square, line = ([{"n": n, "operations": c * n**p} for n in (2, 16, 128)] for c, p in ((4, 2), (40, 1)))
    assert table1.crossover(square, line) == pytest.approx(10)
    assert table1.crossover(line, square) is None
    assert table1.crossover(square[:1] * 2, line[:1] * 2) is None


def test_the_table_tells_what_the_record_holds(record: dict) -> None:
    table = table1.table(record)
    assert [row[0] for row in table.rows] == list(TYPES)
    exponents = record["types"][RECURRENT]["exponents"]["operations"]
    shown = f"n^{exponents['n']:.2f} d^{exponents['d']:.2f}"
    assert table.rows[2][1:3] == ("O(n d^2)", shown)
    crossing = record["crossovers"][ATTENTION]
    assert f"up to n = {crossing:.0f} = {crossing / record['fixed']['d']:.1f} d" in as_text(table)


def test_the_papers_columns_are_its_table(record: dict) -> None:
    *rows, later = table1.table(record).rows
    assert (later[0], later[1], later[4], later[6]) == (LINEAR, "-", "-", "-")
    for row in rows:
        (paper,) = [
            layer for layer in TABLE1 if layer.layer == row[0].removesuffix(" with projections").split(", dil")[0]
        ]
        complexity = "left out" if row[0] == PROJECTED else paper.complexity
        assert (row[1], row[4], row[6]) == (complexity, paper.sequential, paper.path)


def test_both_convolutions_have_the_papers_path_and_a_note_says_which_kernels_it_is_for(record: dict) -> None:
    table = table1.table(record)
    assert {row[0]: row[6] for row in table.rows if row[0].startswith("conv")} == {
        "convolutional": "O(log_k n)",
        DILATED: "O(log_k n)",
    }
    assert "O(log_k n) is for dilated kernels; for contiguous ones its text gives O(n/k)" in as_text(table)


@pytest.mark.slow
def test_a_record_of_small_grids_can_be_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(table1, "TYPES", {name: TYPES[name] for name in (ATTENTION, PROJECTED, RECURRENT)})
    monkeypatch.setattr(table1, "FIXED", Sizes(n=16, d=4, k=3, r=3))
    monkeypatch.setattr(table1, "GRIDS", {"n": (4, 32), "d": (4, 8), "k": (3,), "r": (3,)})
    monkeypatch.setattr(table1, "FITTED_FROM", {"n": 4, "d": 4})
    monkeypatch.setattr(table1, "SMALL_N", (4, 8))
    record = json.loads(json.dumps(table1.make_record()))
    assert capsys.readouterr().err.splitlines() == [f"{name} ..." for name in (ATTENTION, PROJECTED, RECURRENT)]
    assert [point["d"] for point in record["types"][ATTENTION]["lines"]["d"]] == [4, 8]
    assert record["types"][RECURRENT]["paths"] == [{"n": 4, "length": 4}, {"n": 8, "length": 8}]
    assert len(table1.table(record).rows) == 3
    plot(record, tmp_path / "table1.svg")
    drawing = (tmp_path / "table1.svg").read_text()
    assert all(f"<!-- {text} -->" in drawing for text in ("recurrent", " n = d", "longest path, k = 3, r = 5"))


def test_a_drawing_of_no_known_kind_is_refused(record: dict, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"table1\.xyz: cannot be written"):
        plot(record, tmp_path / "table1.xyz")
    with pytest.raises(UserError, match=r"cannot be written \(No such file"):
        plot(record, tmp_path / "absent" / "table1.svg")
