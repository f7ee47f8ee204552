"""Runs in a bucket, on a server of this machine: all that is promised of local folders, and what a bucket cannot do."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests import tiny
from tests.emulator import BUCKET, Emulator, Proxy, emulator, environment
from tests.extras import needed
from tests.run.test_checkpoint import assert_equal, filled, keep, state
from tests.run.test_distributed import finish, launch
from tests.run.test_faults import config, records
from tests.train.test_train_cli import ROOT
from vaswani.errors import UserError
from vaswani.files import as_path, output_file, output_folder
from vaswani.infer.inspect import summary
from vaswani.run import checkpoint, saved
from vaswani.run.averaging import load_choice
from vaswani.run.checkpoint import Checkpoints, load_params
from vaswani.run.lock import check_ours, lock
from vaswani.train import loop
from vaswani.train.overview.find_runs import find_runs

GCSFileSystem = needed("gcsfs").GCSFileSystem

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # gcsfs leaves its sessions to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with emulator(tmp_path_factory.mktemp("bucket")) as running:
        yield running


@pytest.fixture
def place(server: Emulator, request: pytest.FixtureRequest) -> Path:
    """A folder of a test's own in the bucket."""
    return as_path(f"gs://{BUCKET}/{re.sub(r'[^a-z0-9]+', '-', request.node.name)}")


def on_disk(server: Emulator, path: Path) -> Path:
    return server.folder / str(path).removeprefix("gs://")


@pytest.fixture(scope="module")
def undisturbed(server: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a corpus and of a local run of 12 updates, `run`, with checkpoints 4, 8 and 12."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert loop.train(config(folder), folder / "run") == 0
    return folder


def test_a_run_in_a_bucket_resumes_and_ends_with_the_bits_of_a_local_one(undisturbed: Path, place: Path) -> None:
    assert loop.train(config(undisturbed, steps=8), place) == 0
    assert loop.train(config(undisturbed), place) == 0
    for step in (4, 8, 12):
        jax.tree.map(np.testing.assert_array_equal, load_params(place, step), load_params(undisturbed / "run", step))
    assert records(place) == records(undisturbed / "run")
    assert summary(place)["params_sha256"] == summary(undisturbed / "run")["params_sha256"]
    steps, params = load_choice(place, "average:2")
    assert_equal(params, load_choice(undisturbed / "run", "average:2")[1])
    assert steps == [8, 12]
    assert any((place / "tensorboard").iterdir())


def test_checkpoints_are_kept_deleted_and_verified_as_on_a_disk(server: Emulator, place: Path) -> None:
    steps = {1: {"nll": 1.0}, 2: {"nll": 2.0}, 3: None, 4: {"nll": 3.0}}
    checkpoints = filled(place / "checkpoints", steps, keep_last=1, keep_best=1)
    checkpoints.close()
    assert saved.steps(place / "checkpoints") == [4, 1]
    assert sorted(path.name for path in (place / "checkpoints").iterdir()) == ["1", "4"]
    assert checkpoint._fault(place / "checkpoints" / "4") is None
    array = next(on_disk(server, place / "checkpoints/4/state").glob("ocdbt.process_0/d/*"))
    array.write_bytes(array.read_bytes()[:-1])
    with closing(Checkpoints(place / "checkpoints", keep())) as again:
        assert again.latest() == 1
        again.add_validation(1, {"nll": 0.5}, has_ended=False)
        assert_equal(again.restore(jax.eval_shape(lambda: state(0)))[0], state(1))
    assert (place / "checkpoints" / "4.damaged" / "SHA256SUMS").is_file()
    assert saved.about(place / "checkpoints" / "1").metrics == {"nll": 0.5}


def test_a_checkpoint_without_its_marker_is_none(server: Emulator, place: Path) -> None:
    filled(place / "checkpoints", {1: None, 2: None}).close()
    for name in ("commit_success.txt", "SHA256SUMS"):
        (place / "checkpoints" / "2" / name).unlink()
    with closing(Checkpoints(place / "checkpoints", keep())) as checkpoints:
        assert checkpoints.steps() == [1]
    assert not (place / "checkpoints" / "2").exists()


def test_the_process_that_started_last_holds_a_folder_and_the_one_before_saves_no_more(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lock(place), closing(filled(place / "checkpoints", {1: None})) as checkpoints:
        check_ours(place)
        monkeypatch.setattr("vaswani.run.lock._SINCE", "later")
        with lock(place):
            check_ours(place)
            monkeypatch.undo()
            with pytest.raises(UserError, match=r"another process has started training in this folder \(pid \d+ on"):
                checkpoints.save(2, state(2), {}, None, {})
    assert saved.steps(place / "checkpoints") == [1]


def test_of_two_that_take_a_folder_over_at_once_one_sees_the_other(place: Path) -> None:
    """Both have read the same version of the lock; the server takes only one of them for the next."""
    (place / "lock").write_text("before")
    generation = (place / "lock").generation()
    assert (place / "lock").write_over(generation, b"one")
    assert not (place / "lock").write_over(generation, b"other")
    assert (place / "lock").read_text() == "one"
    assert (place / "new").write_over(0, b"one")
    assert not (place / "new").write_over(0, b"other")


def test_a_write_that_is_sent_again_after_the_server_has_stored_it_is_ours(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost: the server refuses the second request, for the first has made another generation."""
    request = GCSFileSystem.call

    def twice(files: GCSFileSystem, method: str, *arguments: Any, **options: Any) -> Any:
        if method == "POST":
            request(files, method, *arguments, **options)
        return request(files, method, *arguments, **options)

    monkeypatch.setattr(GCSFileSystem, "call", twice)
    assert (place / "lock").write_over(0, b"one")
    assert not (place / "lock").write_over(0, b"other")


def test_what_is_not_for_a_bucket_is_one_line(place: Path, undisturbed: Path) -> None:
    cfg = config(undisturbed)
    cfg.data.cache = str(place)
    with pytest.raises(UserError, match=rf"^--config.data.cache={place}: this must be on the machine's own disk"):
        loop.train(cfg, place / "run")
    with pytest.raises(UserError, match="name a bucket"):
        output_folder("workdir", "gs://")
    with pytest.raises(UserError, match="only gs:// and mounted file systems are supported"):
        output_folder("workdir", "s3://bucket/run")
    assert output_file("output", f"{place}/x.svg", (".svg",)) == place / "x.svg"
    command = [sys.executable, "-m", "train.sweep", f"--config={ROOT}/configs/ablations.py", f"--workdir={place}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.startswith(f"error: --workdir={place}: a study in SQLite cannot be in a bucket: give a ")
    assert done.stderr.endswith("database, --storage=URL\n")


def test_a_hundred_runs_are_listed_in_few_requests(
    undisturbed: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config.json", "run.json", "metrics.jsonl"):
        content = (undisturbed / "run" / name).read_bytes()
        with ThreadPoolExecutor(32) as threads:
            written = [threads.submit((place / str(i) / name).write_bytes, content) for i in range(100)]
        assert all(each.result() for each in written)
    requests = []
    send = GCSFileSystem._request

    def counted(*args: Any, **options: Any) -> Any:
        requests.append(args)
        return send(*args, **options)

    monkeypatch.setattr(GCSFileSystem, "_request", counted)
    runs = find_runs([str(place)])
    assert len(runs) == 100 and {run.state for run in runs} == {"done"}
    # One lists a run's folder, one reads each of its three files. gcsfs looks for an object and a folder at once to see
    # whether config.json and run.json are there; chance decides if the second request is sent before it is cancelled.
    assert len(requests) < 12 * len(runs)


def test_the_folders_of_others_are_refused(place: Path, undisturbed: Path) -> None:
    (place / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="this folder is not empty and not a run"):
        loop.train(config(undisturbed), place)


def test_an_import_is_written_to_a_bucket(place: Path) -> None:
    from vaswani.infer.convert.folders import new_folder

    with new_folder("output", place) as draft:
        (draft / "sub").mkdir()
        (draft / "sub" / "file").write_text("text")
        assert not place.exists()
    assert (place / "sub" / "file").read_text() == "text"
    with pytest.raises(UserError, match="it exists already"), new_folder("output", place):
        pass


@pytest.mark.slow
def test_a_server_that_is_away_for_ten_seconds_in_the_middle_of_a_save_and_fails_at_random_loses_nothing(
    server: Emulator, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import sys; from vaswani.files import as_path; from tests.run.test_checkpoint import filled\n"
        "filled(as_path(sys.argv[1]), {1: None, 2: None, 3: None}).close()"
    )
    with Proxy(server) as proxy:
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        proxy.fail_every = 20
        child = subprocess.Popen([sys.executable, "-c", script, str(place / "checkpoints")], cwd=ROOT)
        while not (on_disk(server, place) / "checkpoints/2/_CHECKPOINT_METADATA").exists():
            assert child.poll() is None
            time.sleep(0.01)
        proxy.away = True
        time.sleep(10)
        proxy.away = False
        assert child.wait(timeout=240) == 0
        assert proxy.failed > 2
    monkeypatch.undo()
    assert saved.steps(place / "checkpoints") == [3, 2, 1]
    assert all(checkpoint._fault(place / "checkpoints" / str(step)) is None for step in (1, 2, 3))


@pytest.mark.slow
def test_a_server_that_is_away_for_good_ends_the_training_in_one_line(
    undisturbed: Path, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with emulator(tmp_path / "buckets") as own:
        cfg = config(undisturbed, steps=1_000_000, checkpoint__every=100, eval__every=100)
        command = [sys.executable, "-m", "train", f"--config={tiny.config_file(tmp_path, cfg)}", f"--workdir={place}"]
        child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        while not (on_disk(own, place) / "checkpoints/100/SHA256SUMS").exists():
            assert child.poll() is None
            time.sleep(0.01)
        own.stop()
        err = child.communicate(timeout=240)[1]
    assert child.returncode == 2
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "the bucket cannot be reached" in errors[0] and "Traceback" not in err


@pytest.mark.slow
def test_two_processes_save_into_a_bucket_as_one(undisturbed: Path, place: Path) -> None:
    cfg = config(undisturbed)
    command = ["train", f"--config={tiny.config_file(undisturbed, cfg)}", f"--workdir={place}"]
    finish(launch(command, 2, 1))
    alone = undisturbed / "run"
    assert saved.steps(place / "checkpoints") == [12, 8, 4]
    assert checkpoint._fault(place / "checkpoints" / "12") is None
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5), load_params(place, 12), load_params(alone, 12)
    )
    assert [record["step"] for record in records(place)] == [record["step"] for record in records(alone)]
    with closing(Checkpoints(place / "checkpoints", keep())) as checkpoints:  # one process goes on
        assert checkpoints.latest() == 12


@pytest.mark.parametrize(
    ("status", "said", "line"),
    [
        (401, "Anonymous caller does not have storage.objects.list access", "Google does not accept the credentials"),
        (403, "me@x does not have storage.objects.list access", "permission denied (me@x does not have"),
    ],
)
def test_a_bucket_that_may_not_be_read_is_one_line(
    server: Emulator, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, status: int, said: str, line: str
) -> None:
    place = as_path(f"gs://{BUCKET}/run")
    with Proxy(server) as proxy:
        proxy.refusal = status, json.dumps({"error": {"code": status, "message": said}})
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        exit_status, err = refused(undisturbed, place)
    assert exit_status == 2
    assert err.startswith(f"error: {place}") and err.count("\n") == 1 and line in err


def refused(undisturbed: Path, place: Path) -> tuple[int, str]:
    """Returns status and stderr of a training that is to be refused before it says anything else."""
    command = [sys.executable, "-m", "train", f"--config={tiny.config_file(undisturbed, config(undisturbed))}"]
    done = subprocess.run([*command, f"--workdir={place}"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_bucket_that_does_not_exist_is_one_line(server: Emulator, undisturbed: Path) -> None:
    told = "error: gs://nowhere/run: there is no bucket nowhere\n"
    assert refused(undisturbed, as_path("gs://nowhere/run")) == (2, told)
