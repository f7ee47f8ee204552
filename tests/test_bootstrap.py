"""The paired test detects a real difference and not a random one."""

from pathlib import Path

import pytest

from base.errors import UserError
from paper.records import RowRuns, RunRecord, ScoredRun
from paper.tables.bootstrap import compare, compare_rows

GERMAN = ["Der Hund schläft heute.", "Die Katze trinkt viel Milch.", "Das Kind lacht laut.", "Wir gehen nach Hause."]
REFERENCES = GERMAN * 16


def spoilt(every: int) -> list[str]:
    return [line if place % every else "Etwas ganz anderes steht hier." for place, line in enumerate(REFERENCES)]


def test_a_better_system_is_found_to_be_better() -> None:
    found = compare(spoilt(3), REFERENCES, REFERENCES, samples=200)
    assert found.scores[1] == pytest.approx(100)
    assert found.scores[0] < 80
    assert found.p < 0.05
    assert "bs:200|seed:12345" in found.signature


def test_equal_systems_are_not_told_apart() -> None:
    one = spoilt(4)
    other = [line if place % 4 != 1 else "Etwas ganz anderes steht hier." for place, line in enumerate(REFERENCES)]
    assert compare(one, other, REFERENCES, samples=200).p > 0.05


def test_unequal_lengths_are_an_error() -> None:
    with pytest.raises(UserError, match="63, 64 and 64 lines: a paired test needs two translations of each reference"):
        compare(REFERENCES[1:], REFERENCES, REFERENCES)


def row(path: Path, spec: str) -> RowRuns:
    run = RunRecord(path, {}, "", 1, 1.0, [], [], [], [])
    return RowRuns([ScoredRun(run, {"data": spec}, path)], "", [])


def test_rows_are_compared_on_their_own_test_set(tmp_path: Path) -> None:
    for name, lines in (("x.en", REFERENCES), ("x.de", REFERENCES), ("base.txt", spoilt(3)), ("big.txt", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    base, big = (row(tmp_path / f"{size}.txt", f"text:{tmp_path}/x.{{en,de}}") for size in ("base", "big"))
    found = compare_rows(base, big)
    assert found is not None and found.p < 0.05 and found.scores[1] > found.scores[0]
    assert compare_rows(base, row(tmp_path / "lost.txt", "")) is None
    assert compare_rows(base, RowRuns([], "", [])) is None
