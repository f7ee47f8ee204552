"""What `python -m train.sweep --table` shows of a sweep in any state."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import NullPool

from tests.train.test_sweep_study import NoStop
from vaswani.train.overview.find_runs import FoundRun
from vaswani.train.sweep.command import _command_of_best
from vaswani.train.sweep.plan import open_plan
from vaswani.train.sweep.point import Outcome, PointStatus
from vaswani.train.sweep.ranking import as_run, best_first, best_setting
from vaswani.train.sweep.study import HeldPoint, Study
from vaswani.train.sweep.table import table_of_points, table_of_settings
from vaswani.train.sweep.worker import Watch
from vaswani.train.table import as_csv, as_text

ROOT = Path(__file__).parent.parent.parent
TREE = {"steps": 1000, "seed": 0, "model": {"h": 8, "N": 2}, "eval": {"every": 100, "every_epochs": 0}}
CONFIG: dict[str, Any] = {"steps": 1000, "seed": 0, "model.h": 8, "model.N": 2, "eval.every": 100}
CONFIG |= {"task": "translation", "data.tokenizer": "", "data.batching": "bucket"}
PLAN = {"kind": "grid", "config": TREE, "storage": None, "study": "s"}
POINTS = {f"h={h}": {"model.h": h, "model.N": 2} for h in (1, 2, 4, 16)} | {"steps=9": {"steps": 9}}


def done(name: str, nll: float, config: dict[str, Any], **overrides: Any) -> FoundRun:
    """Returns a point that is done, with its lowest nll."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    return as_run(PointStatus(name, changes, "done", "", {"nll_best": nll}, {}), config)


def best_of(points: list[FoundRun]) -> FoundRun | None:
    setting = best_setting(points)
    return setting.best if setting else None


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

run      state        step            nll  best nll  BLEU  minutes   h  steps
-------  -----------  -----------  ------  --------  ----  -------  --  -----
h=1      done         1,000/1,000  3.0000    2.5000  7.00     90.0   1   1000
h=4      running      200/1,000    4.5000    4.0000  1.00      1.0   4   1000
h=2      failed                                                      2   1000
h=16     interrupted                                                16   1000
steps=9  waiting                                                     8      9

best: h=1, of the lowest validation nll; --best prints its command
h=2: step 3: the loss is nan"""


def runs_of(grid: Study) -> list[FoundRun]:
    return [as_run(point, CONFIG) for point in grid.statuses()]


def test_the_table_of_a_sweep_in_every_state(grid: Study) -> None:
    assert as_text(table_of_points(runs_of(grid))) == TABLE


@pytest.mark.slow
def test_the_command_prints_csv_and_all_that_the_study_has_as_json(grid: Study, tmp_path: Path) -> None:
    status, out, error = shown(tmp_path, "--csv")
    assert (status, error) == (0, "")
    assert out == f"{as_csv(table_of_points(runs_of(grid)))}\n"
    status, out, error = shown(tmp_path, "--json")
    assert (status, error) == (0, "")
    points = json.loads(out)
    assert [point["name"] for point in points] == [*POINTS]
    assert points[0]["summary"]["loss_best"] == 2.9
    assert points[2] == json.loads(json.dumps(grid.statuses()[2]._asdict()))


@pytest.mark.slow
def test_the_best_point_s_flags_are_printed_as_a_command(grid: Study, tmp_path: Path) -> None:
    status, out, error = shown(tmp_path, "--best")
    message = f"error: {tmp_path}/h=1: it has no run.json with its command; --json prints what the point changes\n"
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


def test_the_best_is_done() -> None:
    config = CONFIG | {"optim.lr": 1.0}
    points = []
    for number, (name, nll) in enumerate({"a": 3.0, "b": 2.0, "c": float("nan"), "d": 1.0}.items()):
        state = "pruned" if name == "d" else "done"
        points.append(done(name, nll, config, optim__lr=0.1 * number)._replace(state=state))
    assert best_of(points) == points[1]
    assert best_of(points[2:]) is best_of([]) is None
    assert [str(point.path) for point in best_first(points)] == ["b", "a", "c", "d"]


def shown(workdir: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "train.sweep", f"--workdir={workdir}", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr


def test_a_url_is_not_made_a_folder() -> None:
    command = [sys.executable, "-m", "train.sweep", "--workdir=s3://bucket/heads", "--table"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("error: --workdir=s3://bucket/heads: this is a URL; only gs:// and mounted")


@pytest.mark.slow
def test_a_search_without_any_trial_has_an_empty_table(tmp_path: Path) -> None:
    open_plan(tmp_path, {**PLAN, "kind": "search"})
    assert shown(tmp_path, "--table") == (0, "no points yet\n", "")
    assert shown(tmp_path, "--json")[:2] == (0, "[]\n")
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
def test_a_plan_that_is_not_its_study_s_is_one_line(grid: Study, tmp_path: Path) -> None:
    plan = tmp_path / "sweep" / "plan.json"
    plan.write_text(json.dumps({**PLAN, "config": {**TREE, "model": "x"}}))
    message = "error: the study s in that storage is of another sweep; choose another --study\n"
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


def test_keys_that_end_alike_are_written_out() -> None:
    config = CONFIG | {"checkpoint.every": 9}
    points = []
    for number, name in enumerate("ab"):
        changes = {"eval.every": 5 + number, "checkpoint.every": 7 + number, "model.h": 1 + number}
        points.append(done(name, 1.0, config, **changes))
    assert table_of_points(points).head[-3:] == ("h", "eval.every", "checkpoint.every")


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
        points.append(done(f"{key}={value}", nll, CONFIG, **{key: value}, model__h=1))
    assert best_of(points) is None
    text = as_text(table_of_points(points))
    assert "best:" not in text
    assert text.endswith(f"nll is of other texts or tokens ({key}): it does not say which is best")
    assert best_of(points[1:]) == points[1]


def test_points_that_train_on_other_texts_with_the_same_tokens_have_a_best() -> None:
    for base in ({"data.tokenizer": "a.model"}, {"task": "vision"}):
        for batching, has_best in (("bucket", True), ("window", False)):  # windows of other lengths
            points = []
            for pairs, nll in ((100, 2.0), (200, 1.0)):
                config = CONFIG | base | {"data.train": f"grammar:train:{pairs}", "data.pack_length": pairs}
                points.append(done(f"pairs={pairs}", nll, config | {"data.batching": batching}))
            assert best_of(points) == (points[1] if has_best else None)


def test_points_that_set_a_key_to_what_it_is_have_the_same_tokens() -> None:
    for vocab_size in (1_800, 1_000):
        config = CONFIG | {"data.vocab_size": vocab_size}
        points = [done("h=1", 2.0, config, model__h=1), done("h=2", 1.0, config, model__h=2, data__vocab_size=1_800)]
        assert best_of(points) == (points[1] if vocab_size == 1_800 else None)


def test_seeds_of_a_setting_are_one_row_with_their_interval() -> None:
    points = []
    for h, values in {1: (3.0, 3.2, 3.4), 2: (2.0, 2.4, 2.2), 4: (1.5,)}.items():
        for seed, nll in enumerate(values):
            points.append(done(f"h={h},seed={seed}", nll, CONFIG, model__h=h, seed=seed))
    points.append(done("h=2,seed=9", 9.0, CONFIG, model__h=2, seed=9)._replace(state="running"))
    table = table_of_settings(points)
    assert table is not None
    # Of three values 0.2 apart the interval is 4.3027 standard errors of 0.2 / sqrt(3), of differences 1.0, 0.8 and 1.2
    # likewise.
    assert table.rows == [
        ("2", "3", "2.2000 ± 0.4968", ""),
        ("1", "3", "3.2000 ± 0.4968", "+1.0000 ± 0.4968"),
        ("4", "1", "1.5000", "−0.5000"),
    ]
    assert table.head == ("h", "seeds", "nll", "above the first")
    assert table_of_settings(points[:1] + points[3:4]) is None  # no setting has two seeds
    assert table_of_settings([]) is None
    others = [point._replace(config=point.config | {"data.vocab_size": 8 + n}) for n, point in enumerate(points)]
    assert table_of_settings(others) is None


def test_the_best_has_the_lowest_mean_over_seeds_and_not_the_luckiest_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = []
    for h, values in {1: (1.0, 3.0), 2: (1.75, 1.25), 4: (0.5,)}.items():
        for seed, nll in enumerate(values):
            points.append(done(f"h={h},seed={seed}", nll, CONFIG, model__h=h, seed=seed))
    points.append(done("h=2,seed=2", 9.0, CONFIG, model__h=2, seed=2)._replace(state="running"))
    order = ["h=2,seed=1", "h=2,seed=0", "h=1,seed=0", "h=1,seed=1", "h=4,seed=0", "h=2,seed=2"]
    table = table_of_points(points)
    assert [row[0] for row in table.rows] == order
    assert table.notes == ["best: h=2,seed=1, of the lowest mean nll over 2 seeds; --best prints its command"]
    settings = table_of_settings(points)
    assert settings is not None and settings.rows[0][:2] == ("2", "2")

    (tmp_path / "h=2,seed=1").mkdir()
    launch = {"step": 0, "data": {"train": {"sha256": {}}, "valid": {"sha256": {}}}, "command": ["t", "--config=a.py"]}
    (tmp_path / "h=2,seed=1" / "run.json").write_text(json.dumps({"launches": [launch]}))
    command = _command_of_best(points, tmp_path)
    assert command == f"python -m train --config=a.py --workdir={tmp_path}-best"
    assert capsys.readouterr().err == "the lowest mean nll, 1.5000 over 2 seeds, is of h=2,seed=1 and its other seeds\n"


def test_rates_that_four_digits_do_not_tell_apart_are_written_out() -> None:
    points = []
    for lr in (0.1, 0.10001):
        for seed in range(2):
            points.append(done(f"{lr} {seed}", lr, CONFIG, optim__lr=lr, seed=seed))
    table = table_of_settings(points)
    assert table is not None and [row[0] for row in table.rows] == ["0.1", "0.10001"]
