"""The tables of docs/scaling.md are made from the committed records, which contain every required case."""

from pathlib import Path
from typing import Any

import pytest

from lab.scaling import __main__ as scaling
from lab.scaling import cases as library
from tests.conftest import ROOT
from tests.train.test_compile import check
from vaswani.paper.markers import replace_block
from vaswani.train.aot.hardware import CHIPS
from vaswani.train.aot.report import estimate


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    monkeypatch.chdir(ROOT)
    return library.read_records()


def test_the_page_shows_the_committed_records(records: dict[str, dict[str, Any]]) -> None:
    page = replace_block(scaling.PAGE, scaling.BEGIN, scaling.END, library.tables(records))
    assert page == scaling.PAGE.read_text(encoding="utf-8"), "run python -m lab.scaling"


def test_every_record_has_its_row_and_is_of_a_program_that_fits_or_says_why_not(records: dict) -> None:
    cases = {case.name: case for case in library.cases()}
    for name, record in records.items():
        assert tuple(record["arguments"]) == cases[name].arguments, "run python -m lab.scaling"
        if name.endswith("-large"):
            assert record["report"]["refused"]["needed"] > record["report"]["refused"]["available"]
        elif name == "big-v5e-4x4-tensor":
            # What is no matrix product (norms, dropout) each of the four chips may compute for all of their positions.
            program = records["big-v5e-4x4"]["report"]["train_middle"]
            check(record["report"], excess=4 * (program["flops"] / program["flops_analytic"] - 1))
        else:
            check(record["report"])


@pytest.mark.parametrize("model", ["base", "big"])
def test_the_upper_estimate_is_within_30_per_cent_of_what_an_h200_measured(model: str, records: dict) -> None:
    program = records[f"{model}-h100-1-packed"]["report"]["train_middle"]
    assert (program["rows"], program["length"]) == (97, 256)
    measured = library.measured_parts()[f"step: {model}: ours, cudnn, chunks of 8,192"]
    seconds = measured["milliseconds"] / 1e3
    assert estimate(CHIPS["h200"], program, 25_000, 1)["step_seconds_most"] == pytest.approx(seconds, rel=0.3)


def test_a_product_by_cublas_is_no_call_of_cudnn(records: dict[str, dict[str, Any]]) -> None:
    record = records["big-h100-8-tensor"]
    expected = library.tables({"big-h100-8-tensor": record})
    record["report"]["train_middle"]["kernels"]["__cublas$lt$matmul"] = 1  # as programs of jax 0.12 may have it
    assert library.tables({"big-h100-8-tensor": record}) == expected


def refused(case: library.Case) -> dict[str, Any]:
    """Returns the record of a case that does not fit."""
    report = {
        "topology": "v5e:2x2",
        "slices": 1,
        "devices": 4,
        "mesh": {"data": 4, "fsdp": 1, "tensor": 1},
        "config": {"data": {"tokens_per_batch": 25_000}},
        "versions": {"jax": "1", "libtpu": "2"},
        "refused": {"program": "train_longest", "needed": 32 * 2**30, "available": 63 * 2**28},
    }
    return {"name": case.name, "arguments": list(case.arguments), "report": report}


def test_a_refusal_is_told_with_its_numbers_and_what_was_not_compiled_by_name() -> None:
    case = next(case for case in library.cases() if case.name == "base-v5e-2x2")
    text = library.tables({case.name: refused(case)})
    assert "**does not fit**: 32.0 of 15.75" in text
    assert "Not compiled yet: base-v5e-4x4, " in text


def test_a_case_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make_record(case: library.Case) -> dict[str, Any]:
        made.append(case.name)
        return refused(case)

    three = library.cases()[:3]
    monkeypatch.setattr(library, "cases", lambda: three)
    monkeypatch.setattr(library, "make_record", make_record)
    monkeypatch.setattr(library, "RECORDS", tmp_path / "compiled.jsonl")
    monkeypatch.setattr(scaling, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(f"before\n{scaling.BEGIN}\nold\n{scaling.END}\nafter\n")
    scaling.main([])
    assert made == [case.name for case in library.cases()]
    scaling.main([])
    assert len(made) == len(library.cases())
    assert "old" not in (tmp_path / "page.md").read_text()
    whole = library.RECORDS.read_text()
    line, *others = whole.splitlines(keepends=True)
    assert line.startswith('{"name":"base-v5e-2x2",')
    library.RECORDS.write_text("".join(others))
    scaling.main([])
    assert made[len(three) :] == ["base-v5e-2x2"]
    library.RECORDS.write_text(whole.replace("--topology=v5e:2x2", "--topology=v5e:1x1"))
    scaling.main([])
    assert made[len(three) + 1 :] == ["base-v5e-2x2"]
    assert library.RECORDS.read_text() == whole
