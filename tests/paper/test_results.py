"""Result records become the tables of the README and of docs/results.md, and nothing else does."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.planted import head, plant, planted_config, scores
from vaswani.errors import UserError
from vaswani.paper import provenance, results
from vaswani.paper.provenance import DIRTY
from vaswani.paper.records import PARSING, find_records, read_run, save
from vaswani.paper.rows import row_runs
from vaswani.paper.tables.paired import read_lines_of
from vaswani.run import folder

ROOT = Path(__file__).parent.parent.parent
A1 = "configs/ablations.py:A1:small"


@pytest.mark.slow
def test_the_pages_show_the_committed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for page, text in results.pages(find_records(results.RECORDS)).items():
        assert page.read_text(encoding="utf-8") == text, "run python -m paper.results"


def test_the_words_of_the_tables_have_no_typed_number() -> None:
    """Counts stand in the generated notes; names of rows, tables and sections, and commands, may have digits."""
    words, _, rest = (ROOT / results.TABLES).read_text(encoding="utf-8").partition(results.BEGIN)
    words += rest.partition(results.END)[2]
    words = re.sub(r"(?s)<!-- lockstep: .*?<!-- end of lockstep -->", "", words)  # generated, too
    words = re.sub(r"`[^`]*`|\bTables? \d( to \d)?|\bsection [\d.]*\d|\b[A-E]\d\b", "", words)
    assert re.findall(r".*\d.*", words) == []


def test_a_run_without_an_evaluation_makes_no_record(tmp_path: Path) -> None:
    plant(tmp_path / "run", planted_config(A1))
    with pytest.raises(UserError, match=r"no evaluation of the test split; run python -m infer"):
        results.make_record(tmp_path / "run")
    with pytest.raises(UserError, match=r"no evaluation of the valid split; run .* --split=valid"):
        results.make_record(tmp_path / "run", "valid")


def launch(run: Path, **changes: Any) -> None:
    """Changes the only launch of a planted run."""
    (one,) = json.loads((run / "run.json").read_text())["launches"]
    (run / "run.json").write_text(json.dumps({"launches": [{**one, **changes}]}))


def test_a_record_holds_the_newest_evaluation_and_the_last_update(tmp_path: Path) -> None:
    config = planted_config(A1, seed=3)
    times = {"test": ("2026-01-01", "2026-01-03", "2026-01-02"), "valid": ("2026-01-03",)}
    evaluations = [scores(config, split, 7.0, time=time) for split in times for time in times[split]]
    run = plant(tmp_path / "run", config, *evaluations, hours=0.5)
    manifest = {"pairs": {"kept": 1}, "tokens": {"source": 2}, "sha256": {"x": "y"}}
    command = ["a", "--config.seed=3", "--workdir=/mine/runs/x"]
    launch(run, data={"train": {**manifest, "folder": "/not/kept"}}, command=command)
    (run / "evaluations" / "test-1.txt").write_bytes(b"Der Hund\n")
    record = results.make_record(run)
    assert record["evaluation"] == evaluations[1]  # neither the first nor the last by name
    assert record["translations_sha256"] == hashlib.sha256(b"Der Hund\n").hexdigest()
    assert record["caveats"] == []
    training = record["training"]
    assert (training["steps"], training["minutes"]) == (config["steps"], 30.0)
    assert [one["step"] for one in training["validations"]] == [config["steps"] // part for part in (4, 2, 1)]
    assert results.make_record(run, "valid")["evaluation"]["time"] == "2026-01-03"
    assert (record["launches"][0]["data"], record["launches"][0]["command"]) == (
        {"train": manifest},
        ["a", "--config.seed=3"],
    )
    trees = {**scores(config, "test", 1.0, time="2026-01-04"), "f1": 1.0, **dict.fromkeys(PARSING, 1.0)}
    (run / "evaluations" / "parse-test-d.json").write_text(json.dumps(trees))
    assert results.make_record(run)["evaluation"]["time"] == "2026-01-04"


def write(run: Path, name: str, split: str = "test", *, allow_dirty: bool = False) -> None:
    """Writes the record NAME of a run into its file."""
    save(results.file_of(name), {"name": name, **results.make_record(run, split, allow_dirty=allow_dirty)})


def test_a_run_whose_code_is_lost_is_refused_or_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = planted_config(A1)
    run = plant(tmp_path / "run", config, scores(config, "test", 7.0))
    launch(run, git={"commit": head(), "dirty": True})
    with pytest.raises(UserError, match=r"run: not recorded, since the code had uncommitted changes; commit and train"):
        results.make_record(run)
    monkeypatch.chdir(tmp_path)
    write(run, "x", allow_dirty=True)
    (found,) = find_records(results.RECORDS).runs
    assert found.caveats == [DIRTY]
    text = results.table(results.translation_records([found]))
    assert "| [x](../paper/records/runs.jsonl) † | 7.00 |" in text
    assert "- † the code had uncommitted changes: x" in text


def test_a_run_of_lower_cased_text_has_no_reading_with_case(tmp_path: Path) -> None:
    config = planted_config(A1)
    config["data"]["lowercase"] = True
    found = scores(config, "test", 7.0)
    found["signatures"] = {"sacrebleu": "case:mixed", "bleu_tok_lc": "case:lc"}
    text = results.table({"x": read_run(plant(tmp_path / "x", config, found))})
    heads, row = (text.splitlines()[line].split(" | ") for line in (0, 2))
    assert row[heads.index("sacreBLEU")] == "" and row[heads.index("tokenised, lower-cased")] != ""
    assert "case:lc" in text and "case:mixed" not in text


def test_a_launch_carries_what_a_record_needs(tmp_path: Path) -> None:
    folder.record_launch(tmp_path, {"train": {"pairs": {}, "tokens": {}, "sha256": {}}}, 0)
    config = planted_config(A1)
    (tmp_path / "run.json").replace(plant(tmp_path / "run", config, scores(config, "test", 7.0)) / "run.json")
    device = results.make_record(tmp_path / "run", allow_dirty=True)["launches"][0]["device"]
    assert device["cpu"] and device["cpu"] == device["cpu"].strip()
    if "model name" in (text := Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""):
        assert device["cpu"] in text


def test_damaged_manifests_are_one_line(tmp_path: Path) -> None:
    config = planted_config(A1)
    run = plant(tmp_path / "run", config, scores(config, "test", 7.0))
    launch(run, data={"train": {"pairs": 3, "tokens": {}, "sha256": {}}})
    with pytest.raises(UserError, match=r"run.json: damaged in data: train.pairs is 3; it must be an object"):
        results.make_record(run)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["results", "figures"])
def test_a_url_is_not_made_a_folder(module: str) -> None:
    flag = "--name=x" if module == "results" else "--output=s3://bucket/x"
    command = [sys.executable, "-m", f"paper.{module}", "--workdir=s3://bucket/run", flag]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert re.match(r"error: --(workdir|output)=s3://bucket/\w+: this is a URL; only gs:// and mounted", done.stderr)


def test_a_damaged_record_stops_the_pages_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results.RECORDS.mkdir(parents=True)
    (results.RECORDS / "runs.jsonl").write_text("{}\nno\n")
    with pytest.raises(UserError, match=r"^paper/records/runs.jsonl: damaged in line 2, not JSON"):
        results.pages(find_records(results.RECORDS))


def test_a_record_of_a_table_is_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = planted_config(A1)
    run = plant(tmp_path / "run", config, scores(config, "valid", 7.0))
    monkeypatch.chdir(tmp_path)
    write(run, "table3-small/A1-seed0", "valid")
    records = find_records(results.RECORDS)
    (one,) = row_runs(records, A1, "valid").scored
    assert (one.run.path, one.run.record) == (results.RECORDS / "table3-small.jsonl", "table3-small/A1-seed0")
    assert one.scores == scores(config, "valid", 7.0)
    assert [record["step"] for record in one.run.validations] == [config["steps"] // part for part in (4, 2, 1)]
    assert read_lines_of(one) is None
    assert results.translation_records(records.runs) == {}, "the README shows what is in runs.jsonl"


def test_an_evaluation_of_a_run_has_its_translations(tmp_path: Path) -> None:
    config = planted_config(A1)
    run = plant(tmp_path / "run", config, scores(config, "valid", 7.0))
    (run / "evaluations" / "valid-0.txt").write_text("Der Hund schläft.\n", encoding="utf-8")
    (one,) = row_runs(find_records(tmp_path), A1, "valid").scored
    assert read_lines_of(one) == ["Der Hund schläft."]
    one.lines.write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"valid-0.txt: damaged, not UTF-8"):
        read_lines_of(one)


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
    config = planted_config("configs/parsing.py:small")
    trees = {key: value for key, value in scores(config, "test", 1.0).items() if key != "sacrebleu"}
    run = plant(tmp_path / "run", config, {**trees, **dict.fromkeys(PARSING, 1.0)})
    write(run, "parsing")
    records = find_records(results.RECORDS)
    assert len(records.runs) == 1 and records.notes == []
    assert results.translation_records(records.runs) == {}


def test_the_repository_around_an_installed_copy_is_not_the_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=x"], check=True)
    installed = tmp_path / ".venv" / "vaswani"
    (installed / "run").mkdir(parents=True)
    monkeypatch.setattr(folder, "_ROOT", installed)
    assert folder.git() is None
    monkeypatch.setattr(provenance, "ROOT", installed)
    assert not provenance.history_is_known()


def test_a_run_whose_training_has_not_ended_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = planted_config(A1)
    run = plant(tmp_path / "run", config, scores(config, "test", 7.0, checkpoints=[10]), steps=10)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"run: not recorded, since its training has not ended: unfinished \(10 of"):
        write(run, "x", allow_dirty=True)
    assert not results.RECORDS.exists()


@pytest.mark.parametrize(("workdir", "name"), [(None, None), ("run", "x")])
def test_records_are_made_in_the_projects_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workdir: str | None, name: str | None
) -> None:
    from types import SimpleNamespace

    config = planted_config(A1)
    plant(tmp_path / "run", config, scores(config, "test", 7.0))
    given = {"workdir": workdir, "name": name, "split": "test", "allow_dirty": True}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "flags", SimpleNamespace(FLAGS=SimpleNamespace(**given)))
    with pytest.raises(UserError, match=r"README\.md: there is no such file here; run it in the project's folder"):
        results.main(["paper.results"])
    assert not results.RECORDS.exists()


def test_a_record_names_files_from_the_home_or_from_beside_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it names no folder of one machine, and may be read on another one."""
    for name in ("mine", "place/project"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path / "place/project")
    config = planted_config(A1)
    config["data"]["train"] = f"text:{tmp_path}/place/data/train.{{en,de}}"
    config["data"]["valid"] = f"tsv:{tmp_path}/mine/valid.tsv"
    config["data"]["test"] = f"tsv:/mnt{tmp_path}/place/test.tsv"
    run = plant(tmp_path / "run", config, scores(config, "test", 7.0))
    launch(run, command=["a", f"--config=x.py:{tmp_path}/place/data"])
    record = results.make_record(run)
    read = record["config"]["data"]
    assert (read["train"], read["valid"]) == ("text:../data/train.{en,de}", "tsv:~/valid.tsv")
    assert read["test"] == record["evaluation"]["data"] == f"tsv:/mnt{tmp_path}/place/test.tsv"
    assert record["launches"][0]["command"] == ["a", "--config=x.py:../data"]
