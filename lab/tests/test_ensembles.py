"""An ensemble is recorded with the scores of all of its runs together."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import results as lab_results
from lab.ensembles import make_ensemble_record
from tests.planted import head, plant, planted_config, scores
from vaswani.errors import UserError
from vaswani.paper import results
from vaswani.paper.records import find_records, read_run
from vaswani.paper.rows import row_runs

A1 = "configs/ablations.py:A1:small"


def launch(run: Path, **changes: Any) -> None:
    """Changes the only launch of a planted run."""
    (one,) = json.loads((run / "run.json").read_text())["launches"]
    (run / "run.json").write_text(json.dumps({"launches": [{**one, **changes}]}))


def test_an_ensemble_is_recorded_apart_from_its_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = planted_config(A1, seed=1)
    both = [
        scores(config, "test", 7.0, params_sha256="a"),
        scores(config, "test", 8.0, members=["a", "b"], time="2026-01-02"),
    ]
    run = plant(tmp_path / "run", config, *both)
    second, third = (
        plant(tmp_path / name, planted_config(A1, seed=seed), scores(config, "test", 7.0, params_sha256=name))
        for seed, name in ((2, "b"), (3, "c"))
    )
    assert results.make_record(run)["evaluation"]["sacrebleu"] == 7.0
    together = make_ensemble_record([run, second], "test")
    assert together["evaluation"]["sacrebleu"] == 8.0
    assert together["training"]["minutes"] == 2 * results.make_record(run)["training"]["minutes"] > 0
    for others in ([third], [second, third], [run]):
        with pytest.raises(
            UserError, match=r"no evaluation of the test split by the ensemble of these runs; run python"
        ):
            make_ensemble_record([run, *others], "test")
    unscored = plant(tmp_path / "unscored", config)
    with pytest.raises(UserError, match=r"unscored: no evaluation of the test split"):
        make_ensemble_record([run, unscored], "test")
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text("")
    (Path("lab/studies/g2p") / "study.py").parent.mkdir(parents=True)
    (Path("lab/studies/g2p") / "study.py").write_text("")
    for name, places in (("g2p/of1", "run"), ("g2p/of2", "run,b")):
        flags = {"workdir": places, "name": name, "split": "test", "allow_dirty": False}
        lab_results.record(SimpleNamespace(**flags))
    found = find_records(lab_results.FOLDER)
    for members, value in ((1, [7.0]), (2, [8.0]), (3, [])):
        assert row_runs(found, A1, "test", members=members).values("sacrebleu") == value
    launch(second, git={"commit": head(), "dirty": True})
    with pytest.raises(UserError, match=r"b: not recorded, since the code had uncommitted changes"):
        make_ensemble_record([run, second], "test")
    together = make_ensemble_record([run, second], "test", allow_dirty=True)
    assert together["caveats"] == read_run(second).caveats
    (run / "evaluations" / "test-1.json").write_text(json.dumps({**both[1], "members": "two"}))
    with pytest.raises(UserError, match="damaged: members"):
        read_run(run)
