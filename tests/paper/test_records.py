"""Runs are found and recognised by their config, in every state that a run can be in."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.planted import head, plant, planted_config, scores
from vaswani.errors import UserError
from vaswani.paper import provenance
from vaswani.paper.records import (
    CONFIG,
    EVALUATION,
    LAUNCH,
    SCORES,
    Records,
    find_records,
    read_run,
    recorded_run,
    save,
    with_defaults,
)
from vaswani.paper.results import make_record
from vaswani.paper.rows import caveat_notes, fits, identity, row_runs
from vaswani.paper.tables import table3
from vaswani.read_json import check, read_json_lines

A1 = "configs/ablations.py:A1:small"
TRAINING = {"steps": int, "minutes": float, "validations": [{"step": int, "perplexity": float}]}


def planted(folder: Path, value: float, time: str = "2026-01-01", name: str = A1, **changes: Any) -> Path:
    config = planted_config(name, **changes)
    return plant(folder, config, scores(config, "valid", value, time=time))


def values(folder: Path, name: str = A1) -> list[float]:
    return row_runs(find_records(folder), name, "valid").values("perplexity")


def test_a_run_is_its_config_and_not_its_folder(tmp_path: Path) -> None:
    planted(tmp_path / "deep" / "B2", 7.0)
    assert values(tmp_path) == [7.0]
    assert values(tmp_path, "configs/ablations.py:B2:small") == []
    assert values(tmp_path, "configs/ablations.py:A1") == []


def test_the_folder_itself_may_be_a_run(tmp_path: Path) -> None:
    planted(tmp_path / "run", 7.0)
    assert values(tmp_path / "run") == [7.0]


@pytest.mark.parametrize("key", ["model__P_drop", "optim__lr", "data__vocab_size", "loss__eps_ls", "steps"])
def test_another_recipe_is_another_run(tmp_path: Path, key: str) -> None:
    planted(tmp_path / "run", 7.0, **{key: 3})
    assert values(tmp_path) == []


def test_how_it_was_computed_does_not_matter_but_is_said(tmp_path: Path) -> None:
    changes = {"model__dtype": "bfloat16", "mesh__fsdp": 4, "optim__accumulate": 2, "checkpoint__keep_best": 3}
    planted(tmp_path / "run", 7.0, **changes)
    row = row_runs(find_records(tmp_path), A1, "valid")
    assert row.values("perplexity") == [7.0]
    assert row.notes == [f"{A1}: run with model.dtype=bfloat16"]


def test_a_key_that_is_younger_than_the_run_has_its_default(tmp_path: Path) -> None:
    config = planted_config(A1)
    old = {key: value for key, value in config.items() if key != "image"}
    old["model"] = {key: value for key, value in config["model"].items() if key != "norm"}
    assert with_defaults(old) == config
    other = with_defaults({**old, "model": {**old["model"], "norm": "pre"}})
    assert identity(other) != identity(config)
    plant(tmp_path / "run", old, scores(old, "valid", 7.0))
    write_record(tmp_path / "A1.jsonl", tmp_path / "run")
    records = find_records(tmp_path)
    assert [run.config for run in records.runs] == [config, config]
    assert values(tmp_path) == [7.0]


def test_where_a_corpus_lies_does_not_matter() -> None:
    base = planted_config("configs/base.py:en-de")

    def at(spec: str) -> dict[str, Any]:
        return identity({**base, "data": {**base["data"], "train": spec}})

    assert at("tfds:/big disk/wmt14_translate/de-en/1.0.0:train:{en,de}") == identity(base)
    assert at("tfds:wmt14_translate/fr-en:train:{en,fr}") != identity(base)
    assert at("tfds:wmt14_translate/de-en:train[:9]:{en,de}") != identity(base)
    assert at("text:a/b/train.{en,de}") == at("text:c/train.{en,de}")
    assert at("text:a/train.{en,de}") != at("text:a/train.{de,en}")
    assert at("text:a/train.{en,de}") != at("text:a/other.{en,de}")
    assert at("lines:a/train.txt") != at("chars:a/train.txt"), "the same file, read otherwise"


def test_the_newest_run_of_a_seed_is_taken(tmp_path: Path) -> None:
    planted(tmp_path / "a", 7.0, "2026-01-02")
    planted(tmp_path / "b", 8.0, "2026-01-01")
    planted(tmp_path / "c", 9.0, "2026-01-01", seed=1)
    row = row_runs(find_records(tmp_path), A1, "valid")
    assert row.values("perplexity") == [7.0, 9.0]
    assert row.notes == [f"{A1}, seed 0: the newest is taken, {tmp_path}/a; not {tmp_path}/b"]


def test_a_newer_run_that_is_incomplete_replaces_nothing(tmp_path: Path) -> None:
    planted(tmp_path / "a", 7.0, "2026-01-01")
    config = planted_config(A1)
    plant(tmp_path / "b", config, scores(config, "valid", 8.0, time="2026-01-02"), steps=config["steps"] - 1)
    row = row_runs(find_records(tmp_path), A1, "valid")
    assert (row.values("perplexity"), row.notes) == ([7.0], [])


def test_a_record_and_its_own_run_are_one(tmp_path: Path) -> None:
    run = planted(tmp_path / "run", 7.0)
    write_record(tmp_path / "A1.jsonl", run)
    row = row_runs(find_records(tmp_path), A1, "valid")
    assert (row.values("perplexity"), row.notes) == ([7.0], [])


def write_record(path: Path, run: Path, **changes: Any) -> None:
    """Adds the record of a run to a file of records, by the file's name."""
    config = json.loads((run / "config.json").read_text())
    (evaluation,) = (json.loads(file.read_text()) for file in (run / "evaluations").glob("*.json"))
    training = {"steps": config["steps"], "minutes": 60.0, "validations": []}
    record = {"config": config, "evaluation": evaluation, "training": training}
    record |= json.loads((run / "run.json").read_text())
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"name": path.stem, **record, "caveats": [], **changes}) + "\n")


@pytest.mark.parametrize(
    ("file", "keys", "value", "message"),
    [
        ("config.json", ("data", "lowercase"), None, "data.lowercase is None; it must be true or false, like False"),
        ("evaluations/valid-0.json", ("sacrebleu",), -1.0, "sacrebleu is -1.0; it must be at least 0"),
        ("evaluations/valid-0.json", ("chrf",), float("nan"), "chrf is nan; it must be at least 0"),
        ("evaluations/valid-0.json", ("chrf_pp",), float("nan"), "chrf_pp is nan; it must be at least 0"),
    ],
)
def test_values_that_no_run_has_leave_it_out(
    tmp_path: Path, file: str, keys: tuple[str, ...], value: object, message: str
) -> None:
    path = planted(tmp_path / "run", 7.0) / file
    content = json.loads(path.read_text())
    inside = content
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    path.write_text(json.dumps(content))
    records = find_records(tmp_path)
    assert (records.runs, records.notes) == ([], [f"left out: {path}: damaged: {message}"])


def test_a_record_that_is_written_twice_replaces_its_line_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.jsonl"
    for name, value in (("b", 1), ("c", 2), ("a", 3), ("b", 4)):
        save(path, {"name": name, "schläft": value})
    assert path.read_text(encoding="utf-8").splitlines() == [
        '{"name":"a","schläft":3}',
        '{"name":"b","schläft":4}',
        '{"name":"c","schläft":2}',
    ]


def test_a_damaged_file_of_records_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text('{"name":"a"}\n{"name":\n')
    with pytest.raises(UserError, match=r"table\.jsonl: damaged in line 2, not JSON"):
        save(path, {"name": "b"})
    assert path.read_text() == '{"name":"a"}\n{"name":\n'


def test_a_file_of_records_with_a_damaged_line_is_left_out_with_a_note(tmp_path: Path) -> None:
    write_record(tmp_path / "fine.jsonl", planted(tmp_path / "run", 7.0))
    broken = tmp_path / "broken.jsonl"
    write_record(broken, planted(tmp_path / "run1", 8.0, seed=1))
    with broken.open("a") as file:
        file.write("{nonsense}\n")
    write_record(broken, planted(tmp_path / "run2", 9.0, seed=2))
    records = find_records(tmp_path)
    assert {run.record for run in records.runs} == {"", "fine"}
    (note,) = records.notes
    assert note.startswith(f"left out: {broken}: damaged in line 2, not JSON (") and "\n" not in note


def test_records_are_read_from_several_folders(tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        write_record(tmp_path / name / f"{name}.jsonl", planted(tmp_path / "runs" / name, 7.0, seed=seed))
    found = find_records(tmp_path / "one", tmp_path / "two")
    assert [run.record for run in found.runs] == ["one", "two"]
    assert row_runs(found, A1, "valid").values("perplexity") == [7.0, 7.0]


@pytest.mark.parametrize("path", sorted((ROOT / "paper" / "records").glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_committed_file_of_records_is_as_it_would_be_written(tmp_path: Path, path: Path) -> None:
    check_that_it_is_as_written(path, tmp_path / path.name)


def check_that_it_is_as_written(path: Path, copy: Path) -> None:
    """Checks that a file of records stays the same, byte for byte, when one of them is saved again."""
    copy.write_bytes(path.read_bytes())
    save(copy, read_json_lines(copy, dict)[-1])
    assert copy.read_bytes() == path.read_bytes()


def missing(folder: Path) -> tuple[str, list[str]]:
    row = row_runs(find_records(folder), A1, "valid")
    assert row.scored == []
    return row.missing, row.notes


def test_nothing_is_missing_without_a_run(tmp_path: Path) -> None:
    assert missing(tmp_path) == ("", [])


def test_an_unfinished_run_says_how_far_it_came(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", planted_config(A1), steps=100)
    what, notes = missing(tmp_path)
    steps = planted_config(A1)["steps"]
    assert what == "unfinished"
    assert notes == [f"{A1}, seed 0: unfinished (100 of {steps} updates), {run}"]


@pytest.mark.parametrize(("validated", "expected"), [(11, [40.0]), (10, [])])
def test_a_run_whose_patience_has_ended_has_made_all_of_its_updates(
    tmp_path: Path, validated: int, expected: list[float]
) -> None:
    name = "configs/multi30k_published.py"
    config = planted_config(name)
    assert config["eval"]["patience"] == 10
    ends = [60 * epoch for epoch in range(1, validated + 1)]
    last = scores(config, "test", 40.0, step=ends[-1], checkpoints=ends[-10:])
    run = plant(tmp_path / "run", config, last, steps=ends[-1] - 5, validations=[(step, 9.0) for step in ends])
    whole = [(60 * epoch, 9.0) for epoch in range(1, 12)]
    record = make_record(plant(tmp_path / "whole", config, last, steps=whole[-1][0] - 5, validations=whole))
    record["training"] |= {"steps": ends[-1], "validations": record["training"]["validations"][:validated]}
    recorded = recorded_run(tmp_path / "seeds.jsonl", {"name": "seed0", **record})
    for found in (read_run(run), recorded):
        assert found.steps == ends[-1]
        row = row_runs(Records([found], [], [], []), name, "test")
        assert row.values("sacrebleu") == expected
        assert row.missing == ("" if expected else "unfinished")
    del record["training"]["validations"][0]["nll"]
    with pytest.raises(UserError, match=r"seeds.jsonl: damaged: .*nll"):
        recorded_run(tmp_path / "seeds.jsonl", {"name": "seed0", **record})


@pytest.mark.parametrize(
    ("changes", "checkpoints", "expected"),
    [
        ({}, [280, 300, 320, 340, 360, 370], []),
        ({}, [320, 333, 340, 360, 370], [40.0]),  # stopped and resumed at 333
        ({}, [300, 320, 340, 360, 370], [40.0]),
        ({"eval__patience": 2}, [300, 320, 340, 360, 370], []),  # which could have ended it sooner
        ({"checkpoint__every": 5}, [350, 355, 360, 365, 370], []),
        ({"cpu_bfloat16": True}, [300, 320, 340, 360, 370], [40.0]),
    ],
)
def test_a_row_has_its_own_patience_and_averages_its_own_checkpoints(
    tmp_path: Path, changes: dict[str, Any], checkpoints: list[int], expected: list[float]
) -> None:
    name = "configs/quickstart.py"
    config = planted_config(name, **changes)
    assert (planted_config(name)["steps"], planted_config(name)["checkpoint"]["every"]) == (370, 20)
    plant(tmp_path / "run", config, scores(config, "test", 40.0, checkpoints=checkpoints))
    assert row_runs(find_records(tmp_path), name, "test").values("sacrebleu") == expected


def test_a_run_that_never_began_is_unfinished(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(planted_config(A1)))
    assert missing(tmp_path)[0] == "unfinished"


def test_a_point_of_a_sweep_that_failed_says_why(tmp_path: Path) -> None:
    plant(tmp_path / "point", planted_config(A1), steps=100)
    results = tmp_path / "sweep" / "results"
    results.mkdir(parents=True)
    (results / "point.json").write_text(json.dumps({"state": "failed", "reason": "update 101: the loss is nan"}))
    what, notes = missing(tmp_path)
    assert what == "failed"
    assert notes == [f"{A1}, seed 0: failed (update 101: the loss is nan), {tmp_path}/point"]


@pytest.mark.parametrize(
    "changes",
    [
        {"split": "test"},
        {"beam": 5},
        {"alpha": 1.0},
        {"extra_length": 9},
        {"checkpoints": [1, 2]},
        {"checkpoints": [1]},
        {"data": "text:x"},
        {"length_penalty": "power"},
        {"stopping": "full"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_evaluation_made_otherwise_does_not_count(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = planted_config(A1)
    plant(tmp_path / "run", config, {**scores(config, "valid", 7.0), **changes})
    what, notes = missing(tmp_path)
    assert what == "not evaluated on valid"
    assert "no evaluation of valid with --checkpoint=latest, beam 4 and alpha 0.6 (gnmt, exact)" in notes[0]


def test_an_evaluation_that_does_not_say_its_length_penalty_has_its_runs(tmp_path: Path) -> None:
    config = planted_config(A1, decode__length_penalty="power")
    plant(tmp_path / "run", config, scores(config, "valid", 7.0))
    assert missing(tmp_path)[0] == "not evaluated on valid"


def test_an_evaluation_that_does_not_say_its_stopping_is_exact(tmp_path: Path) -> None:
    config = planted_config(A1, decode__stopping="full")
    plant(tmp_path / "run", config, scores(config, "valid", 7.0))
    assert len(row_runs(find_records(tmp_path), A1, "valid").scored) == 1


def test_an_average_must_be_of_as_many_checkpoints() -> None:
    config = planted_config("configs/base.py:en-de:small")
    whole = scores(config, "test", 7.0)
    assert len(whole["checkpoints"]) == 5
    assert fits(whole, config, "test", config["steps"])
    assert not fits(whole, config, "test", config["steps"] - 1)
    assert not fits({**whole, "checkpoints": whole["checkpoints"][1:]}, config, "test", config["steps"])
    for choice, same in [("average:5", True), ("average-best:5", False), ("average:5@10", False)]:
        assert fits({**whole, "checkpoint": choice}, config, "test", config["steps"]) is same


def test_what_cannot_be_read_is_left_out_with_a_note(tmp_path: Path) -> None:
    planted(tmp_path / "run", 7.0)
    broken = planted(tmp_path / "broken", 8.0, seed=1)
    (broken / "config.json").write_text("{")
    other = planted(tmp_path / "other", 9.0, seed=2)
    (other / "metrics.jsonl").write_text("{nonsense}\n")
    (tmp_path / "record.json").write_text("no")
    (tmp_path / "list.json").write_text("[]")
    found = find_records(tmp_path)
    assert row_runs(found, A1, "valid").values("perplexity") == [7.0]
    assert [note.partition(": damaged")[0].partition("left out: ")[2] for note in found.notes] == [
        str(tmp_path / "record.json"),
        str(broken / "config.json"),
        str(other / "metrics.jsonl"),
    ]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--runs=.*nowhere: there is no such folder"):
        find_records(tmp_path / "nowhere")


def test_reports_of_the_compiler_are_found(tmp_path: Path) -> None:
    (tmp_path / "aot").mkdir()
    lines = (ROOT / "paper" / "records" / "compiled.jsonl").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith('{"name":"base-v5e-2x2",'))
    (tmp_path / "aot" / "x.jsonl").write_text(f"{line}\n")
    report = json.loads(line)["report"]
    assert find_records(tmp_path) == Records([], [{**report, "config": with_defaults(report["config"])}], [], [])


DAMAGE = [
    ("config.json", [], "it is [1, 2]; it must be an object"),
    ("config.json", ["seed"], "seed is [1, 2]; it must be a whole number"),
    ("config.json", ["data", "train"], "data.train is [1, 2]; it must be text"),
    ("run.json", [], "it is [1, 2]; it must be an object"),
    ("run.json", ["launches"], "launches[0] is 1; it must be an object"),
    ("run.json", ["launches", 0, "git"], "[0] is [1, 2]; it must be an object"),
    ("run.json", ["launches", 0, "device", "cpus"], "[0].device.cpus is [1, 2]; it must be a whole number"),
    ("evaluations/valid-0.json", [], "it is [1, 2]; it must be an object"),
    ("evaluations/valid-0.json", ["sacrebleu"], "sacrebleu is [1, 2]; it must be a number"),
    ("evaluations/valid-0.json", ["perplexity"], "perplexity is -1; it must be above 0"),
    ("evaluations/valid-0.json", ["checkpoints"], 'checkpoints[0] is "x"; it must be a whole number'),
    ("evaluations/valid-0.json", ["time"], "time is [1, 2]; it must be text"),
]


def put(path: Path, keys: list[Any], value: Any) -> None:
    """Replaces what is at `keys` in a JSON file, or all of it."""
    content = json.loads(path.read_text()) if keys else value
    place = content
    for key in keys[:-1]:
        place = place[key]
    if keys:
        place[keys[-1]] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(("file", "keys", "wrong"), DAMAGE, ids=lambda value: str(value))
def test_a_damaged_run_is_one_line_and_the_others_go_on(tmp_path: Path, file: str, keys: list[Any], wrong: str) -> None:
    planted(tmp_path / "fine", 7.0)
    broken = planted(tmp_path / "broken", 8.0, seed=1)
    values = {"checkpoints": ["x"], "perplexity": -1}
    put(broken / file, keys, values.get(keys[-1], [1, 2]) if keys else [1, 2])
    records = find_records(tmp_path)
    assert row_runs(records, A1, "valid").values("perplexity") == [7.0]
    (note,) = records.notes
    assert note.startswith(f"left out: {broken}/{file}: damaged") and wrong in note and "\n" not in note


@pytest.mark.parametrize(
    "line",
    [
        b"[1, 2]",
        b"{}",
        b"\xff\xfe\x00",
        b'{"step": "1", "kind": "train", "seconds": 1}',
        b'{"step": 1, "kind": "train"}',
        b'{"step": 1, "kind": "valid", "perplexity": "x"}',
    ],
)
def test_a_damaged_line_of_metrics_is_named(tmp_path: Path, line: bytes) -> None:
    broken = planted(tmp_path, 8.0)
    with (broken / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl: damaged in line 5"):
        read_run(broken)


def test_every_committed_record_holds_what_a_run_folder_is_checked_for() -> None:
    """Nobody edits a record, so nothing checks it when it is read: this does, once."""
    assert sum(map(check_records, (ROOT / "paper" / "records").glob("*.jsonl"))) > 90


def check_records(path: Path) -> int:
    """Checks the records of runs in a file as a run's folder is checked; returns how many there are."""
    recorded = [content for content in read_json_lines(path, {"name": str}) if "evaluation" in content]
    for content in recorded:
        name = content["name"]
        check(path, name, content, {"config": CONFIG, "launches": [LAUNCH], "training": TRAINING, "caveats": [str]})
        kinds = SCORES.keys() & content["evaluation"].keys()
        assert kinds, name
        for kind in kinds:  # BLEU by length comes with BLEU
            check(path, name, content["evaluation"], EVALUATION | SCORES[kind])
        assert content["evaluation"].get("perplexity", 1.0) > 0 and content["training"]["minutes"] > 0, name
    assert len({content["name"] for content in recorded}) == len(recorded)
    return len(recorded)


@pytest.mark.parametrize(
    ("keys", "value", "wrong"),
    [
        (["task"], {}, "task is missing"),
        (["model", "N"], {}, "model.N is missing"),
        (["model"], 3, "there is no key model;"),
        (["model", "heads"], 3, "there is no key model.heads"),
    ],
    ids=str,
)
def test_a_config_with_other_keys_than_there_are_leaves_the_run_out(
    tmp_path: Path, keys: list[Any], value: Any, wrong: str
) -> None:
    run = planted(tmp_path / "run", 7.0)
    put(run / "config.json", keys, value)
    records = find_records(tmp_path)
    (note,) = records.notes
    assert records.runs == []
    assert note.startswith(f"left out: {run}/config.json: damaged: {wrong}")


def test_an_evaluation_without_checkpoints_does_not_count(tmp_path: Path) -> None:
    config = planted_config(A1)
    plant(tmp_path / "run", config, {**scores(config, "valid", 7.0), "checkpoints": []})
    assert missing(tmp_path)[0] == "not evaluated on valid"


def test_other_files_among_the_evaluations_are_passed_over(tmp_path: Path) -> None:
    run = planted(tmp_path / "run", 7.0)
    (run / "evaluations" / "heads.json").write_text('{"roles": {}}')
    assert values(tmp_path) == [7.0]
    assert [one.lines.name for one in read_run(run).evaluations] == ["valid-0.txt"]


GOOD = {"commit": head(), "dirty": False}


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        ([GOOD], []),
        ([GOOD, GOOD], []),
        ([], [provenance.UNKNOWN]),
        ([None], [provenance.UNKNOWN]),
        ([GOOD, {**GOOD, "dirty": True}], [provenance.DIRTY]),
        ([{**GOOD, "commit": "1" * 40}], [provenance.UNREACHABLE]),
        ([{**GOOD, "commit": "HEAD"}], [provenance.UNREACHABLE]),
        ([GOOD, {**GOOD, "commit": "1" * 40}], [provenance.UNREACHABLE, provenance.SEVERAL]),
    ],
    ids=str,
)
def test_caveats_are_what_keeps_the_code_from_being_checked_out(launches: list[Any], expected: list[str]) -> None:
    if provenance.UNREACHABLE in expected and not provenance.history_is_known():
        pytest.skip("no git checkout, or a shallow one")
    assert provenance.caveats([{"git": git} for git in launches]) == expected


def test_a_row_of_a_dirty_run_is_marked_and_the_note_says_why(tmp_path: Path) -> None:
    put(planted(tmp_path / "run", 7.0) / "run.json", ["launches", 0, "git", "dirty"], True)
    row = row_runs(find_records(tmp_path), A1, "valid")
    assert row.label("A1") == "A1 †"
    one_seed, dagger = caveat_notes({"A1": row, "A2": row})
    assert dagger == "† the code had uncommitted changes: A1, A2"
    assert one_seed == "one seed, so no interval, and no difference is shown to be significant: A1, A2"
    assert caveat_notes({"A1": row._replace(scored=row.scored * 2)}) == ["† the code had uncommitted changes: A1"]
    assert all("A1 †" in {cells[0] for cells in table.rows} for table in [table3.small(find_records(tmp_path))])


@pytest.mark.parametrize("name", ["sweep", "evaluations", "checkpoints"])
def test_a_folder_of_runs_may_have_any_name(tmp_path: Path, name: str) -> None:
    planted(tmp_path / name / "run", 7.0)
    assert values(tmp_path) == [7.0]
    of_sweep = tmp_path / name / "sweep"
    of_sweep.mkdir()
    for file in ("plan.json", "config.json"):  # of the sweep itself: not read
        (of_sweep / file).write_text("[")
    assert find_records(tmp_path).notes == []


def test_the_newest_record_of_table_1_is_the_last(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for path, time in (("table1.json", "2026-02-01"), ("old/table1.json", "2026-01-01")):
        record = {"types": {}, "crossovers": {}, "paths_at": {}, "time": time}
        (tmp_path / path).write_text(json.dumps(record))
    assert [record["time"] for record in find_records(tmp_path).layers] == ["2026-01-01", "2026-02-01"]


@pytest.mark.parametrize("files", ["text:/corpora/{}.{{en,de}}", "parquet:/corpora/{}-*.parquet:{{en,de}}"])
def test_a_run_that_read_files_in_the_place_of_a_rows_corpus_is_noted(tmp_path: Path, files: str) -> None:
    config = planted_config("configs/base.py")
    config["data"] |= {"train": files.format("train"), "valid": files.format("valid")}
    plant(tmp_path / "own", config, scores(config, "test", 27.0))
    other = planted_config("configs/base.py", optim__warmup=7)
    other["data"] |= config["data"]
    plant(tmp_path / "other", other, scores(other, "test", 27.0))
    row = row_runs(find_records(tmp_path), "configs/base.py", "test")
    (note,) = row.notes
    assert not row.scored
    assert note.startswith(f"configs/base.py: {tmp_path / 'own'} does not count; it read {files.format('train')}")


def test_a_run_of_wmt14s_parquet_copy_is_of_the_row(tmp_path: Path) -> None:
    config = planted_config("configs/base.py")
    for split, part in (("train", "train"), ("valid", "validation"), ("test", "test")):
        config["data"][split] = f"parquet:/corpora/wmt14/de-en/{part}-*.parquet:{{en,de}}"
    plant(tmp_path / "copy", config, scores(config, "test", 27.0))
    row = row_runs(find_records(tmp_path), "configs/base.py", "test")
    assert row.values("sacrebleu") == [27.0]


def test_a_link_to_a_run_is_found(tmp_path: Path) -> None:
    config = planted_config(A1)
    plant(tmp_path / "disk" / "moved", config, scores(config, "valid", 7.0))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one").symlink_to(tmp_path / "disk" / "moved")
    (tmp_path / "runs" / "disk").symlink_to(tmp_path / "disk")
    assert [run.path for run in find_records(tmp_path / "runs").runs] == [tmp_path / "runs" / "one"]


def test_a_record_on_a_line_without_an_end_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"name":"a"}\n{"name":"b"}')
    with pytest.raises(UserError, match=r"runs\.jsonl: its last line has no end"):
        save(path, {"name": "c"})
    assert path.read_text() == '{"name":"a"}\n{"name":"b"}'
