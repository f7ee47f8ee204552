"""The command of the lab, from the committed records."""

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab import cards
from lab.command import commands, make
from lab.studies.index import STUDIES, studies
from tests.conftest import ROOT
from vaswani.paper.records import Records, find_records
from vaswani.paper.rows import load
from vaswani.train.table import as_text


def test_every_folder_with_a_study_is_in_the_index() -> None:
    assert {path.parent.name for path in (ROOT / "lab" / "studies").glob("*/study.py")} == {*STUDIES}


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
            seed = re.search(r" --config\.seed=(\d+) && |-seed(\d+)$", command)
            assert seed and int(seed[1] or seed[2]) in counted[study], (study, row, command)
            checked.add(study)
    assert checked == counted.keys()


def test_a_command_that_repeats_a_record_names_one_that_there_is() -> None:
    names = re.findall(r"python -m lab\.reproduce (\S+)", as_text(commands()))
    assert {name.partition("/")[0] for name in names} == {"scan", "scan_length", "distance", "second"}
    known = {run.record for run in find_records(ROOT / "lab" / "studies").runs}
    assert not {*names} - known


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lab", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_command_prints_every_study_of_the_committed_records() -> None:
    done = lab("all", "--csv", "--commands")
    assert (done.returncode, done.stderr) == (0, "")
    blocks = [list(csv.reader(io.StringIO(block))) for block in done.stdout.split("\n\n")]
    assert all(len(row) == len(block[0]) for block in blocks for row in block)
    assert {block[1][0].partition("-")[0] for block in blocks if len(block) > 1} == {*STUDIES, "commands"}


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
        (["layers", "--runs=s3://bucket/runs"], "--runs=s3://bucket/runs: this is a URL; only gs:// and mounted"),
    ],
    ids=["study", "forms", "plot", "runs"],
)
def test_a_mistake_is_one_line(arguments: list[str], error: str) -> None:
    done = lab(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {error}") and done.stderr.count("\n") == 1
