"""The tables of docs/scaling.md are made from the committed records, which contain every required case."""

import json
from pathlib import Path
from typing import Any

import pytest

from base.errors import UserError
from base.markers import rewritten
from tests.conftest import ROOT
from tests.train.test_compile import check
from train import scaling
from train.aot import scaling as library


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    monkeypatch.chdir(ROOT)
    return library.read_records()


def test_the_page_shows_the_committed_records(records: dict[str, dict[str, Any]]) -> None:
    page = rewritten(scaling.PAGE, scaling.BEGIN, scaling.END, library.tables(records))
    assert page == scaling.PAGE.read_text(encoding="utf-8"), "run python -m train.scaling"


def test_every_record_has_its_row_and_is_of_a_program_that_fits_or_says_why_not(records: dict) -> None:
    cases = {case.name: case for case in library.cases()}
    for name, record in records.items():
        assert tuple(record["arguments"]) == cases[name].arguments, "run python -m train.scaling"
        if name.endswith("-large"):
            assert record["report"]["refused"]["needed"] > record["report"]["refused"]["available"]
        else:
            check(record["report"])


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
    return {"arguments": list(case.arguments), "report": report}


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
    monkeypatch.setattr(library, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(scaling, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(f"before\n{scaling.BEGIN}\nold\n{scaling.END}\nafter\n")
    scaling.main([])
    assert made == [case.name for case in library.cases()]
    scaling.main([])
    assert len(made) == len(library.cases())
    assert "old" not in (tmp_path / "page.md").read_text()
    (tmp_path / "records" / "base-v5e-2x2.json").unlink()
    scaling.main([])
    assert made[-1] == "base-v5e-2x2"


@pytest.mark.parametrize(
    ("keys", "value", "wrong"),
    [
        ((), [1, 2], "it is [1, 2]; it must be an object"),
        ((), {}, "it has no 'arguments'"),
        (("report", "devices"), "4", 'report.devices is "4"; it must be a whole number'),
        (("report", "topology"), "x9:2x2", "report.topology is 'x9:2x2'; it must begin like v5e:4x4"),
        (("report", "train_middle", "collectives"), [3], "in report: train_middle.collectives[0] is 3; it must be an"),
        (("report", "estimate"), {}, "in report: estimate has no 'compute_seconds'"),
        (("report", "refused"), {}, "in report: refused has no 'program'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_damaged_record_is_one_line(tmp_path: Path, keys: tuple[str, ...], value: Any, wrong: str) -> None:
    content = json.loads((ROOT / "results" / "aot" / "base-v5e-2x2.json").read_text())
    damaged = content
    for key in keys[:-1]:
        damaged = damaged[key]
    if keys:
        damaged[keys[-1]] = value
    (tmp_path / "x.json").write_text(json.dumps(content if keys else value))
    with pytest.raises(UserError) as error:
        library.read_record(tmp_path / "x.json")
    assert f"x.json: damaged: {wrong}" in str(error.value) or f"x.json: damaged {wrong}" in str(error.value)
    assert "\n" not in str(error.value)
