"""The report and the command of the lab, from planted runs and from the committed records."""

import csv
import io
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from lab import cards
from lab.command import commands, make
from lab.studies.index import STUDIES, studies
from tests.conftest import ROOT
from tests.planted import plant, planted_config, scores
from vaswani.paper.records import Records, find_records
from vaswani.paper.report.curves import curves, other_curves
from vaswani.paper.report.report import report
from vaswani.paper.rows import load
from vaswani.table import as_text


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for mixer in ("attention", "recurrent"):
        for seed in (0, 1):
            config = planted_config(f"lab/studies/layers/design.py:{mixer}", seed=seed)
            plant(tmp_path / f"{mixer} {seed}", config, scores(config, "test", 90.0 - seed, perplexity=1.5 + seed))
    plant(tmp_path / "mine", planted_config("configs/quickstart.py"))
    return tmp_path


def page(records: Records) -> str:
    plots = {name: partial(study.plot, records) for name, study in studies().items()}
    rows = {f"Study: {name}": study.rows(records) for name, study in studies().items()}
    return report(make("all", records), records, "there", commands(), plots, rows)


def test_every_folder_with_a_study_is_in_the_index() -> None:
    assert {path.parent.name for path in (ROOT / "lab" / "studies").glob("*/study.py")} == {*STUDIES}


def test_the_report_needs_no_network_and_has_every_study(planted: Path) -> None:
    text = page(find_records(planted))
    assert "from 5 runs in there, 5 of them complete." in text
    headings = re.findall(r'<h2 id="([^"]+)">', text)
    assert {*headings} == {*(name.replace("_", "-") for name in STUDIES), "learning-curves", "to-run-it"}
    assert headings[0] == "layers" and headings[-1] == "to-run-it", "what has run stands before what has not"
    assert "<figcaption>Study: layers</figcaption>" in text and "<figcaption>Study: scan</figcaption>" not in text
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", text)
    assert "url(" not in text.replace("url(#", "")
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)), "two drawings share a name"


def test_a_study_that_has_run_has_its_figure_and_another_has_no_frame_without_a_point(planted: Path) -> None:
    text = page(find_records(planted))
    assert "<img" in text.partition('<h2 id="layers">')[2].partition("<h2 ")[0]
    assert "<img" not in text.partition('<h2 id="second">')[2].partition("<h2 ")[0]


def test_curves_of_a_study_are_together_and_of_other_runs_alone(planted: Path) -> None:
    found = find_records(planted)
    rows = {"Study: layers": studies()["layers"].rows(found)}
    drawn = curves(found, rows)
    assert list(drawn) == ["Study: layers"]
    assert ">attention<" in drawn["Study: layers"] and ">linear<" not in drawn["Study: layers"]
    assert list(other_curves(found, rows)) == [f"{planted}/mine"]


def test_the_cards_have_their_own_heading(planted: Path) -> None:
    found = find_records(planted)
    text = report({"cards": cards.tables(cards.cards(found))}, found, "there", commands())
    assert '<h2 id="cards">Cards</h2>' in text and "Table s" not in text


def test_no_two_tables_of_a_file_have_one_name() -> None:
    empty = Records([], [], [], [])
    for made in (*make("all", empty).values(), cards.tables(cards.cards(empty))):
        names = [table.name for table in made]
        assert len(set(names)) == len(names), names


def test_every_command_names_a_config_that_there_is() -> None:
    names = re.findall(r"--config=((?:configs|lab)/\S+)", as_text(commands()))
    for name in names:
        load(name)


def test_every_row_of_a_study_has_its_command() -> None:
    empty = Records([], [], [], [])
    for name, study in studies().items():
        rows = [row.removesuffix(", one rate") for row, _ in study.commands]
        lacking = {row for row in study.rows(empty) if not any(row == one or row.startswith(f"{one}:") for one in rows)}
        assert not lacking, name


def test_the_folder_of_a_run_has_the_name_of_its_study() -> None:
    found = {row: command for study, row, command in commands().rows if study == "layers"}
    assert re.search(r"design\.py:linear --workdir=runs/layers-linear && .* --split=test$", found["linear"])


def test_the_command_of_a_row_has_a_seed_that_its_study_counts() -> None:
    from lab.studies.distance import design as distance
    from lab.studies.optimisers import design as optimisers
    from lab.studies.two_stages import SEEDS

    counted: dict[str, tuple[int, ...]] = {"distance": distance.SEEDS, "optimisers": optimisers.SEEDS}
    for name in ("second", "bottleneck", "scores", "g2p"):
        counted[name] = SEEDS
    checked: set[str] = set()
    for study, row, command in commands().rows:
        if study in counted and not row.startswith("stage "):
            seed = re.search(r" --config\.seed=(\d+) && ", command)
            assert seed and int(seed[1]) in counted[study], (study, row, command)
            checked.add(study)
    assert checked == counted.keys()


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lab", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_command_prints_every_study_of_the_committed_records(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = lab("all", "--csv", "--commands", f"--html={page}")
    assert (done.returncode, done.stderr) == (0, "")
    blocks = [list(csv.reader(io.StringIO(block))) for block in done.stdout.split("\n\n")]
    assert all(len(row) == len(block[0]) for block in blocks for row in block)
    assert {block[1][0].partition("-")[0] for block in blocks if len(block) > 1} == {*STUDIES, "commands"}
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_the_figure_of_one_study_is_drawn(tmp_path: Path) -> None:
    done = lab("layers", f"--plot={tmp_path}/layers.svg")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "layers.svg").read_text().rstrip().endswith("</svg>")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["layer"], f"layer: give one of {', '.join(STUDIES)}, cards, all; --help explains"),
        (["layers", "--csv", "--markdown"], "--markdown and --csv: give one of them"),
        (["cards", "--plot=x.svg"], f"--plot=x.svg: only a study has a figure to put there: {', '.join(STUDIES)}"),
        (["layers", "--runs=gs://bucket/runs"], "--runs=gs://bucket/runs: this is a URL; only mounted file systems"),
        (["layers", "--html=s3://b/x.html"], "--html=s3://b/x.html: this is a URL; only mounted file systems"),
    ],
    ids=["study", "forms", "plot", "runs", "html"],
)
def test_a_mistake_is_one_line(arguments: list[str], error: str) -> None:
    done = lab(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {error}") and done.stderr.count("\n") == 1
