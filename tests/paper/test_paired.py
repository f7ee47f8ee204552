"""Rows of the tables are compared on their own test set."""

from pathlib import Path

from vaswani.paper.records import RunRecord
from vaswani.paper.rows import RowRuns, ScoredRun
from vaswani.paper.tables.paired import compare_rows

GERMAN = ["Der Hund schläft heute.", "Die Katze trinkt viel Milch.", "Das Kind lacht laut.", "Wir gehen nach Hause."]
REFERENCES = GERMAN * 16
SPOILT = [line if place % 3 else "Etwas ganz anderes steht hier." for place, line in enumerate(REFERENCES)]


def row(path: Path, spec: str, seed: int = 0) -> RowRuns:
    run = RunRecord(path, {"seed": seed}, "", 1, 1.0, [], [], [], [])
    return RowRuns([ScoredRun(run, {"data": spec}, path)], "", [])


def test_rows_are_compared_on_their_own_test_set(tmp_path: Path) -> None:
    for name, lines in (("x.en", REFERENCES), ("x.de", REFERENCES), ("base.txt", SPOILT), ("big.txt", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    base, big = (row(tmp_path / f"{size}.txt", f"text:{tmp_path}/x.{{en,de}}") for size in ("base", "big"))
    found = compare_rows(base, big)
    assert found is not None and found.p < 0.05 and found.scores[1] > found.scores[0]
    assert compare_rows(base, row(tmp_path / "lost.txt", "")) is None
    assert compare_rows(base, RowRuns([], "", [])) is None
    other_seed = row(tmp_path / "big.txt", f"text:{tmp_path}/x.{{en,de}}", seed=1)
    assert compare_rows(base, other_seed) is None
    both = RowRuns([*other_seed.scored, *base.scored], "", [])
    assert compare_rows(base, both) == compare_rows(base, base)
