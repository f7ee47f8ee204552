"""Grids: the expressions, the checks before anything runs, claims that no two workers share, one record a point."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from absl import flags
from ml_collections import config_flags

from base.errors import UserError
from configs import quickstart
from tests import tiny_training
from train.sweep import claims
from train.sweep.claims import Claim, Renewal, Silence, take, write_once
from train.sweep.expressions import chain, name_of, product, zipped
from train.sweep.grid import Grid, HeldPoint
from train.sweep.plan import Sweep, open_plan
from train.sweep.point import Held, Lost, Outcome, read_records, summary
from train.sweep.worker import Stop, work

ROOT = Path(__file__).parent.parent
KNOWN = ["seed", "model.h", "model.d_k", "eval.every", "checkpoint.every", "data.train"]
UTIME = os.utime
AGO = 1_600_000_000  # seconds since 1970: long past
# The worker of the real command has no other thread; pytest's process may have those of jax.
forking = pytest.mark.filterwarnings("ignore:os.fork")


def test_expressions() -> None:
    assert product({"a": (1, 2), "b": ["xy", "z"]}) == [
        {"a": 1, "b": "xy"},
        {"a": 1, "b": "z"},
        {"a": 2, "b": "xy"},
        {"a": 2, "b": "z"},
    ]
    assert zipped({"a": range(2), "b": [5, 6]}) == [{"a": 0, "b": 5}, {"a": 1, "b": 6}]
    assert product(chain([{}], zipped({"a": [1]})), {"seed": [0, 1]}) == [
        {"seed": 0},
        {"seed": 1},
        {"a": 1, "seed": 0},
        {"a": 1, "seed": 1},
    ]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            lambda: product({"model.norm": "pre"}),
            r"model.norm is given 'pre'; an axis is a list of values, like \('pre",
        ),
        (lambda: product({"seed": 3}), "seed is given 3; an axis is a list"),
        (lambda: product({"seed": [1]}, [{"seed": 2}]), r"seed is set by two parts of one product\(\)"),
        (lambda: zipped({"a": [1, 2], "b": [1]}), "as many values as the others; a has 2, b has 1"),
    ],
)
def test_a_wrong_expression_is_one_line(expression, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=message):
        expression()


def test_names_are_short_safe_and_unlike() -> None:
    assert name_of({}, KNOWN) == "base"
    assert name_of({"model.h": 4, "seed": 1}, KNOWN) == "h=4,seed=1"
    assert name_of({"eval.every": 4}, KNOWN) == "eval.every=4"  # checkpoint.every ends alike
    assert name_of({"model.d_k": (8, 16)}, KNOWN) == "d_k=8-16"
    unsafe = [name_of({"data.train": f"text:{c}x/../ü"}, KNOWN) for c in "/:"]
    assert len(set(unsafe)) == 2
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789=._-") for name in unsafe)
    long = [name_of({"data.train": "x" * 500 + end}, KNOWN) for end in "ab"]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 120


def sweep_of(folder: Path, code: str, given: dict | None = None) -> Sweep:
    """A `Sweep` of the tiny config, with `code` below it in its file."""
    path = tiny_training.config_file(folder, tiny_training.config(folder))
    path.write_text(f"from train.sweep.expressions import product\n{path.read_text()}\n\n{code}\n")
    return Sweep(str(path), tiny_training.config(folder), given or {})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", r"it has no sweep\(\), which docs/sweeps.md explains; for a search\(\), give --trials=N"),
        ("def sweep(): return []", r"sweep\(\) must return a list of points, each a dict"),
        ("def sweep(): return product({'modle.h': [2]})", r"there is no key modle.h; did you mean model.h\?"),
        (
            "def sweep(): return product({'model.h': [2, 'x']})",
            r"point h=x: config: model.h is 'x'; it must be a whole",
        ),
        ("def sweep(): return product({'model.norm': ['prae']})", r"point norm=prae: config: model.norm is 'prae'"),
        ("def sweep(): return product({'seed': [1]})", r"point seed=1 sets seed, and so does --config.seed; leave one"),
        ("def sweep(): return [{}, {'model.h': 2}]", r"points base and h=2 are the same run"),
        ("def sweep(): return product({'model.h': 2})", r"sweep\(\): model.h is given 2; an axis is a list"),
        ("def sweep(): return 1 / 0", r"sweep\(\): ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_list_is_one_line_before_anything_runs(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(UserError, match=r"--config=.*tiny_config.py: .*" + message) as error:
        sweep_of(tmp_path, code, {"seed": 7} if "'seed'" in code else {}).points()
    assert "\n" not in str(error.value)


def test_the_argument_of_the_config_reaches_a_sweep_that_takes_one(tmp_path: Path) -> None:
    sweep_of(tmp_path, "def sweep(rows): return product({'seed': range(int(rows))})")
    sweep = Sweep(f"{tmp_path}/tiny_config.py:2", tiny_training.config(tmp_path), {})
    assert list(sweep.points()) == ["seed=0", "seed=1"]


@pytest.mark.filterwarnings("ignore:the load_module")  # of ml_collections
def test_the_flags_of_a_point_make_its_config(tmp_path: Path) -> None:
    changes = {
        "data.buckets": [8, 48],
        "model.tie_embeddings": False,
        "optim.lr": 2,
        "loss.eps_ls": 1e-9,
        "data.train": "a b,c",
    }
    sweep = sweep_of(tmp_path, f"def sweep(): return [{changes}]", {"steps": 5, "data.lowercase": False})
    arguments = sweep.arguments(sweep.points().popitem()[1])
    values = flags.FlagValues()
    argv = ["train", *arguments]
    config_flags.DEFINE_config_file("config", None, "", flag_values=values, sys_argv=argv)
    values(argv)
    expected = tiny_training.config(tmp_path)
    expected.update_from_flattened_dict({**changes, "data.buckets": (8, 48), "steps": 5})
    assert values.config.to_dict() == expected.to_dict()


def plan(**changes) -> dict:  # type: ignore[no-untyped-def]
    return {"kind": "grid", "config": {"steps": 12}, "points": {"h=1": {"model.h": 1}}, **changes}


def test_a_folder_holds_one_sweep_which_may_grow(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    open_plan(folder, plan())
    open_plan(folder, plan())
    grown = {"h=1": {"model.h": 1}, "h=2": {"model.h": (2, 2)}}
    open_plan(folder, plan(points=grown))
    assert json.loads((folder / "sweep" / "plan.json").read_text())["points"]["h=2"] == {"model.h": [2, 2]}
    open_plan(folder, plan(points=grown))
    with pytest.raises(UserError, match=r"another sweep \(its point h=2 is not among those of sweep\(\)\)"):
        open_plan(folder, plan())
    with pytest.raises(UserError, match=r"another sweep \(steps is 12 there and 13 here\)"):
        open_plan(folder, plan(config={"steps": 13}, points=grown))
    with pytest.raises(UserError, match=r"another sweep \(it is a grid, not a search\)"):
        open_plan(folder, plan(kind="search"))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to_mother.txt").touch()
    with pytest.raises(UserError, match="not empty and not a sweep"):
        open_plan(tmp_path / "letters", plan())


RACER = """
import sys, time
from pathlib import Path
from train.sweep.claims import Silence, take
folder, silence = Path(sys.argv[1]), Silence(0.5)
points = [folder / str(i) for i in range(150)]
(folder / "ready" / sys.argv[2]).touch()
while len(list((folder / "ready").iterdir())) < 4:
    pass
first = [path.name for path in points if take(path, silence)]
time.sleep(float(sys.argv[3]))
second = [path.name for path in points if take(path, silence)]
print(" ".join(first), " ".join(second), sep=";")
"""


@pytest.mark.parametrize("stale", [False, True])
def test_of_four_processes_racing_for_a_point_one_gets_it(tmp_path: Path, stale: bool) -> None:
    (tmp_path / "ready").mkdir()
    for number in range(150 if stale else 0):  # the claims of a worker that died
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "1").touch()
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [
        subprocess.Popen([*command, str(i), "0.6" if stale else "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    halves = [racer.communicate()[0].strip().split(";") for racer in racers]
    first, second = (sorted(" ".join(half[k] for half in halves).split()) for k in (0, 1))
    assert (second if stale else first) == sorted(str(number) for number in range(150))
    assert (first if stale else second) == []


def test_a_claim_is_renewed_let_go_and_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(claims, "monotonic", lambda: clock[0])
    folder, others = tmp_path / "h=1", Silence(60.0)
    mine = take(folder, Silence(60.0))
    assert mine is not None
    assert mine.attempt == 1
    os.utime(folder / "1", (AGO, AGO))
    assert take(folder, others) is None  # seen for the first time
    clock[0] = 29.0
    mine.renew()
    assert (folder / "1").stat().st_mtime > AGO
    clock[0] = 61.0
    assert take(folder, others) is None  # it has changed since
    with pytest.raises(Lost):  # 32 seconds after the last sign it must no longer count on it
        mine.renew()
    clock[0] = 121.0
    assert take(folder, others) is None
    clock[0] = 122.0
    theirs = take(folder, others)
    assert theirs is not None
    assert theirs.attempt == 2
    mine.release()
    assert take(folder, Silence(60.0)) is None  # what the loser does changes nothing
    theirs.release()
    assert take(folder, Silence(60.0)) is not None  # at once


def test_a_holder_sees_its_successor_and_outlives_a_hiccup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = take(tmp_path / "h=1", Silence(6.0))
    assert claim is not None
    monkeypatch.setattr(Renewal, "due", lambda self: True)
    monkeypatch.setattr(claims.os, "utime", lambda path: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    claim.renew()
    monkeypatch.setattr(claims.os, "utime", UTIME)
    (tmp_path / "h=1" / "2").touch()
    with pytest.raises(Lost):
        claim.renew()
    with pytest.raises(Lost):
        Claim(tmp_path / "gone" / "1", 6.0).renew()


def test_a_result_is_written_once(tmp_path: Path) -> None:
    assert write_once(tmp_path / "a", {"by": 1})
    assert not write_once(tmp_path / "a", {"by": 2})
    assert json.loads((tmp_path / "a").read_text()) == {"by": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_point_finished_meanwhile_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = (Grid(tmp_path, {"h=1": {}}, 60.0) for _ in range(2))
    monkeypatch.setattr(slow, "_unfinished", lambda: ["h=1"])  # what it found before the other finished
    held = quick.take()
    assert held is not None
    held.finish(Outcome("done", "", {}))
    assert slow.take() is None
    assert quick.finished()
    with pytest.raises(Lost):
        held.finish(Outcome("failed", "", {}))


SCRIPTS = {  # what stands in for `python -m train`, by point
    "good": "print('step 1')",
    "wrong": "import sys; print('error: update 3: the loss is nan'); print('bye'); sys.exit(2)",
    "crash": "raise KeyError('x')",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "stopped": "import os, sys; from pathlib import Path; p = Path(sys.argv[1]) / 'been'; seen = p.exists(); p.touch();"
    "sys.exit(0 if seen else 143)",
}


def command(held: Held, folder: Path) -> list[str]:
    return [sys.executable, "-c", SCRIPTS[held.name], str(folder)]


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Stop()
    for number, handler in before.items():
        signal.signal(number, handler)


@forking
def test_a_worker_records_each_end_and_goes_on(tmp_path: Path, stop: Stop, capfd: pytest.CaptureFixture[str]) -> None:
    grid = Grid(tmp_path, {name: {} for name in SCRIPTS}, 60.0)
    work(grid, tmp_path, command, 0.1, stop)
    ends = {row.name: (row.state, row.reason) for row in grid.rows()}
    assert ends == {
        "good": ("done", ""),
        "wrong": ("failed", "update 3: the loss is nan"),
        "crash": ("failed", "KeyError: 'x'"),
        "killed": ("failed", "killed by SIGKILL"),
        "stopped": ("done", ""),
    }
    assert "stopped: given back\nstopped: goes on, attempt 2\nstopped: done" in capfd.readouterr().err
    assert (tmp_path / "sweep" / "logs" / "good.log").read_text() == "step 1\n"


@forking
def test_a_signal_reaches_the_run_and_gives_the_point_back(
    tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = "import os, signal, sys, time; signal.signal(15, lambda *_: (print('saved'), sys.exit(143)));"
    monkeypatch.setitem(SCRIPTS, "good", f"{saves} os.kill(os.getppid(), 15); time.sleep(60)")
    grid = Grid(tmp_path, {"good": {}}, 60.0)
    work(grid, tmp_path, command, 0.1, stop)
    assert stop.received == signal.SIGTERM
    assert (tmp_path / "sweep" / "logs" / "good.log").read_text() == "saved\n"
    assert grid.rows()[0].state == "interrupted"
    assert grid.take() is not None  # at once


@forking
def test_a_run_of_a_point_that_is_lost_is_killed(
    tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SCRIPTS, "good", "import signal, time; signal.signal(15, lambda *_: None); time.sleep(60)")
    grid = Grid(tmp_path, {"good": {}}, 60.0)
    monkeypatch.setattr(Claim, "renew", lambda self: (_ for _ in ()).throw(Lost))
    monkeypatch.setattr(grid, "finished", lambda: (tmp_path / "sweep" / "logs").exists())
    started = time.monotonic()
    work(grid, tmp_path, command, 0.1, stop)
    assert time.monotonic() - started < 30
    assert "good: lost to another worker" in capfd.readouterr().err
    assert grid.rows()[0].state == "running"  # for the other


@forking
@pytest.mark.parametrize(("last", "state"), [("valid", "done"), ("train", "pruned")])
def test_a_run_pruned_when_it_is_over_is_done(
    tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch, last: str, state: str
) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "config.json").write_text('{"steps": 8}')
    (tmp_path / "good" / "metrics.jsonl").write_text(json.dumps({"step": 8, "kind": last, "seconds": 1.0}) + "\n")
    monkeypatch.setitem(SCRIPTS, "good", "import time; time.sleep(60)")
    monkeypatch.setattr(HeldPoint, "renew", lambda self: True)
    grid = Grid(tmp_path, {"good": {}}, 60.0)
    work(grid, tmp_path, command, 0.1, stop)
    assert grid.rows()[0].state == state


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_run_dies_with_its_worker(tmp_path: Path) -> None:
    run = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    worker = f"from train.sweep.point import run_child; from pathlib import Path; import sys;\
        run_child([sys.executable, '-c', {run!r}], Path({str(tmp_path / 'log')!r}), lambda: False)"
    process = subprocess.Popen([sys.executable, "-c", worker], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    child = Path("/proc") / (tmp_path / "pid").read_text() / "stat"
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the run goes on without its worker"
        time.sleep(0.02)


def test_records_of_a_run_that_is_being_written(tmp_path: Path) -> None:
    assert read_records(tmp_path) == []
    assert summary([]) == {}
    lines = [
        {"step": 4, "kind": "valid", "loss": 3.0, "nll": 2.5, "perplexity": 12.0, "bleu": 9.0},
        {"step": 8, "kind": "train", "loss": 1.0, "seconds": 90.0},
        {"step": 8, "kind": "valid", "loss": 3.5, "nll": 2.0, "perplexity": 13.0, "bleu": 8.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 12, "ki')
    assert summary(read_records(tmp_path)) == {
        "step": 8,
        "minutes": 1.5,
        **{"loss": 3.5, "loss_best": 3.0, "nll": 2.0, "nll_best": 2.0},
        **{"perplexity": 13.0, "perplexity_best": 12.0, "bleu": 8.0, "bleu_best": 9.0},
    }


def test_a_typing_error_costs_a_line_and_no_folder(tmp_path: Path) -> None:
    sweep_of(tmp_path, "def sweep(): return product({'modle.h': [2]})")
    flags_ = [f"--config={tmp_path}/tiny_config.py", f"--workdir={tmp_path}/sweep"]
    done = subprocess.run([sys.executable, "-m", "train.sweep", *flags_], cwd=ROOT, capture_output=True, text=True)
    message = f"error: --config={tmp_path}/tiny_config.py: sweep(): point h=2: there is no key modle.h"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{message}; did you mean model.h?\n"
    assert not (tmp_path / "sweep").exists()


def test_the_examples_of_the_page_are_right(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "sweeps.md").read_text()
    grid, search = (block.partition("```")[0] for block in page.split("```python\n")[1:])
    (tmp_path / "heads.py").write_text(grid)
    (tmp_path / "lr.py").write_text(search)
    points = Sweep(str(tmp_path / "heads.py"), quickstart.get_config(), {}).points()
    assert len(points) == 18
    assert {"seed=0", "h=1,d_k=128,d_v=128,seed=0"} <= points.keys()
    optuna = pytest.importorskip("optuna")
    trial = optuna.trial.FixedTrial({"lr": 1e-3, "warmup": 50, "norm": "pre"})
    assert Sweep(str(tmp_path / "lr.py"), quickstart.get_config(), {}).suggest(trial)["model.norm"] == "pre"
