"""The tables of docs/scaling.md are made from the committed records, which hold what acceptance asks for."""

from pathlib import Path
from typing import Any

import pytest

from base.markers import rewritten
from tests.conftest import ROOT
from tests.test_compile import check
from train import scaling


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    monkeypatch.chdir(ROOT)
    return scaling.read_records()


def test_the_page_shows_the_committed_records(records: dict[str, dict[str, Any]]) -> None:
    page = rewritten(scaling.PAGE, scaling.BEGIN, scaling.END, scaling.tables(records))
    assert page == scaling.PAGE.read_text(encoding="utf-8"), "run python -m train.scaling"


def test_every_record_has_its_row_and_is_of_a_program_that_fits_or_says_why_not(records: dict) -> None:
    cases = {case.name: case for case in scaling.cases()}
    for name, record in records.items():
        assert tuple(record["arguments"]) == cases[name].arguments, "run python -m train.scaling"
        if name.endswith("-large"):
            assert record["report"]["refused"]["needed"] > record["report"]["refused"]["available"]
        else:
            check(record["report"])


def refused(case: scaling.Case) -> dict[str, Any]:
    """What is recorded of a case that does not fit."""
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
    case = next(case for case in scaling.cases() if case.name == "base-v5e-2x2")
    text = scaling.tables({case.name: refused(case)})
    assert "**does not fit**: 32.0 of 15.75" in text
    assert "Not compiled yet: base-v5e-4x4, " in text


def test_a_case_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make_record(case: scaling.Case) -> dict[str, Any]:
        made.append(case.name)
        return refused(case)

    three = scaling.cases()[:3]
    monkeypatch.setattr(scaling, "cases", lambda: three)

    monkeypatch.setattr(scaling, "make_record", make_record)
    monkeypatch.setattr(scaling, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(scaling, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(f"before\n{scaling.BEGIN}\nold\n{scaling.END}\nafter\n")
    scaling.main([])
    assert made == [case.name for case in scaling.cases()]
    scaling.main([])
    assert len(made) == len(scaling.cases())
    assert "old" not in (tmp_path / "page.md").read_text()
    (tmp_path / "records" / "base-v5e-2x2.json").unlink()
    scaling.main([])
    assert made[-1] == "base-v5e-2x2"
