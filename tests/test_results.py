"""Result records become the README's table, and nothing else does."""

import json
from pathlib import Path

import pytest

from data.errors import UserError
from paper import results

ROOT = Path(__file__).parent.parent


def test_the_readme_shows_the_committed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    readme = results.README.read_text(encoding="utf-8")
    assert results.with_table(readme, results.table(results.read_records())) == readme, "run python -m paper.results"


def test_a_run_without_an_evaluation_makes_no_record(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "run.json").write_text('{"launches": []}')
    with pytest.raises(UserError, match=r"no evaluation of the test split; run python -m infer"):
        results.make_record(tmp_path)


def test_a_record_holds_the_newest_evaluation_and_the_last_update(tmp_path: Path) -> None:
    data = {"train": {"pairs": 1, "tokens": 2, "sha256": "x", "folder": "/not/kept"}}
    (tmp_path / "config.json").write_text('{"seed": 3}')
    (tmp_path / "run.json").write_text(json.dumps({"launches": [{"data": data}]}))
    (tmp_path / "evaluations").mkdir()
    for name, time in (("test-a", "2026-01-02"), ("test-b", "2026-01-01"), ("valid-c", "2026-01-03")):
        (tmp_path / "evaluations" / f"{name}.json").write_text(json.dumps({"time": time, "name": name}))
    updates = [{"kind": "train", "step": 5, "seconds": 60}, {"kind": "train", "step": 9, "seconds": 120}]
    lines = [json.dumps(record) for record in (*updates, {"kind": "valid", "step": 9})]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    record = results.make_record(tmp_path)
    assert record["evaluation"]["name"] == "test-a"
    assert record["training"] == {"steps": 9, "minutes": 2.0}
    assert record["launches"] == [{"data": {"train": {"pairs": 1, "tokens": 2, "sha256": "x"}}}]


def test_a_readme_without_the_markers_is_left_alone() -> None:
    with pytest.raises(UserError, match="must both stand in it"):
        results.with_table("# Title\n", "table")
