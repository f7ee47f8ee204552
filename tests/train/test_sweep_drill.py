"""The sweep drill: four workers, 24 runs, two workers killed at random moments; nothing is lost or done twice.

    python -m pytest -m long tests/train/test_sweep_drill.py -s

DRILL_SEED chooses the moments; the numbers are printed.
"""

import json
import os
import pwd
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiny
from tests.extras import needed
from tests.train.test_train_cli import ENVIRONMENT, ROOT

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]
RUNS, WORKERS, KILLED = 24, 4, 2
SEED = int(os.environ.get("DRILL_SEED", "0"))
CONFIG = """

def sweep():
    return product({"seed": range(24)})


def search(trial):
    return {"seed": trial.suggest_int("seed", 0, 9), "optim.lr": trial.suggest_categorical("lr", [0.5, 1.0, 2.0])}
"""


class Workers:
    """The same command, as often as there are workers."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        cfg = tiny.training_config(folder)
        cfg.eval.every = 4
        config = tiny.config_file(folder, cfg)
        config.write_text("from vaswani.train.sweep.expressions import product\n" + config.read_text() + CONFIG)
        self.workdir = folder / "sweep"
        self.flags = [f"--workdir={self.workdir}", *(a for a in arguments if a.startswith("--storage"))]
        self.logs = [folder / f"worker-{number}.log" for number in range(WORKERS)]
        command = [sys.executable, "-m", "train.sweep", f"--config={config}", f"--workdir={self.workdir}"]
        command += ["--silence=30", *arguments]
        self.processes = []
        for log in self.logs:
            with log.open("w") as stderr:
                self.processes.append(subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=stderr))

    def says(self, what: str) -> Counter[str]:
        """How often each point has been said to be `what`, by whichever worker."""
        lines = [line for log in self.logs for line in log.read_text().splitlines()]
        return Counter(line.partition(":")[0] for line in lines if f": {what}" in line)

    def table(self) -> list[dict]:
        command = [sys.executable, "-m", "train.sweep", *self.flags, "--json"]
        return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)

    def running(self) -> int:
        """How many training processes there are in the sweep's folder."""
        count = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            count += b"train" in command and any(str(self.workdir).encode() in argument for argument in command)
        return count


def drill(folder: Path, *arguments: str) -> None:
    """Runs it, kills two workers while they train, and checks every point."""
    started, moments = time.monotonic(), random.Random(SEED)
    workers = Workers(folder, *arguments)
    killed = []
    try:
        for number in moments.sample(range(WORKERS), KILLED):
            enough = moments.randrange(1, RUNS // 2)
            while len(workers.says("done")) + len(workers.says("pruned")) < enough:
                assert any(process.poll() is None for process in workers.processes), workers.logs[0].read_text()
                time.sleep(0.2)
            time.sleep(moments.uniform(0.0, 10.0))
            workers.processes[number].kill()
            lines = workers.logs[number].read_text().splitlines()
            killed.append(f"worker {number} after {time.monotonic() - started:.0f} s ({lines[-1]})")
        statuses = [process.wait() for process in workers.processes]
    finally:
        for process in workers.processes:
            process.kill()
            process.wait()
    rows = workers.table()
    states, attempts = Counter(row["state"] for row in rows), workers.says("begins") + workers.says("goes on")
    print(
        f"\n{' '.join(arguments) or 'grid'}: {RUNS} runs, {WORKERS} workers, seed {SEED}, "
        f"{time.monotonic() - started:.0f} s\n  killed: {'; '.join(killed)}\n  exit statuses: {statuses}\n"
        f"  states: {dict(states)}; taken up again: {sorted(name for name, n in attempts.items() if n > 1)}\n"
        f"  ends recorded: {sum((workers.says('done') + workers.says('pruned')).values())}; "
        f"training processes left: {workers.running()}"
    )
    assert sorted(statuses) == [-9] * KILLED + [0] * (WORKERS - KILLED)
    assert workers.running() == 0
    assert len(rows) == RUNS
    assert states["done"] + states["pruned"] == RUNS
    ends = workers.says("done") + workers.says("pruned")
    # A worker may be killed between the record and the line that tells of it; never are there two lines.
    assert set(ends.values()) == {1}
    assert RUNS - KILLED <= len(ends) <= RUNS
    for row in rows:
        records = (workers.workdir / row["name"] / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line)["step"] for line in records if json.loads(line)["kind"] == "valid"]
        assert steps == ([4, 8, 12] if row["state"] == "done" else [4, 8, 12][: len(steps)])
        assert "loss" in row["summary"]


def test_a_grid(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_search(tmp_path: Path) -> None:
    drill(tmp_path, f"--trials={RUNS}")


def test_a_grid_in_postgresql(tmp_path: Path, postgresql: str) -> None:
    drill(tmp_path, f"--storage={postgresql}")


def test_a_search_in_postgresql(tmp_path: Path, postgresql: str) -> None:
    drill(tmp_path, f"--trials={RUNS}", f"--storage={postgresql}")


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The URL of a database that exists only for this test, reached through a socket; it refuses to run as root."""
    needed("psycopg")
    tools = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which("initdb", path=os.pathsep.join([*map(str, reversed(tools)), os.environ["PATH"]]))
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = None if os.geteuid() else "postgres" if "postgres" in names else "nobody"
    folder = Path(tempfile.mkdtemp(prefix="sweep"))
    if user:
        shutil.chown(folder, user)
    bin_, quiet = Path(found).parent, {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    initdb = [bin_ / "initdb", f"--pgdata={folder}/data", "--auth=trust", "--username=sweep", "--no-sync"]
    subprocess.run(initdb, user=user, cwd=folder, check=True, **quiet)  # type: ignore[call-overload]
    serve = [bin_ / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen(serve, user=user, cwd=folder, **quiet)  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + 60
        ready = [bin_ / "pg_isready", "-q", "-h", folder]
        while subprocess.run(ready).returncode:
            assert server.poll() is None and time.monotonic() < deadline, "PostgreSQL does not start"
            time.sleep(0.1)
        yield f"postgresql+psycopg://sweep@/postgres?host={folder}"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)
