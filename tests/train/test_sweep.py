"""Sweeps: the expressions, the checks before anything runs, and workers that record one end for each point."""

import copy
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from absl import flags
from ml_collections import config_flags

from tests import tiny
from vaswani.configs import quickstart
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.run.folder import as_json
from vaswani.run.lock import lock
from vaswani.run.records import read_metrics
from vaswani.train.sweep import command as sweep_command
from vaswani.train.sweep.expressions import chain, name_of, product, zipped
from vaswani.train.sweep.plan import Sweep, open_plan
from vaswani.train.sweep.point import run_child, summary
from vaswani.train.sweep.study import HeldPoint, Study
from vaswani.train.sweep.worker import Stop, Watch, work

ROOT = Path(__file__).parent.parent.parent
KNOWN = ["seed", "model.h", "model.d_k", "eval.every", "checkpoint.every", "data.train"]


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
        (lambda: zipped({"a": [1, 2], "b": [1]}), "the same number of values; a has 2, b has 1"),
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
    path = tiny.config_file(folder, tiny.training_config(folder))
    path.write_text(f"from vaswani.train.sweep.expressions import product\n{path.read_text()}\n\n{code}\n")
    return Sweep(str(path), tiny.training_config(folder), given or {})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", r"it defines no sweep\(\) \(see docs/sweeps.md\); for a search\(\), give --trials=N"),
        ("def sweep(): return []", r"sweep\(\) must return a list of points, each a dict"),
        ("def sweep(): return product({'modle.h': [2]})", r"there is no key modle.h; did you mean model.h\?"),
        (
            "def sweep(): return product({'model.h': [2, 'x']})",
            r"point h=x: config: model.h is 'x'; it must be a whole",
        ),
        ("def sweep(): return product({'model.norm': ['prae']})", r"point norm=prae: config: model.norm is 'prae'"),
        ("def sweep(): return product({'seed': [1]})", r"point seed=1 sets seed, and so does --config.seed; leave one"),
        (
            "def sweep(): return [{'model': {'h': 2}}]",
            r"the value of model is a dict; write each key with dots, like '",
        ),
        (
            "def sweep(): return product({'model': {'h': [2]}})",
            r"model is given a dict; write each key with dots, like",
        ),
        ("def sweep(): return [{}, {'model.h': 2}]", r"points base and h=2 are the same run"),
        ("def sweep(): return product({'model.h': 2})", r"sweep\(\): model.h is given 2; an axis is a list"),
        ("def sweep(): return 1 / 0", r"sweep\(\): ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_list_is_one_line_before_anything_runs(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(UserError, match=r"--config=.*tiny_config.py: .*" + message) as error:
        sweep_of(tmp_path, code, {"seed": 7} if "'seed'" in code else {}).points()
    assert "\n" not in str(error.value)


def test_a_point_changes_neither_the_next_nor_the_config(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "def sweep(): return [{'model.h': 1}, {}, {'model.N': 3}]")
    before = sweep.base.to_dict()
    assert list(sweep.points()) == ["h=1", "base", "N=3"]
    assert sweep.base.to_dict() == before


def test_the_argument_of_the_config_reaches_a_sweep_that_takes_one(tmp_path: Path) -> None:
    sweep_of(tmp_path, "def sweep(rows): return product({'seed': range(int(rows))})")
    sweep = Sweep(f"{tmp_path}/tiny_config.py:2", tiny.training_config(tmp_path), {})
    assert list(sweep.points()) == ["seed=0", "seed=1"]


@pytest.mark.filterwarnings("ignore:the load_module")  # of ml_collections
def test_the_flags_of_a_point_make_its_config(tmp_path: Path) -> None:
    changes = {
        "data.buckets": [8, 48],
        "model.tie_embeddings": False,
        "optim.lr": 2,
        "loss.eps_ls": 1e-9,
        "data.test": "a b,c",
    }
    sweep = sweep_of(tmp_path, f"def sweep(): return [{changes}]", {"steps": 5, "data.lowercase": False})
    arguments = sweep.arguments(sweep.points().popitem()[1])
    values = flags.FlagValues()
    argv = ["train", *arguments]
    config_flags.DEFINE_config_file("config", None, "", flag_values=values, sys_argv=argv)
    values(argv)
    expected = tiny.training_config(tmp_path)
    expected.update_from_flattened_dict({**changes, "data.buckets": (8, 48), "steps": 5})
    assert values.config.to_dict() == expected.to_dict()


def plan(**changes) -> dict:  # type: ignore[no-untyped-def]
    config = {"steps": 12, "eval": {"every": 4, "every_epochs": 0}}
    return {"kind": "grid", "config": config, "storage": None, "study": "s", **changes}


def opened(workdir: Path, *names: str, silence: int = 60, retry: bool = False) -> Study:
    """The sweep of a grid as one more worker would open it."""
    open_plan(workdir, plan())
    study = Study(workdir, plan(), None, silence, "none")
    study.enqueue({name: {} for name in names}, lambda trial: {}, retry=retry)
    return study


def ends(study: Study) -> dict[str, tuple[str, str]]:
    return {point.name: (point.state, point.reason) for point in study.statuses()}


def test_a_folder_holds_one_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    open_plan(folder, plan())
    open_plan(folder, plan())
    with pytest.raises(UserError, match=r"another sweep \(steps is 12 there and 13 here\)"):
        open_plan(folder, plan(config={"steps": 13, "eval": {"every": 4, "every_epochs": 0}}))
    with pytest.raises(UserError, match=r"another sweep \(kind is 'grid' there and 'search' here\)"):
        open_plan(folder, plan(kind="search"))
    with pytest.raises(UserError, match=r"another sweep \(storage is None there and 'sqlite:///x.db' here\)"):
        open_plan(folder, plan(storage="sqlite:///x.db"))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to_mother.txt").touch()
    with pytest.raises(UserError, match="not empty and not a sweep"):
        open_plan(tmp_path / "letters", plan())


def test_a_grid_may_grow_but_not_shrink(tmp_path: Path) -> None:
    opened(tmp_path, "h=1")
    grown = opened(tmp_path, "h=2", "h=1")
    assert list(ends(grown)) == ["h=1", "h=2"]
    with pytest.raises(UserError, match=r"another sweep \(sweep\(\) no longer has its point h=2\)"):
        opened(tmp_path, "h=1")


SCRIPTS = {  # what stands in for `python -m train`, by point
    "good": "print('step 1')",
    "wrong": "import sys; print('error: step 3: the loss is nan'); print('bye'); sys.exit(2)",
    "crash": "raise KeyError('x')",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "stopped": "import os, sys; from pathlib import Path; p = Path(sys.argv[1]) / 'been'; seen = p.exists(); p.touch();"
    "sys.exit(0 if seen else 143)",
}


def command(held: HeldPoint, folder: Path) -> list[str]:
    return [sys.executable, "-c", SCRIPTS[held.name], str(folder)]


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Stop()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.slow
def test_a_worker_records_each_end_and_goes_on(tmp_path: Path, stop: Stop, capfd: pytest.CaptureFixture[str]) -> None:
    study = opened(tmp_path, *SCRIPTS)
    work(study, command, stop, 0.1)
    expected = {
        "good": ("done", ""),
        "wrong": ("failed", "step 3: the loss is nan"),
        "crash": ("failed", "KeyError: 'x'"),
        "killed": ("failed", "killed by SIGKILL"),
        "stopped": ("done", ""),
    }
    assert ends(study) == expected
    again = "stopped: given back; 4 of 5 finished\nstopped: goes on, attempt 2 (5 of 5)\nstopped: done"
    assert again in capfd.readouterr().err
    assert (tmp_path / "sweep" / "logs" / "good.log").read_text() == "step 1\n"


@pytest.mark.slow
def test_a_point_that_failed_is_trained_again_when_asked(
    tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("good", "wrong")
    work(opened(tmp_path, *names), command, stop, 0.1)
    assert opened(tmp_path, *names).finished()
    monkeypatch.setitem(SCRIPTS, "wrong", SCRIPTS["good"])
    study, other = (opened(tmp_path, *names, retry=True) for _ in range(2))  # the second finds nothing that failed
    assert ends(other) == {"good": ("done", ""), "wrong": ("waiting", "")}
    work(study, command, stop, 0.1)
    assert ends(other) == {"good": ("done", ""), "wrong": ("done", "")}


@pytest.mark.slow
def test_a_worker_says_how_far_it_is(
    tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    records = [
        {"step": 4, "kind": "train", "loss": 2.0, "seconds": 90.0},
        {"step": 4, "kind": "valid", "loss": 3.0, "nll": 2.5, "perplexity": 12.0},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    monkeypatch.setitem(SCRIPTS, "good", f"import sys; open(sys.argv[1] + '/metrics.jsonl', 'w').write({lines!r})")
    work(opened(tmp_path, "wrong", "good", "crash"), command, stop, 0.1)
    assert capfd.readouterr().err.splitlines() == [
        "wrong: begins (1 of 3)",
        "wrong: failed: step 3: the loss is nan; 1 of 3 finished",
        "good: begins (2 of 3)",
        "good: done, lowest nll 2.5000; 2 of 3 finished, about 1.5 min left",
        "crash: begins (3 of 3)",
        "crash: failed: KeyError: 'x'; 3 of 3 finished",
    ]


def test_damaged_metrics_fail_their_point_alone(tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = "import sys; open(sys.argv[1] + '/metrics.jsonl', 'w').write('{}\\n')"
    monkeypatch.setitem(SCRIPTS, "wrong", writes)
    study = opened(tmp_path, "wrong", "good")
    work(study, command, stop, 0.1)
    state, reason = ends(study)["wrong"]
    assert (state, ends(study)["good"]) == ("failed", ("done", ""))
    assert reason == f"{tmp_path}/wrong/metrics.jsonl: damaged in line 1: it has no 'step'"


def test_a_signal_reaches_the_run_and_gives_the_point_back(
    tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = "import os, signal, sys, time; signal.signal(15, lambda *_: (print('saved'), sys.exit(143)));"
    monkeypatch.setitem(SCRIPTS, "good", f"{saves} os.kill(os.getppid(), 15); time.sleep(60)")
    study = opened(tmp_path, "good")
    work(study, command, stop, 0.1)
    assert stop.received == signal.SIGTERM
    assert (tmp_path / "sweep" / "logs" / "good.log").read_text() == "saved\n"
    assert ends(study) == {"good": ("interrupted", "")}
    told = []
    study.train_next(lambda point: told.append(point.attempt), told.append)
    assert told[0] == 2, "at once"


@pytest.mark.slow
def test_a_run_that_the_pruner_stops_is_pruned(tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCRIPTS, "good", "import time; time.sleep(60)")

    def worse(self: Watch) -> bool:
        self.pruned = True
        return True

    monkeypatch.setattr(Watch, "__call__", worse)
    study = opened(tmp_path, "good")
    work(study, command, stop, 0.1)
    assert ends(study) == {"good": ("pruned", "")}


@pytest.mark.slow
def test_a_run_of_a_point_that_is_lost_is_killed(
    tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SCRIPTS, "good", "import signal, time; signal.signal(15, lambda *_: None); time.sleep(60)")
    study, other = opened(tmp_path, "good"), opened(tmp_path, "good")
    report = Watch.report

    def too_late(self: Watch) -> list:
        other.study.tell(0, state=optuna.trial.TrialState.FAIL)
        monkeypatch.setitem(SCRIPTS, "good", "pass")
        monkeypatch.setattr(Watch, "report", report)
        return report(self)

    monkeypatch.setattr(Watch, "report", too_late)
    started = time.monotonic()
    work(study, command, stop, 0.1)
    assert time.monotonic() - started < 30
    told = "a point is lost to another worker\ngood: goes on, attempt 2 (1 of 1)\ngood: done"
    assert told in capfd.readouterr().err


def test_a_run_that_outlived_its_worker_is_waited_for(
    tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, waited = opened(tmp_path, "good"), []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        stop.received = signal.SIGTERM

    (tmp_path / "good").mkdir()
    with lock(tmp_path / "good"), monkeypatch.context() as patch:
        patch.setattr(stop, "pause", pause)
        work(study, command, stop, 0.1)
    assert waited == [1.0]
    assert ends(study) == {"good": ("interrupted", "")}
    assert not (tmp_path / "sweep" / "logs").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_run_dies_with_its_worker(tmp_path: Path) -> None:
    run = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    worker = f"from vaswani.train.sweep.point import run_child; from pathlib import Path; import sys;\
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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_run_whose_worker_has_ended_does_not_start() -> None:
    """Its parent is then another process, and not always process 1: under a subreaper it is that."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    command = [sys.executable, "train/sweep/lifeline.py", str(ended.pid), "echo", "started"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")


def test_records_of_a_run_that_is_being_written(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    assert summary([]) == {}
    lines = [
        {"step": 4, "kind": "valid", "loss": 3.0, "nll": 2.5, "perplexity": 12.0, "bleu": 9.0},
        {"step": 8, "kind": "train", "loss": 1.0, "seconds": 90.0},
        {"step": 8, "kind": "valid", "loss": 3.5, "nll": 2.0, "perplexity": 13.0, "bleu": 8.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 12, "ki')
    assert summary(read_metrics(tmp_path)) == {
        "step": 8,
        "minutes": 1.5,
        **{"loss": 3.5, "loss_best": 3.0, "nll": 2.0, "nll_best": 2.0},
        **{"perplexity": 13.0, "perplexity_best": 12.0, "bleu": 8.0, "bleu_best": 9.0},
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"step": 4, "kind": "valid", "loss": 3.0, "nll": "x", "perplexity": 2.0}',
            'in line 1: nll is "x"; it must be a number',
        ),
        ('{"step": 4, "kind": "train"}', "in line 1: it has no 'seconds'"),
        ("[1, 2]", "in line 1: it is"),
        ("\\x00", "in line 1, not JSON"),
    ],
)
def test_damaged_records_are_one_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=rf"metrics.jsonl: damaged.*{message}") as error:
        read_metrics(tmp_path)
    assert "\n" not in str(error.value)


def test_a_typing_error_costs_a_line_and_no_folder(tmp_path: Path) -> None:
    sweep_of(tmp_path, "def sweep(): return product({'modle.h': [2]})")
    flags_ = [f"--config={tmp_path}/tiny_config.py", f"--workdir={tmp_path}/sweep"]
    done = subprocess.run([sys.executable, "-m", "train.sweep", *flags_], cwd=ROOT, capture_output=True, text=True)
    message = f"error: --config={tmp_path}/tiny_config.py: sweep(): point h=2: there is no key modle.h"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{message}; did you mean model.h?\n"
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_warns_of_a_test_corpus_that_is_not_of_its_text(tmp_path: Path) -> None:
    sweep_of(tmp_path, "def sweep(): return product({'modle.h': [2]})")
    flags_ = [f"--config={tmp_path}/tiny_config.py", f"--workdir={tmp_path}/sweep", "--config.data.test=grammar:test:9"]
    done = subprocess.run([sys.executable, "-m", "train.sweep", *flags_], cwd=ROOT, capture_output=True, text=True)
    warning, _ = done.stderr.splitlines()
    assert warning.startswith("warning: data.test is 'grammar:test:9', of another corpus than data.train, 'text:")


# The command thrice, whose worker tells what it is given, and lets what it takes fail.
TOLD = """
import sys

from absl import flags
from optuna.pruners import HyperbandPruner

from vaswani.train.sweep import __main__ as cli
from vaswani.train.sweep import command
from vaswani.train.sweep.point import Outcome


def work(study, command, stop, every):
    states = [point.state for point in study.statuses()]
    kind = "hyperband" if isinstance(study.study.pruner, HyperbandPruner) else "another pruner"
    print(study.study.study_name, kind, *states, every, flush=True)
    if "failed" not in states:
        study.train_next(lambda point: Outcome("failed", "why", {}), lambda end: None)


command.work = work
for more in ([], [], ["--retry"]):
    flags.FLAGS.unparse_flags()
    flags.FLAGS([*sys.argv, *more])
    cli.main([])
"""


@pytest.mark.slow
def test_the_flags_of_a_search_reach_its_study(tmp_path: Path) -> None:
    sweep_of(tmp_path, "def search(trial): return {'optim.lr': trial.suggest_float('lr', 0.1, 1.0)}")
    flags_ = [f"--config={tmp_path}/tiny_config.py", f"--workdir={tmp_path}/sweep", "--trials=2"]
    flags_ += ["--study=mine", "--pruner=hyperband", "--silence=48"]
    done = subprocess.run([sys.executable, "-c", TOLD, *flags_], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("mine ")]
    assert told == [
        "mine hyperband waiting waiting 8.0",
        "mine hyperband failed waiting 8.0",
        "mine hyperband waiting waiting 8.0",
    ]


def test_the_examples_of_the_page_are_right(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "sweeps.md").read_text()
    grid, search = (block.partition("```")[0] for block in page.split("```python\n")[1:])
    (tmp_path / "heads.py").write_text(grid)
    (tmp_path / "lr.py").write_text(search)
    points = Sweep(str(tmp_path / "heads.py"), quickstart.get_config(), {}).points()
    assert len(points) == 18
    assert {"seed=0", "h=1,d_k=128,d_v=128,seed=0"} <= points.keys()
    trial = optuna.trial.FixedTrial({"lr": 1e-3, "warmup": 50, "norm": "pre"})
    assert Sweep(str(tmp_path / "lr.py"), quickstart.get_config(), {}).suggest(trial)["model.norm"] == "pre"


def test_a_grace_period_without_time_for_heartbeats_is_refused() -> None:
    command = [sys.executable, "-m", "train.sweep", "--workdir=x", "--table", "--silence=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "--silence" in done.stderr and "no sweep" not in done.stderr


def test_a_run_finds_the_code_where_an_installed_package_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no clone
    log = tmp_path / "log"
    status, _ = run_child(
        [sys.executable, "-S", "-c", "import vaswani.train"], log, lambda: False
    )  # -S: nothing installed
    assert status == 0, log.read_text()


def test_a_sweep_goes_on_with_code_that_has_newer_keys(tmp_path: Path) -> None:
    config = as_json(default())
    old = copy.deepcopy(config)
    del old["model"]["qk_norm"], old["eval"]["every_epochs"], old["cpu_bfloat16"]
    open_plan(tmp_path, plan(config=old))
    Study(tmp_path, plan(config=old), None, 60, "none")  # as the older code does
    recorded = open_plan(tmp_path, plan(config=config))
    Study(tmp_path, recorded, None, 60, "none")
    with pytest.raises(UserError, match="the study s in that storage is of another sweep"):
        Study(tmp_path, plan(config={**config, "seed": 1}), None, 60, "none")
    with pytest.raises(UserError, match=r"another sweep \(seed is 0 there and 1 here\)"):
        open_plan(tmp_path, plan(config={**config, "seed": 1}))


def test_a_run_is_not_the_train_py_of_the_folder_that_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print('the file of the user')")
    (tmp_path / "beside.py").touch()
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    assert run_child([sys.executable, "-m", "train", "--help"], log, lambda: False)[0] == 0
    assert "Trains a Transformer." in log.read_text() and "the file of the user" not in log.read_text()
    assert run_child([sys.executable, "-c", "import beside"], log, lambda: False)[0] == 0  # as a config may


def test_the_best_of_a_run_is_a_number_wherever_it_has_one() -> None:
    nan = float("nan")
    for nlls, best in (([nan, 2.0, 3.0], 2.0), ([2.0, nan, 3.0], 2.0), ([3.0, 2.0, nan], 2.0)):
        records = [{"step": step, "kind": "valid", "nll": nll} for step, nll in enumerate(nlls)]
        assert summary(records)["nll_best"] == best
    records = [{"step": step, "kind": "valid", "accuracy": value} for step, value in enumerate((0.9, 0.98, 0.95))]
    assert summary(records) == {"step": 2, "accuracy": 0.95, "accuracy_best": 0.98}
    only = summary([{"step": 1, "kind": "valid", "nll": nan}])
    assert only["nll_best"] != only["nll_best"], "NaN, where there is nothing else"


@pytest.mark.parametrize("key", ["data.train", "data.valid"])
def test_a_missing_corpus_is_one_line_before_anything_runs(tmp_path: Path, key: str) -> None:
    code = f"""
def sweep():
    return [{{}}, {{"{key}": "tsv:nowhere.tsv"}}]


def search(trial):
    return {{"{key}": "tsv:nowhere.tsv"}}
"""
    sweep = sweep_of(tmp_path, code)
    with pytest.raises(UserError, match=rf"sweep\(\): point .*: {key}: nowhere.tsv: no such file$"):
        sweep.points()
    with pytest.raises(UserError, match=rf"search\(\): {key}: nowhere.tsv: no such file$"):
        sweep.suggest(None)


def test_a_config_file_needs_no_ending(tmp_path: Path) -> None:
    code = tiny.config_file(tmp_path, tiny.training_config(tmp_path)).read_text()
    (tmp_path / "heads").write_text(f"{code}\n\ndef sweep(): return [{{'model.N': 1}}]\n")
    assert [*Sweep(str(tmp_path / "heads"), tiny.training_config(tmp_path), {}).points()] == ["N=1"]


def test_a_sweep_in_a_renamed_folder_keeps_the_name_of_its_study(tmp_path: Path) -> None:
    assert sweep_command._study_of(tmp_path / "new") == "new"
    plan = {"kind": "grid", "config": {"steps": 9, "eval": {"every": 3}}, "storage": None, "study": "a"}
    (tmp_path / "b" / "sweep").mkdir(parents=True)
    write_json(tmp_path / "b" / "sweep" / "plan.json", plan)
    assert sweep_command._study_of(tmp_path / "b") == "a"
