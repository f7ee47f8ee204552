"""Result records become the README's table, and nothing else does."""

import json
from pathlib import Path

import pytest

from base.errors import UserError
from paper import results
from paper.records import find, search
from paper.tables.bootstrap import read_lines_of
from tests.planted import plant, planted_config, scores

ROOT = Path(__file__).parent.parent
A1 = "configs/ablations.py:A1:small"


def test_the_pages_show_the_committed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for page, text in results.pages().items():
        assert page.read_text(encoding="utf-8") == text, "run python -m paper.results"


def test_a_run_without_an_evaluation_makes_no_record(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "run.json").write_text('{"launches": []}')
    with pytest.raises(UserError, match=r"no evaluation of the test split; run python -m infer"):
        results.make_record(tmp_path)
    with pytest.raises(UserError, match=r"no evaluation of the valid split; run .* --split=valid"):
        results.make_record(tmp_path, "valid")


def test_a_record_holds_the_newest_evaluation_and_the_last_update(tmp_path: Path) -> None:
    data = {"train": {"pairs": 1, "tokens": 2, "sha256": "x", "folder": "/not/kept"}}
    (tmp_path / "config.json").write_text('{"seed": 3}')
    (tmp_path / "run.json").write_text(
        json.dumps({"launches": [{"data": data, "command": ["a", "--seed=3", "--workdir=/mine/runs/x"]}]})
    )
    (tmp_path / "evaluations").mkdir()
    for name, time in (("test-a", "2026-01-02"), ("test-b", "2026-01-01"), ("valid-c", "2026-01-03")):
        (tmp_path / "evaluations" / f"{name}.json").write_text(json.dumps({"time": time, "name": name}))
    updates = [{"kind": "train", "step": 5, "seconds": 60}, {"kind": "train", "step": 9, "seconds": 120}]
    lines = [json.dumps(record) for record in (*updates, {"kind": "valid", "step": 9})]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    record = results.make_record(tmp_path)
    assert record["evaluation"]["name"] == "test-a"
    validations = [{"kind": "valid", "step": 9}]
    assert record["training"] == {"steps": 9, "minutes": 2.0, "validations": validations}
    assert results.make_record(tmp_path, "valid")["evaluation"]["name"] == "valid-c"
    kept = {"train": {"pairs": 1, "tokens": 2, "sha256": "x"}}
    assert record["launches"] == [{"data": kept, "command": ["a", "--seed=3"]}]
    (tmp_path / "evaluations" / "parse-test-d.json").write_text('{"time": "2026-01-04", "name": "trees"}')
    assert results.make_record(tmp_path)["evaluation"]["name"] == "trees"


def test_a_record_may_lie_deeper_and_keep_translations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = planted_config(A1)
    run = plant(tmp_path / "run", config, scores(config, "valid", 7.0))
    (run / "evaluations" / "valid-0.txt").write_text("Der Hund schläft.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    results.keep(run, "table3-small/A1-seed0", "valid", translations=True)
    (one,) = find(search(Path("results")), A1, "valid").scored
    assert one.scores == scores(config, "valid", 7.0)
    assert [record["step"] for record in one.run.validations] == [config["steps"] // 2, config["steps"]]
    assert read_lines_of(one) == ["Der Hund schläft."]
    assert results.read_records() == {}, "the README shows what lies directly in results/"


def test_every_point_of_a_sweep_has_its_record(tmp_path: Path) -> None:
    for point in ("seed=0", "seed=1,h=1"):
        plant(tmp_path / "s" / point, planted_config(A1))
    assert results.runs_of(tmp_path / "s" / "seed=0", "x") == {"x": tmp_path / "s" / "seed=0"}
    (tmp_path / "s" / "sweep").mkdir()
    assert results.runs_of(tmp_path / "s", "x") == {
        "x/seed=0": tmp_path / "s" / "seed=0",
        "x/seed=1,h=1": tmp_path / "s" / "seed=1,h=1",
    }


def test_the_readme_passes_over_what_is_no_translation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for name, content in (("table1", {"types": {}}), ("parsing", {"evaluation": {"f1": 1.0}})):
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(content))
    assert results.read_records() == {}
