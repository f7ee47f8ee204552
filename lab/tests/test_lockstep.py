"""Training in lockstep with PyTorch: table and figure are those of the record, and it keeps the bounds of the page."""

from pathlib import Path

from lab.lockstep import report


def test_the_page_and_the_figure_are_made_of_the_record(tmp_path: Path) -> None:
    cases = report.read()
    assert report.page(cases) == report.PAGE.read_text(encoding="utf-8")
    report.plot(cases, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_bytes() == report.FIGURE.read_bytes()


def test_the_record_keeps_the_bounds_that_the_page_states() -> None:
    for case in report.read():
        for other in ("theirs", "nudged"):
            found = report.difference(case, other)
            assert len(found) == 40
            assert found.max() < 1e-4 or case["case"] == "bfloat16"
