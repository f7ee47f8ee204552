"""The report and the command, from planted runs and from the committed records."""

import base64
import csv
import hashlib
import html.parser
import io
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import tiny
from tests.planted import plant, planted_config, scores
from vaswani.configs.ablations import WHY
from vaswani.errors import UserError
from vaswani.paper import figures
from vaswani.paper.__main__ import TABLES
from vaswani.paper.command import draw, make
from vaswani.paper.launch import commands
from vaswani.paper.records import Records, find_records, newest_with_checkpoints
from vaswani.paper.report.curves import curves, other_curves, trends
from vaswani.paper.report.report import report
from vaswani.paper.rows import load, row_runs
from vaswani.table import as_text

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for place, row in enumerate(("base", "A1", "C1")):
        for seed in (0, 1):
            config = planted_config(f"configs/ablations.py:{row}:small", seed=seed)
            plant(tmp_path / f"{row} {seed}", config, scores(config, "valid", 90.0 - place, perplexity=1.0 + place))
    plant(tmp_path / "mine", planted_config("configs/quickstart.py"))
    return tmp_path


def test_curves_are_of_rows_together_and_of_other_runs_alone(planted: Path) -> None:
    plant(planted / "other" / "mine", planted_config("configs/quickstart.py"))
    found = find_records(planted)
    drawn = curves(found, {})
    assert list(drawn) == ["Table 3, heads (A), scaled-down models", "Table 3, size (C), and big, scaled-down models"]
    assert list(other_curves(found, {})) == [f"{planted}/mine", f"{planted}/other/mine"]
    svg = drawn["Table 3, heads (A), scaled-down models"]
    assert ">base<" in svg and ">A1<" in svg and ">C1<" not in svg
    assert svg.startswith("<svg ") and "currentColor" in svg and "height=" not in svg.partition(">")[0]


def test_a_run_of_a_row_that_is_given_is_not_drawn_alone(planted: Path) -> None:
    config = planted_config("configs/multi30k.py")
    plant(planted / "given", config, scores(config, "test", 30.0))
    found = find_records(planted)
    rows = {"Ours": {"given": row_runs(found, "configs/multi30k.py", "test")}}
    assert "Ours" in curves(found, rows)
    assert list(other_curves(found, rows)) == [f"{planted}/mine"]
    assert list(other_curves(found, {})) == [f"{planted}/given", f"{planted}/mine"]


def test_trends_are_of_rows_that_have_run(planted: Path) -> None:
    drawn = trends(find_records(planted))
    assert list(drawn) == ["log perplexity: rows of Table 3 minus base", "BLEU: rows of Table 3 minus base"]
    assert all(">A1<" in svg and ">C1<" in svg and ">A2<" not in svg for svg in drawn.values())


def test_the_report_needs_no_network_and_has_everything(planted: Path) -> None:
    found = find_records(planted)
    text = report(make("all", found), found, "there", commands())
    assert "from 7 runs in there, 7 of them complete." in text
    for name in TABLES:
        assert f'<h2 id="table-{name[-1]}">' in text
    assert text.count("<svg ") == 5
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", text)
    assert "url(" not in text.replace("url(#", "")
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)), "two drawings share a name"


def test_what_has_run_stands_before_what_has_not(planted: Path) -> None:
    found = find_records(planted)
    text = report(make("all", found), found, "there", commands())
    headings = re.findall(r'<h2 id="([^"]+)">', text)
    for name in ("table-1", "table-4"):
        assert headings.index("table-3") < headings.index(name)
    assert headings[-1] == "to-run-it"
    table3 = text.partition('<h2 id="table-3">')[2].partition("<h2 ")[0]
    titles = re.findall("<h3>(.*?)</h3>", table3)
    assert titles[0].startswith("Table 3, scaled-down models: an eighth") and "newstest2013" in titles[1]


def test_two_points_are_no_curve(tmp_path: Path) -> None:
    plant(tmp_path / "two", planted_config("configs/quickstart.py"), validations=[(1, 9.0), (2, 5.0)])
    plant(tmp_path / "three", planted_config("configs/quickstart.py", seed=1))
    assert list(other_curves(find_records(tmp_path), {})) == [f"{tmp_path}/three"]


class Elements(html.parser.HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.labels: list[str | None] = []
        self.frames: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.labels += [value for name, value in attributes if tag == "svg" and name == "aria-label"]
        self.frames += [value or "" for name, value in attributes if name == "srcdoc"]


def test_a_folders_name_is_only_text_on_the_page(tmp_path: Path) -> None:
    names = ['"><img src=x onerror=alert(1)>', r"a\1b\g<2>", "font-family: x;"]
    for name in names:
        plant(tmp_path / name, planted_config("configs/quickstart.py"))
    records = find_records(tmp_path)
    page = Elements(report(make("table4", records), records, "there", commands()))
    assert "img" not in page.tags and not any(attribute.startswith("on") for attribute in page.attributes)
    assert set(page.labels) == {f"{tmp_path}/{name}" for name in names}


@pytest.mark.slow
def test_the_scripts_of_the_frames_and_no_others_may_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny.write_grammar_run(tmp_path / "run")
    settings = json.loads((run / "config.json").read_text())
    data = {**settings["data"], "valid": "grammar:valid:20:{en,de}"}
    (run / "config.json").write_text(json.dumps({**settings, "steps": 4, "data": data}))
    (run / "metrics.jsonl").write_text('{"step": 4, "kind": "train", "seconds": 1}\n')
    monkeypatch.setattr(figures, "figures", lambda workdir, output: [])
    text = report({}, find_records(tmp_path), "there", commands())
    (frame,) = Elements(text).frames
    scripts = re.findall(r"<script>(.*?)</script>", frame, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    (allowed,) = re.findall(r"script-src ([^;]*);", text.partition("<title>")[0])
    assert hashes and allowed.split() == [f"'sha256-{one}'" for one in hashes]


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
def test_the_command_prints_every_table_of_the_committed_records(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = paper("all", "--csv", "--commands", f"--html={page}")
    assert (done.returncode, done.stderr) == (0, "")
    blocks = [list(csv.reader(io.StringIO(block))) for block in done.stdout.split("\n\n")]
    assert all(len(row) == len(block[0]) for block in blocks for row in block)
    assert {block[1][0].partition("-")[0] for block in blocks if len(block) > 1} == {*TABLES, "commands"}
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


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
        (
            ["table1", "--html=s3://b/x.html"],
            "--html=s3://b/x.html: this is a URL; only gs:// and mounted",
        ),
    ],
    ids=["table", "study", "forms", "runs", "output", "html"],
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
