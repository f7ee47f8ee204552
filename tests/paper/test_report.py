"""The command, from planted runs and from the committed records."""

import csv
import io
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.planted import plant, planted_config, scores
from vaswani.configs.ablations import WHY
from vaswani.errors import UserError
from vaswani.paper import figures
from vaswani.paper.__main__ import TABLES
from vaswani.paper.command import draw, make
from vaswani.paper.launch import commands
from vaswani.paper.records import Records, find_records, newest_with_checkpoints
from vaswani.paper.rows import load
from vaswani.train.table import as_text

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for place, row in enumerate(("base", "A1", "C1")):
        for seed in (0, 1):
            config = planted_config(f"configs/ablations.py:{row}:small", seed=seed)
            plant(tmp_path / f"{row} {seed}", config, scores(config, "valid", 90.0 - place, perplexity=1.0 + place))
    plant(tmp_path / "mine", planted_config("configs/quickstart.py"))
    return tmp_path


def test_figures_are_drawn_by_the_newest_complete_run_that_translates(planted: Path) -> None:
    with pytest.raises(UserError, match="--runs=x: no complete run in it that translates and has its checkpoints"):
        draw(find_records(planted), planted / "figures", "x")
    (planted / "A1 0" / "checkpoints").mkdir()
    config = planted_config("configs/base.py:en-de:small")
    (plant(planted / "z unfinished", config, steps=1) / "checkpoints").mkdir()
    (plant(planted / "text", planted_config("configs/language_model.py")) / "checkpoints").mkdir()
    (plant(planted / "trees", planted_config("configs/parsing.py:small")) / "checkpoints").mkdir()
    drawer = newest_with_checkpoints(find_records(planted))
    assert drawer is not None and drawer.path == planted / "A1 0"


def test_table_1_is_drawn_beside_the_figures(
    planted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (planted / "A1 0" / "checkpoints").mkdir()
    monkeypatch.setattr(figures, "figures", lambda workdir, output: [])
    records = find_records(planted, ROOT / "paper" / "records")
    draw(records, planted, "x")
    assert capsys.readouterr().out == f"{planted}/table1.svg\n"
    assert (planted / "table1.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")


def test_every_command_names_a_config_that_there_is() -> None:
    text = as_text(commands())
    names = re.findall(r"--config=(configs/\S+)", text)
    assert Counter(name.partition(":")[0] for name in names) == {
        "configs/ablations.py": 45,
        "configs/base.py": 4,
        "configs/big.py": 4,
        "configs/parsing.py": 3,
    }
    for name in names:
        load(f"{name}:base" if name == "configs/ablations.py" else name)
    assert "python -m train.sweep --config=configs/ablations.py --workdir=runs/table3\n" in text
    assert re.search(r"ablations.py:A1 --workdir=(\S+) && python -m infer --workdir=\1 --split=valid", text)


def paper(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "paper", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_command_prints_every_table_of_the_committed_records() -> None:
    done = paper("all", "--csv", "--commands")
    assert (done.returncode, done.stderr) == (0, "")
    blocks = [list(csv.reader(io.StringIO(block))) for block in done.stdout.split("\n\n")]
    assert all(len(row) == len(block[0]) for block in blocks for row in block)
    assert {block[1][0].partition("-")[0] for block in blocks if len(block) > 1} == {*TABLES, "commands"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["table9"], f"table9: give one of {', '.join(TABLES)}, figures, all; --help explains"),
        (["layers"], f"layers: give one of {', '.join(TABLES)}, figures, all; --help explains"),
        (["table2", "--csv", "--markdown"], "--markdown and --csv: give one of them"),
        (
            ["table3", "--runs=s3://bucket/runs"],
            "--runs=s3://bucket/runs: this is a URL; only gs:// and mounted",
        ),
        (
            ["figures", "--output=s3://bucket/x"],
            "--output=s3://bucket/x: this is a URL; only gs:// and mounted",
        ),
    ],
    ids=["table", "study", "forms", "runs", "output"],
)
def test_a_mistake_is_one_line(arguments: list[str], error: str) -> None:
    done = paper(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {error}") and done.stderr.count("\n") == 1


def test_no_two_tables_of_a_file_have_one_name() -> None:
    empty = Records([], [], [], [])
    for made in make("all", empty).values():
        names = [table.name for table in made]
        assert len(set(names)) == len(names), names


def test_every_row_of_the_papers_tables_has_its_command() -> None:
    commanded = {(table, row) for table, row, _ in commands().rows}
    compared = {f"{name}:small" for name in WHY}
    assert compared <= {row for table, row in commanded if table == "table3"}
    assert set(TABLES) <= {table for table, _ in commanded}
