"""The command, from planted runs and from the committed records."""

import csv
import io
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.planted import plant, planted_config, scores
from vaswani.configs.ablations import WHY
from vaswani.paper.__main__ import TABLES
from vaswani.paper.command import make, show
from vaswani.paper.launch import commands
from vaswani.paper.records import Records
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


def test_table_1_is_drawn_beside_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "table1.svg"
    options = SimpleNamespace(
        runs=str(ROOT / "paper" / "records"), plot=str(plot), commands=False, markdown=False, csv=False
    )
    show("table1", options)
    assert "Table 1: layer types" in capsys.readouterr().out
    assert plot.read_text(encoding="utf-8").rstrip().endswith("</svg>")


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
        (["table9"], f"table9: give one of {', '.join(TABLES)}, all; --help explains"),
        (["layers"], f"layers: give one of {', '.join(TABLES)}, all; --help explains"),
        (["table2", "--csv", "--markdown"], "--markdown and --csv: give one of them"),
        (
            ["table3", "--runs=s3://bucket/runs"],
            "--runs=s3://bucket/runs: this is a URL; only gs:// and mounted",
        ),
        (
            ["table1", "--plot=s3://bucket/x.svg"],
            "--plot=s3://bucket/x.svg: this is a URL; only gs:// and mounted",
        ),
        (["table2", "--plot=x.svg"], "--plot=x.svg: only table1 is drawn there"),
    ],
    ids=["table", "study", "forms", "runs", "plot", "drawn"],
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
