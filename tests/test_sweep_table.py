"""What `python -m train.sweep --table` shows of a sweep in any state."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from base.errors import UserError
from train.sweep.grid import Grid
from train.sweep.plan import open_plan
from train.sweep.point import Outcome, Row
from train.sweep.table import as_csv, as_records, as_text, draw

ROOT = Path(__file__).parent.parent
CONFIG = {"steps": 1000, "seed": 0, "model.h": 8, "model.N": 2}
POINTS = {f"h={h}": {"model.h": h, "model.N": 2} for h in (1, 2, 4, 16)} | {"steps=9": {"steps": 9}}


def valid(step: int, loss: float, **more: float) -> str:
    return json.dumps({"step": step, "kind": "valid", "loss": loss, "nll": loss, "perplexity": 2 * loss, **more}) + "\n"


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    """A sweep with a point in each state."""
    tree = {"steps": 1000, "seed": 0, "model": {"h": 8, "N": 2}}
    open_plan(tmp_path, {"kind": "grid", "config": tree, "points": POINTS})
    grid = Grid(tmp_path, POINTS, 60.0)
    for name in POINTS:
        (tmp_path / name).mkdir()
    done, failed, running, dead = (grid.take() for _ in range(4))
    assert done and failed and running and dead
    record = {"step": 1000, "minutes": 90.0, "loss": 3.0, "loss_best": 2.5, "bleu": 7.0, "bleu_best": 7.5}
    done.finish(Outcome("done", "", record))
    failed.finish(Outcome("failed", "update 3: the loss is nan", {}))
    (tmp_path / "h=4" / "metrics.jsonl").write_text(
        valid(100, 4.0, bleu=1.0) + valid(200, 4.5) + '{"step": 200, "kind": "train", "seconds": 60.0}\n{"st'
    )
    ago = time.time() - 300
    os.utime(tmp_path / "sweep" / "claims" / "h=16" / "1", (ago, ago))
    return grid


TABLE = """\
h   state               step    loss    best  perplexity  best  BLEU  best  minutes  point
1   done         1,000/1,000  3.0000  2.5000                    7.00  7.50     90.0  h=1
2   failed                                                                           h=2
4   running        200/1,000  4.5000  4.0000        9.00  8.00  1.00  1.00      1.0  h=4
16  interrupted                                                                      h=16
8   waiting                                                                          steps=9

1 done, 1 failed, 1 running, 1 interrupted, 1 waiting
h=2: update 3: the loss is nan"""


def test_the_table_of_a_sweep_in_every_state(grid: Grid) -> None:
    assert as_text(as_records(grid.rows(), CONFIG)) == TABLE


def test_csv_holds_the_same(grid: Grid) -> None:
    records = as_records(grid.rows(), CONFIG)
    read = list(csv.DictReader(io.StringIO(as_csv(records))))
    assert [row["point"] for row in read] == list(POINTS)
    assert (read[0]["model.h"], read[0]["loss_best"], read[1]["reason"]) == ("1", "2.5", "update 3: the loss is nan")
    assert "model.N" not in read[0]


def test_the_command_prints_json_and_draws(grid: Grid, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "train.sweep", f"--workdir={tmp_path}", "--json", f"--plot={tmp_path}/p.png"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == as_records(grid.rows(), CONFIG)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("search", [False, True])
def test_a_picture_of_nothing_or_into_nowhere_is_one_line(tmp_path: Path, search: bool) -> None:
    row = Row("trial-000", {}, "waiting", "", {})
    with pytest.raises(UserError, match="no point has been validated yet"):
        draw([row], tmp_path, tmp_path / "p.png", search=search)
    assert not (tmp_path / "p.png").exists()
    (tmp_path / "trial-000").mkdir()
    (tmp_path / "trial-000" / "metrics.jsonl").write_text(valid(1, 3.0))
    row = Row("trial-000", {}, "pruned", "", {"nll_best": 3.0})
    with pytest.raises(UserError, match=r"--plot=.*p.xyz: cannot be written"):
        draw([row], tmp_path, tmp_path / "p.xyz", search=search)
    with pytest.raises(UserError, match=r"--plot=.*nowhere/p.png: cannot be written \(No such file"):
        draw([row], tmp_path, tmp_path / "nowhere" / "p.png", search=search)
