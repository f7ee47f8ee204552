"""What `python -m train.sweep --table` shows of a sweep in any state."""

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import NullPool

from tests.train.test_sweep_study import NoStop
from vaswani.errors import UserError
from vaswani.train.sweep.command import _command_of_best
from vaswani.train.sweep.picture import draw
from vaswani.train.sweep.plan import open_plan
from vaswani.train.sweep.point import Outcome, PointStatus
from vaswani.train.sweep.ranking import best_of, other_measures
from vaswani.train.sweep.seeds import over_seeds
from vaswani.train.sweep.study import HeldPoint, Study
from vaswani.train.sweep.table import as_csv, as_records, as_text
from vaswani.train.sweep.worker import Watch

ROOT = Path(__file__).parent.parent.parent
TREE = {"steps": 1000, "seed": 0, "model": {"h": 8, "N": 2}, "eval": {"every": 100, "every_epochs": 0}}
CONFIG = {"steps": 1000, "seed": 0, "model.h": 8, "model.N": 2, "eval.every": 100}
PLAN = {"kind": "grid", "config": TREE, "storage": None, "study": "s"}
POINTS = {f"h={h}": {"model.h": h, "model.N": 2} for h in (1, 2, 4, 16)} | {"steps=9": {"steps": 9}}


def valid(step: int, nll: float, **more: float) -> str:
    return json.dumps({"step": step, "kind": "valid", "loss": 9.0, "nll": nll, "perplexity": 2 * nll, **more}) + "\n"


@pytest.fixture
def grid(tmp_path: Path) -> Study:
    """A sweep with a point in each state."""
    open_plan(tmp_path, PLAN)
    grid = Study(tmp_path, PLAN, None, 120, "none")
    grid.enqueue({**POINTS}, lambda trial: {}, retry=False)
    for name in POINTS:
        (tmp_path / name).mkdir()
    record = {"step": 1000, "minutes": 90.0, "loss": 3.3, "loss_best": 2.9, "nll": 3.0, "nll_best": 2.5}
    record |= {"bleu": 7.0, "bleu_best": 7.5}
    (tmp_path / "h=4" / "metrics.jsonl").write_text(
        valid(100, 4.0, bleu=1.0) + valid(200, 4.5) + '{"step": 200, "kind": "train", "seconds": 60.0}\n{"st'
    )

    def train(point: HeldPoint) -> Outcome | None:
        ends = {"h=1": Outcome("done", "", record), "h=2": Outcome("failed", "step 3: the loss is nan", {})}
        return ends.get(point.name)

    def say_end(point: PointStatus) -> None:
        pass

    grid.train_next(train, say_end)
    grid.train_next(train, say_end)
    # As a worker has it that trains; the next is given back.
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/sweep/study.db", {"poolclass": NullPool})
    running = optuna.load_study(study_name="s", storage=storage).ask()
    Watch(HeldPoint("h=4", 3, {}, 1, -1, running), tmp_path / "h=4", NoStop(), 0.0).report()
    grid.train_next(train, say_end)
    return grid


TABLE = """\
1 done, 1 running, 1 failed, 1 interrupted, 1 waiting

    h  state        step            nll  best nll  perplexity  best perplexity  BLEU  best BLEU  minutes  point
-  --  -----------  -----------  ------  --------  ----------  ---------------  ----  ---------  -------  -------
*   1  done         1,000/1,000  3.0000    2.5000                               7.00       7.50     90.0  h=1
    4  running      200/1,000    4.5000    4.0000        9.00             8.00  1.00       1.00      1.0  h=4
    2  failed                                                                                             h=2
   16  interrupted                                                                                        h=16
    8  waiting                                                                                            steps=9

*: the lowest validation nll of the points that are done, with several seeds of those whose mean is lowest; \
--best prints its command
h=2: step 3: the loss is nan"""


def test_the_table_of_a_sweep_in_every_state(grid: Study) -> None:
    assert as_text(as_records(grid.statuses(), CONFIG)) == TABLE


def test_csv_holds_the_same(grid: Study) -> None:
    records = as_records(grid.statuses(), CONFIG)
    read = list(csv.DictReader(io.StringIO(as_csv(records))))
    assert [row["point"] for row in read] == ["h=1", "h=4", "h=2", "h=16", "steps=9"]
    assert (read[0]["model.h"], read[0]["loss_best"], read[2]["reason"]) == ("1", "2.9", "step 3: the loss is nan")
    assert [row["is_best"] for row in read] == ["True", *["False"] * 4]
    assert "model.N" not in read[0]


@pytest.mark.slow
def test_the_command_prints_json_and_draws(grid: Study, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "train.sweep", f"--workdir={tmp_path}", "--json", f"--plot={tmp_path}/p.png"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == as_records(grid.statuses(), CONFIG)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_best_point_s_flags_are_printed_as_a_command(grid: Study, tmp_path: Path) -> None:
    status, out, error = shown(tmp_path, "--best")
    changes = "--config.model.h=1 --config.model.N=2"
    message = f"error: {tmp_path}/h=1: it has no run.json with its command; the best point has {changes}\n"
    assert (status, out, error) == (2, "", message)
    command = ["__main__.py", "--config=a b.py", "--config.model.h=1", f"--workdir={tmp_path}/h=1"]
    data = {"train": {"sha256": {}}, "valid": {"sha256": {}}}
    older = {"launches": [{"step": 0, "data": data}]}
    (tmp_path / "h=1" / "run.json").write_text(json.dumps(older))
    assert shown(tmp_path, "--best") == (2, "", message)
    record = {"launches": [{"step": 0, "data": data, "command": command}]}
    (tmp_path / "h=1" / "run.json").write_text(json.dumps(record))
    best = f"python -m train '--config=a b.py' --config.model.h=1 --workdir={tmp_path}-best\n"
    assert shown(tmp_path, "--best") == (0, best, "the lowest nll, 2.5000, is of h=1\n")


def test_the_best_is_done_and_numbers_have_four_digits() -> None:
    summaries = {"a": 3.0, "b": 2.0, "c": float("nan"), "d": 1.0}
    points = []
    for number, (name, nll) in enumerate(summaries.items()):
        state = "pruned" if name == "d" else "done"
        overrides = {"optim.lr": 0.00123456789 * (number + 1)}
        points.append(PointStatus(name, overrides, state, "", {"nll_best": nll}, {}))
    assert best_of(points, CONFIG) == points[1]
    assert best_of(points[2:], CONFIG) is best_of([], CONFIG) is None
    records = as_records(points, CONFIG)
    assert [record["point"] for record in records] == ["b", "a", "c", "d"]
    assert "*  0.002469 " in as_text(records)
    assert records[0]["optim.lr"] == 2 * 0.00123456789


def test_a_picture_has_a_panel_for_each_key_and_one_for_the_importances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = []
    monkeypatch.setattr(
        "vaswani.train.sweep.picture.save", lambda figure, *arguments, **options: figures.append(figure)
    )
    points = []
    for number, norm in enumerate(("pre", "post", "pre", "post")):
        overrides = {"optim.lr": 10.0**-number, "model.norm": norm, "model.N": 2}
        nll = {1: 3.0 + number, 2: 2.0 + number}
        points.append(PointStatus(f"trial-{number:03d}", overrides, "done", "", {"nll_best": 2.0 + number}, nll))
    draw(points, tmp_path / "p.png", search=True, config=CONFIG, importances={"lr": 0.75, "norm": 0.25})
    history, rate, norm, importances = figures[0].axes
    assert (rate.get_xlabel(), norm.get_xlabel()) == ("optim.lr", "model.norm")
    assert rate.get_xscale() == "log"
    values = sorted(map(tuple, rate.collections[0].get_offsets()))
    assert values == [(10.0**-number, 2.0 + number) for number in (3, 2, 1, 0)]
    assert [label.get_text() for label in importances.get_yticklabels()] == ["norm", "lr"]
    assert "nll" in history.get_ylabel()


@pytest.mark.parametrize("search", [False, True])
def test_a_picture_of_nothing_or_into_nowhere_is_one_line(tmp_path: Path, search: bool) -> None:
    point = PointStatus("trial-000", {}, "waiting", "", {}, {})
    for points in ([], [point]):
        with pytest.raises(UserError, match="no point has been validated yet"):
            draw(points, tmp_path / "p.png", search=search)
    assert not (tmp_path / "p.png").exists()
    point = PointStatus("trial-000", {}, "pruned", "", {"nll_best": 3.0}, {1: 3.0})
    with pytest.raises(UserError, match=r"--plot=.*p.xyz: cannot be written"):
        draw([point], tmp_path / "p.xyz", search=search)
    with pytest.raises(UserError, match=r"--plot=.*nowhere/p.png: cannot be written \(No such file"):
        draw([point], tmp_path / "nowhere" / "p.png", search=search)


def shown(workdir: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "train.sweep", f"--workdir={workdir}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_a_url_is_not_made_a_folder() -> None:
    command = [sys.executable, "-m", "train.sweep", "--workdir=s3://bucket/heads", "--table"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: --workdir=s3://bucket/heads: this is a URL; only gs:// and mounted")


@pytest.mark.slow
def test_a_search_without_any_trial_has_an_empty_table(tmp_path: Path) -> None:
    open_plan(tmp_path, {**PLAN, "kind": "search"})
    assert shown(tmp_path, "--table") == (0, "no points yet\n", "")
    assert shown(tmp_path, "--json")[:2] == (0, "[]\n")
    assert as_csv([]).startswith("point,is_best,state,step")
    assert not (tmp_path / "sweep" / "study.db").exists()


@pytest.mark.slow
def test_garbage_in_the_folder_is_one_line(grid: Study, tmp_path: Path) -> None:
    (tmp_path / "sweep" / "study.db").write_bytes(b"rubbish" * 1000)
    assert shown(tmp_path, "--table") == (2, "", "error: --storage: file is not a database\n")
    (tmp_path / "sweep" / "plan.json").write_text("[1, 2]")
    assert shown(tmp_path, "--table")[2].startswith(f"error: {tmp_path}/sweep/plan.json: damaged: it is [1, 2]")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("summary", [1]),
        ("summary", {"step": "1"}),
        ("summary", {"nll_best": [1]}),
        ("summary", {"minutes": 10**400}),
        ("overrides", ["x"]),
    ],
)
def test_attributes_of_unknown_form_are_one_line(grid: Study, tmp_path: Path, attribute: str, value: Any) -> None:
    set_attribute(grid, attribute, value)
    status, out, error = shown(tmp_path, "--table")
    assert (status, out) == (2, "")
    assert error.startswith("error: --storage: the study is damaged (") and error.count("\n") == 1


def set_attribute(grid: Study, attribute: str, value: Any) -> None:
    """Writes into the last point's trial what no worker does."""
    trial = grid.study.trials[-1]
    grid.study._storage.set_trial_user_attr(trial._trial_id, attribute, value)


@pytest.mark.slow
def test_a_plan_that_is_not_its_study_s_and_a_study_that_is_gone_are_one_line(grid: Study, tmp_path: Path) -> None:
    plan = tmp_path / "sweep" / "plan.json"
    text = plan.read_text()
    plan.write_text(json.dumps({**PLAN, "config": {**TREE, "model": "x"}}))
    message = "error: the study s in that storage is of another sweep; choose another --study\n"
    assert shown(tmp_path, "--table") == (2, "", message)
    plan.write_text(text)
    database, results = tmp_path / "sweep" / "study.db", tmp_path / "sweep" / "results"
    database.unlink()
    message = f"error: {database}: no such file, but {results} has results; restore a copy of it\n"
    assert shown(tmp_path, "--table") == (2, "", message)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../x", [1], None])
def test_names_that_no_point_has_are_of_no_point(grid: Study, tmp_path: Path, name: Any) -> None:
    set_attribute(grid, "name", name)
    status, out, error = shown(tmp_path, "--table")
    assert (status, error) == (0, "")
    assert "../x" not in out


@pytest.mark.slow
def test_a_folder_from_a_stranger_opens_no_database_elsewhere(tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine.db"
    url = f"sqlite:///{mine}"
    open_plan(theirs, {**PLAN, "storage": url})
    message = f"error: --workdir={theirs}: the study is in {url!r}; to open it, give that as --storage\n"
    assert shown(theirs, "--table") == (2, "", message)
    assert not mine.exists()
    Study(theirs, PLAN, url, 60, "none").enqueue({**POINTS}, lambda trial: {}, retry=False)
    assert shown(theirs, "--table", f"--storage={url}")[1].startswith("5 waiting\n")
    linked = tmp_path / "linked"
    open_plan(linked, PLAN)
    (linked / "sweep" / "study.db").symlink_to(mine)
    message = f"error: {linked}/sweep/study.db: a link to elsewhere; give the database that you mean as --storage=URL\n"
    assert shown(linked, "--table") == (2, "", message)


def test_a_trial_that_diverged_leaves_the_others_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = []
    monkeypatch.setattr(
        "vaswani.train.sweep.picture.save", lambda figure, *arguments, **options: figures.append(figure)
    )
    points = []
    for number, nll in enumerate((math.nan, 3.0, 2.0)):
        points.append(PointStatus(f"trial-{number:03d}", {}, "done", "", {"nll_best": nll}, {1: nll}))
    draw(points, tmp_path / "p.png", search=True)
    (line,) = figures[0].axes[0].lines
    assert list(line.get_ydata()) == [math.inf, 3.0, 2.0]


def test_keys_that_end_alike_are_written_out() -> None:
    points = []
    for number, name in enumerate("ab"):
        overrides = {"eval.every": 5 + number, "checkpoint.every": 7 + number, "model.h": 1 + number}
        points.append(PointStatus(name, overrides, "done", "", {"nll_best": 1.0}, {}))
    head = as_text(as_records(points, CONFIG)).splitlines()[2].split()
    assert head[:3] == ["eval.every", "checkpoint.every", "h"]


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        ("data.vocab_size", 8, 30_000),
        ("data.normalisation", "nfkc", "none"),
        ("data.lowercase", True, False),
        ("data.tokenizer", "a.model", "b.model"),
        ("data.units", "characters", "words"),
        ("data.valid", "grammar:valid:100", "grammar:valid:200"),
        ("data.train", "grammar:train:100", "grammar:train:200"),
        ("data.mask_rate", 0.15, 0.05),
        ("data.classes", "tense", "number"),
        ("task", "translation", "prefix_lm"),
    ],
)
def test_points_whose_nll_is_of_something_else_have_no_best(key: str, first: object, second: object) -> None:
    points = []
    for value, nll in ((first, 0.1), (second, 4.3)):
        overrides = {key: value, "model.h": 1}
        points.append(PointStatus(f"{key}={value}", overrides, "done", "", {"nll_best": nll}, {}))
    assert best_of(points, {}) is None
    config = {"steps": 1000, "model.h": 8, key: first}
    text = as_text(as_records(points, config), other_measures(points, config))
    assert "*" not in text
    assert text.endswith(f"nll is of other texts or tokens ({key}): it does not say which is best")
    assert best_of(points[1:], {}) == points[1]


def test_points_that_train_on_other_texts_with_the_same_tokens_have_a_best() -> None:
    points = []
    for pairs, nll in ((100, 2.0), (200, 1.0)):
        overrides = {"data.train": f"grammar:train:{pairs}", "data.pack_length": pairs}
        points.append(PointStatus(f"pairs={pairs}", overrides, "done", "", {"nll_best": nll}, {}))
    for config in ({"data.tokenizer": "a.model"}, {"task": "vision"}):
        assert best_of(points, config) == points[1]
        assert best_of(points, config | {"data.batching": "window"}) is None  # windows of other lengths


def test_points_that_set_a_key_to_what_it_is_have_the_same_tokens() -> None:
    points = []
    for changes, nll in (({"model.h": 1}, 2.0), ({"model.h": 2, "data.vocab_size": 1_800}, 1.0)):
        points.append(PointStatus(f"h={changes['model.h']}", changes, "done", "", {"nll_best": nll}, {}))
    assert best_of(points, {"data.vocab_size": 1_800}) == points[1]
    assert best_of(points, {"data.vocab_size": 1_000}) is None


def test_seeds_of_a_setting_are_one_row_with_their_interval() -> None:
    points = []
    for h, values in {1: (3.0, 3.2, 3.4), 2: (2.0, 2.4, 2.2), 4: (1.5,)}.items():
        for seed, nll in enumerate(values):
            overrides = {"model.h": h, "seed": seed}
            points.append(PointStatus(f"h={h},seed={seed}", overrides, "done", "", {"nll_best": nll}, {}))
    points.append(PointStatus("h=2,seed=9", {"model.h": 2, "seed": 9}, "running", "", {"nll_best": 9.0}, {}))
    table = over_seeds(points, CONFIG)
    assert table is not None
    # Of three values 0.2 apart the interval is 4.3027 standard errors of 0.2 / sqrt(3), of differences 1.0, 0.8 and 1.2
    # likewise.
    assert table.rows == [
        ("2", "3", "2.2000 ± 0.4968", ""),
        ("1", "3", "3.2000 ± 0.4968", "+1.0000 ± 0.4968"),
        ("4", "1", "1.5000", "−0.5000"),
    ]
    assert table.head == ("h", "seeds", "nll", "above the first")
    assert over_seeds(points[:1] + points[3:4], CONFIG) is None  # no setting has two seeds
    assert over_seeds([], CONFIG) is None
    sizes = enumerate(points)
    others = [point._replace(overrides=point.overrides | {"data.vocab_size": 8 + place}) for place, point in sizes]
    assert over_seeds(others, CONFIG | {"data.vocab_size": 8}) is None


def test_the_best_has_the_lowest_mean_over_seeds_and_not_the_luckiest_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = []
    for h, values in {1: (1.0, 3.0), 2: (1.75, 1.25), 4: (0.5,)}.items():
        for seed, nll in enumerate(values):
            overrides = {"model.h": h, "seed": seed}
            points.append(PointStatus(f"h={h},seed={seed}", overrides, "done", "", {"nll_best": nll}, {}))
    points.append(PointStatus("h=2,seed=2", {"model.h": 2, "seed": 2}, "running", "", {"nll_best": 9.0}, {}))
    records = as_records(points, CONFIG)
    order = ["h=2,seed=1", "h=2,seed=0", "h=1,seed=0", "h=1,seed=1", "h=4,seed=0", "h=2,seed=2"]
    assert [record["point"] for record in records] == order
    assert [record["point"] for record in records if record["is_best"]] == ["h=2,seed=1"]
    seeds = over_seeds(points, CONFIG)
    assert seeds is not None and seeds.rows[0][:2] == ("2", "2")

    (tmp_path / "h=2,seed=1").mkdir()
    launch = {"step": 0, "data": {"train": {"sha256": {}}, "valid": {"sha256": {}}}, "command": ["t", "--config=a.py"]}
    (tmp_path / "h=2,seed=1" / "run.json").write_text(json.dumps({"launches": [launch]}))
    command = _command_of_best(points, CONFIG, tmp_path)
    assert command == f"python -m train --config=a.py --workdir={tmp_path}-best"
    assert capsys.readouterr().err == "the lowest mean nll, 1.5000 over 2 seeds, is of h=2,seed=1 and its other seeds\n"


def test_rates_that_four_digits_do_not_tell_apart_are_written_out() -> None:
    points = []
    for lr in (0.1, 0.10001):
        for seed in range(2):
            points.append(PointStatus(f"{lr} {seed}", {"optim.lr": lr, "seed": seed}, "done", "", {"nll_best": lr}, {}))
    table = over_seeds(points, CONFIG)
    assert table is not None and [row[0] for row in table.rows] == ["0.1", "0.10001"]
