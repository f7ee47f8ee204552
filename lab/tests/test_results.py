"""The records of the studies become the lab's tables and figures, and nothing else does."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lab import results
from lab.studies.index import studies
from tests.conftest import ROOT
from tests.paper.test_records import check_records, check_that_it_is_as_written
from tests.planted import plant, planted_config, scores
from vaswani.errors import UserError
from vaswani.paper.published import TABLE3
from vaswani.paper.records import Records, find_records
from vaswani.paper.results import RECORDS, record_runs
from vaswani.paper.rows import row_runs

ATTENTION = "lab/studies/layers/design.py:attention"
MADE_BY = re.compile(r"Matplotlib v[\d.]+")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


@pytest.mark.slow
def test_the_pages_show_the_committed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = results.pages(find_records(RECORDS, results.FOLDER))
    assert made.keys() == {results.TABLES, results.CLAIMS, results.BLEU}
    for page, text in made.items():
        assert page.read_text(encoding="utf-8") == text, "run python -m lab.results"


@pytest.mark.slow
def test_the_figures_show_the_committed_records(tmp_path: Path) -> None:
    drawn = sorted(results.draw(find_records(ROOT / RECORDS, ROOT / results.FOLDER), tmp_path))
    committed = sorted((ROOT / results.FOLDER).glob("*/figure.svg"))
    names = [file.parent.name for file in drawn]
    assert [file.parent.name for file in committed] == names, "run python -m lab.results"
    drawn_by = {version for file in committed for version in MADE_BY.findall(file.read_text())}
    here = {version for file in drawn for version in MADE_BY.findall(file.read_text())}
    if drawn_by != here:
        pytest.skip(f"another Matplotlib draws otherwise: the figures are of {drawn_by}, and here is {here}")
    for name, *files in zip(names, committed, drawn, strict=True):
        shown, expected = (path.read_text() for path in files)
        assert NUMBER.split(shown) == NUMBER.split(expected), "run python -m lab.results"
        places = [np.array(NUMBER.findall(text), float) for text in (shown, expected)]
        np.testing.assert_allclose(*places, atol=0.01, err_msg=name)


KEYS_THAT_ARE_WORDS = {"attention", "convolution", "additive", "learned", "T5"}


@pytest.mark.parametrize("name", [path.parent.name for path in sorted((ROOT / results.FOLDER).glob("*/figure.svg"))])
def test_a_figure_names_rows_in_words(name: str) -> None:
    """Matplotlib writes each text of a figure as a comment, too."""
    texts = set(re.findall("<!-- (.*?) -->", (ROOT / results.FOLDER / name / "figure.svg").read_text()))
    rows = studies()[name].rows(Records([], [], [], []))
    keys = {
        part for row in rows if " " not in row for part in (row, *re.split("[-:]", row)) if re.search("[a-zA-Z]", part)
    }
    if name == "second":  # its rows are called as in the paper's table
        keys -= set(TABLE3)
    found = {text for text in texts & keys if re.search("[a-zA-Z]", text)}
    assert texts and found <= KEYS_THAT_ARE_WORDS
    assert not [text for text in texts if "_" in text and "$" not in text]


OWN = ("public_logs", "bleu", "dropout")  # studies whose lines are a run's own file
FILES = [path for path in sorted((ROOT / results.FOLDER).glob("*/records.jsonl")) if path.parent.name not in OWN]


def test_a_study_that_has_not_run_has_no_figure(tmp_path: Path) -> None:
    assert results.draw(Records([], [], [], []), tmp_path / "figures") == []


def test_the_words_of_the_tables_have_no_typed_number() -> None:
    """Counts stand in the generated notes."""
    words, _, rest = (ROOT / results.TABLES).read_text(encoding="utf-8").partition(results.BEGIN)
    words += rest.partition(results.END)[2]
    words = re.sub(r"`[^`]*`|\bTables? \d( to \d)?|\bsection [\d.]*\d|\b[A-E]\d\b", "", words)
    assert re.findall(r".*\d.*", words) == []


def test_every_committed_record_holds_what_a_run_folder_is_checked_for() -> None:
    assert sum(map(check_records, FILES)) > 800


def test_every_committed_record_is_in_the_file_that_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = find_records(results.FOLDER)
    assert {run.record for run in found.runs if run.path != results.file_of(run.record)} == set()
    assert found.notes == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_a_committed_file_of_records_is_as_it_would_be_written(tmp_path: Path, path: Path) -> None:
    check_that_it_is_as_written(path, tmp_path / path.name)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the project's, with the study `layers`, which has no records yet."""
    design = tmp_path / results.FOLDER / "layers" / "design.py"
    design.parent.mkdir(parents=True)
    design.write_text("")
    (tmp_path / "README.md").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given(workdir: Path, name: str) -> Any:
    return SimpleNamespace(workdir=str(workdir), name=name, split="test", allow_dirty=False)


def planted(folder: Path, seed: int) -> Path:
    config = planted_config(ATTENTION, seed=seed)
    return plant(folder, config, scores(config, "test", 7.0 + seed))


def test_the_first_record_of_a_study_and_the_next_are_lines_of_its_file(project: Path) -> None:
    for seed in (1, 0):
        run = planted(project / "runs" / str(seed), seed)
        record_runs(given(run, f"layers/attention-seed{seed}"), results.file_of)
    found = find_records(results.FOLDER)
    names = [(run.record, run.path) for run in found.runs]
    file = results.FOLDER / "layers" / "records.jsonl"
    assert names == [("layers/attention-seed0", file), ("layers/attention-seed1", file)]
    assert row_runs(found, ATTENTION, "test").values("sacrebleu") == [7.0, 8.0]


def test_every_point_of_a_sweep_is_recorded_but_for_a_bad_one(project: Path, capsys: pytest.CaptureFixture) -> None:
    for seed in (0, 1):
        planted(project / "runs" / f"seed={seed}", seed)
    bad = plant(project / "runs" / "seed=2", planted_config(ATTENTION, seed=2))
    (project / "runs" / "sweep").mkdir()
    record_runs(given(project / "runs", "layers"), results.file_of)
    assert [run.record for run in find_records(results.FOLDER).runs] == ["layers/seed=0", "layers/seed=1"]
    note = capsys.readouterr().err
    assert note.startswith(f"left out: {bad}: no evaluation of the test split") and note.count("\n") == 1


@pytest.mark.parametrize("is_sweep", [False, True], ids=["run", "sweep"])
def test_a_record_without_a_known_study_is_refused_in_one_line(
    project: Path, capsys: pytest.CaptureFixture, is_sweep: bool
) -> None:
    workdir = project / "runs"
    planted(workdir / "seed=0", 0)
    planted(workdir / "seed=1", 1)
    (workdir / "sweep").mkdir()
    with pytest.raises(UserError) as refused:
        record_runs(given(workdir if is_sweep else workdir / "seed=0", "layer"), results.file_of)
    name = "layer/seed=0" if is_sweep else "layer"
    assert str(refused.value) == f"--name={name}: it must begin with a study, like layers/NAME; they are layers"
    assert capsys.readouterr().err == ""
    assert [path.name for path in (project / results.FOLDER).iterdir()] == ["layers"]


def test_a_damaged_record_stops_the_pages_in_one_line(project: Path) -> None:
    (results.FOLDER / "layers" / "records.jsonl").write_text("{}\nno\n")
    with pytest.raises(UserError, match=r"^lab/studies/layers/records.jsonl: damaged in line 2, not JSON"):
        results.pages(find_records(results.FOLDER))


@pytest.mark.parametrize(
    ("workdir", "name", "error"),
    [
        (None, "layers/x", "--workdir and --name go together"),
        ("runs", None, "--workdir and --name go together"),
        ("runs", "../x", "--name=../x: write, for example, base or table3-small/A1-seed0"),
        ("runs", "layers/../x", "--name=layers/../x: write, for example, base or table3-small/A1-seed0"),
    ],
)
def test_what_names_no_record_is_refused(project: Path, workdir: str | None, name: str | None, error: str) -> None:
    with pytest.raises(UserError) as refused:
        record_runs(SimpleNamespace(workdir=workdir, name=name), results.file_of)
    assert str(refused.value) == error


@pytest.mark.slow
def test_a_url_is_not_made_a_folder() -> None:
    command = [sys.executable, "-m", "lab.results", "--workdir=s3://bucket/run", "--name=layers/x"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: --workdir=s3://bucket/run: this is a URL; only gs:// and mounted")
