"""A sweep on several machines without a database server: through the proxy of Optuna that docs/sweeps.md starts."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import GrpcStorageProxy

from tests import tiny
from tests.extras import needed
from tests.train.test_train_cli import ENVIRONMENT, ROOT
from vaswani.errors import UserError
from vaswani.train.sweep.plan import open_plan
from vaswani.train.sweep.point import Outcome
from vaswani.train.sweep.study import Study

pytestmark = pytest.mark.slow
CONFIG = {"steps": 1, "eval": {"every": 1, "every_epochs": 0}}
DONE = Outcome("done", "", {})


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """The page's proxy: its URL, and its process."""
    needed("grpc")
    page = (ROOT / "docs" / "sweeps.md").read_text()
    found = re.search(r"python -c '(.*?run_grpc_proxy_server\(.*?)'\n", page, re.DOTALL)
    assert found
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    code = found[1].replace("0.0.0.0", "localhost").replace("13000", str(port))
    assert str(port) in code
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path)
    try:
        yield f"grpc://localhost:{port}", server
    finally:
        server.terminate()
        server.wait()


def test_two_workers_with_folders_of_their_own_share_the_points(
    tmp_path: Path, proxy: tuple[str, subprocess.Popen]
) -> None:
    url, _ = proxy
    config = tiny.config_file(tmp_path, tiny.training_config(tmp_path))
    config.write_text(config.read_text() + "\n\ndef sweep():\n    return [{'seed': seed} for seed in range(4)]\n")
    command = [sys.executable, "-m", "train.sweep", f"--storage={url}", "--study=s"]
    workers = []
    for name in ("here", "there"):
        arguments = [*command, f"--config={config}", f"--workdir={tmp_path / name}"]
        workers.append(subprocess.Popen(arguments, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True))
    said = [worker.communicate()[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said
    assert all("begins" in lines for lines in said), "each has trained some"
    assert sorted(re.findall(r"^(seed=\d): done", "".join(said), re.MULTILINE)) == [f"seed={seed}" for seed in range(4)]
    table = [*command[:4], f"--workdir={tmp_path}/there", "--json"]
    rows = json.loads(subprocess.run(table, cwd=ROOT, capture_output=True, check=True).stdout)
    assert {(row["name"], row["state"], row["summary"]["step"]) for row in rows} == {
        (f"seed={seed}", "done", 12) for seed in range(4)
    }


def test_the_point_of_a_dead_worker_is_trained_when_retry_says_so(
    tmp_path: Path, proxy: tuple[str, subprocess.Popen]
) -> None:
    url, server = proxy
    plan = {"kind": "grid", "config": CONFIG, "storage": url, "study": "s"}

    def opened(retry: bool) -> Study:
        open_plan(tmp_path, plan)
        study = Study(tmp_path, plan, url, 60, "none")
        study.enqueue({"base": {}}, lambda trial: {}, retry=retry)
        return study

    opened(retry=False)
    storage = GrpcStorageProxy(port=int(url.rpartition(":")[2]))
    optuna.load_study(study_name="s", storage=storage).ask()  # by a worker that is killed
    study = opened(retry=False)
    ends: list = []
    assert not study.train_next(lambda point: DONE, ends.append) and not study.finished()
    assert not study.has_heartbeats, "so that it does not wait for ever"
    assert opened(retry=True).train_next(lambda point: DONE, ends.append)
    assert [(end.name, end.state) for end in ends] == [("base", "done")]
    assert study.finished()
    server.terminate()
    server.wait()
    with pytest.raises(UserError, match=r"^--storage: (?!<)\S.*onnect"):
        study.finished()
