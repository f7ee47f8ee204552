"""Two processes of four devices each train, validate, decode and save as one, and others can resume their run."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from tests.train.test_train_cli import ENVIRONMENT, ROOT, wait_for
from vaswani import compiled
from vaswani.errors import UserError
from vaswani.run import distributed
from vaswani.run.checkpoint import load_params
from vaswani.run.connect import connect

pytestmark = pytest.mark.slow
# What the CPU's collectives print, several threads at a time, so that one line may lie within another.
GLOO = re.compile(r"(gloo|rank|is|connected|to|peer|ranks|expected|number|of|\d|[][.:\s])*", re.IGNORECASE)
STEPS = 8
EVERY = 4


def config(folder: Path) -> ConfigDict:
    """A batch of 13 rows, which no number of devices divides; validation and translation halfway and at the end."""
    cfg = tiny.training_config(folder)
    cfg.steps, cfg.log_every, cfg.checkpoint.every, cfg.eval.every = STEPS, 1, EVERY, EVERY
    cfg.data.tokens_per_batch = 13 * 48
    cfg.eval.bleu_sentences, cfg.decode.extra_length = 6, 3
    return cfg


def start(folder: Path, workdir: Path, processes: int, devices: int, *more: str) -> list[subprocess.Popen[str]]:
    """Starts training in several processes, each with its own devices."""
    return launch(["train", f"--config={folder}/tiny_config.py", f"--workdir={workdir}", *more], processes, devices)


def launch(
    module: list[str], processes: int, devices: int, own_flags: tuple[list[str], ...] = ()
) -> list[subprocess.Popen[str]]:
    """Starts a command in several processes, each with flags of its own."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"--coordinator=localhost:{free.getsockname()[1]}"
    command = [sys.executable, "-m", *module]
    return [
        subprocess.Popen(
            [
                *command,
                *([coordinator, f"--processes={processes}", f"--process={i}"] if processes > 1 else []),
                *(own_flags[i] if own_flags else []),
            ],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, "JAX_NUM_CPU_DEVICES": str(devices)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]


def finish(started: list[subprocess.Popen[str]], status: int = 0) -> list[str]:
    """Waits for all of them; returns their stdout."""
    try:
        said = [process.communicate(timeout=600) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [status] * len(started), "\n---\n".join(e for _, e in said)
    return [out for out, _ in said]


def records(workdir: Path) -> list[dict]:
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def results(workdir: Path) -> list[tuple]:
    """Step, kind, loss and BLEU of every record: what must not depend on who computed it."""
    return [(r["step"], r["kind"], r["loss"], r.get("bleu", 0.0)) for r in records(workdir)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes, undisturbed, as `whole`, and as it stood halfway, as `half`."""
    folder = tmp_path_factory.mktemp("distributed")
    tiny.config_file(folder, config(folder))
    finish(start(folder, folder / "whole", 2, 4))
    half = shutil.copytree(folder / "whole", folder / "half")
    shutil.rmtree(half / "checkpoints" / str(STEPS))
    lines = (half / "metrics.jsonl").read_text().splitlines(keepends=True)
    (half / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= EVERY))
    return folder


def test_two_processes_train_validate_decode_and_save_as_one(folder: Path) -> None:
    kinds = [(step, kind) for step, kind, _, _ in results(folder / "whole")]
    assert kinds.count((EVERY, "valid")) == kinds.count((STEPS, "valid")) == 1
    assert [step for step, kind in kinds if kind == "train"] == list(range(1, STEPS + 1))
    launch = json.loads((folder / "whole" / "run.json").read_text())["launches"]
    assert [one["device"]["count"] for one in launch] == [8]


@pytest.mark.parametrize(("processes", "devices"), [(2, 4), (1, 8), (1, 1)])
def test_others_take_over_where_two_processes_stopped(folder: Path, processes: int, devices: int) -> None:
    workdir = folder / f"resumed_{processes}x{devices}"
    shutil.copytree(folder / "half", workdir)
    finish(start(folder, workdir, processes, devices))
    whole, resumed = results(folder / "whole"), results(workdir)
    assert [one[:2] for one in resumed] == [one[:2] for one in whole]
    for one, other in zip(resumed, whole, strict=True):
        assert one[2:] == pytest.approx(other[2:], rel=1e-5)
    if processes == 2:
        assert resumed == whole
        params = [load_params(folder / name, STEPS) for name in (workdir.name, "whole")]
        jax.tree.map(np.testing.assert_array_equal, *params)


@pytest.mark.slow
def test_two_processes_evaluate_as_one(folder: Path) -> None:
    command = ["infer", f"--workdir={folder}/whole", "--split=valid", "--json"]
    both, alone = finish(launch(command, 2, 4)), finish(launch(command, 1, 1))
    assert GLOO.fullmatch(both[1])  # the second process prints no result
    one, other = json.loads(both[0][both[0].index("{") :]), json.loads(alone[0])
    for key in ("sacrebleu", "chrf", "exact_match", "perplexity", "params_sha256", "sentences"):
        assert one[key] == (pytest.approx(other[key], rel=1e-5) if isinstance(one[key], float) else other[key])


@pytest.mark.slow
def test_sigterm_to_one_process_stops_both_after_the_same_update(folder: Path) -> None:
    workdir = folder / "stopped"
    both = start(folder, workdir, 2, 4, "--config.steps=1000000", "--config.checkpoint.every=1000000")
    deadline = time.monotonic() + 300
    while not ((workdir / "metrics.jsonl").exists() and len((workdir / "metrics.jsonl").read_text().splitlines()) > 2):
        assert time.monotonic() < deadline and all(process.poll() is None for process in both)
        time.sleep(0.05)
    both[1].terminate()
    finish(both, status=143)
    (step,) = (int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit())
    assert step >= 3


def test_others_open_the_folders_again_in_which_process_0_has_made_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS goes on saying that a name is absent until its folder is opened."""
    place = tmp_path / "runs" / "base"
    place.mkdir(parents=True)
    seen: list[Any] = []

    def opened(path: Any, *how: int) -> int:
        seen.append(path)
        return real_open(path, *how)

    real_open = os.open
    monkeypatch.setattr(distributed, "is_main", lambda: False)
    monkeypatch.setattr(distributed, "_meet", seen.append)
    monkeypatch.setattr(os, "open", opened)
    with distributed.main_first("data", place):
        assert seen[0] == "data"
        assert seen[-3:] == [tmp_path, tmp_path / "runs", place]


@pytest.mark.parametrize(("processes", "keeps"), [(1, True), (2, False)])
def test_a_process_that_is_connected_to_itself_alone_keeps_its_programs(
    monkeypatch: pytest.MonkeyPatch, processes: int, keeps: bool
) -> None:
    """As with all three flags."""
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *flags: None)
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    monkeypatch.setattr(compiled, "is_own_folder", lambda: True)
    before = jax.config.jax_enable_compilation_cache
    try:
        connect(SimpleNamespace(coordinator="localhost:1234", processes=processes, process=0))
        assert jax.config.jax_enable_compilation_cache == keeps
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


@pytest.mark.parametrize("stops_together", [True, False])
def test_jax_takes_sigterm_only_where_processes_stop_together(
    monkeypatch: pytest.MonkeyPatch, stops_together: bool
) -> None:
    """An evaluation has no steps to agree on, and would not end."""
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *flags: None)
    before = jax.config.jax_enable_preemption_service
    try:
        connect(SimpleNamespace(coordinator=None, processes=None, process=None), stops_together=stops_together)
        assert jax.config.jax_enable_preemption_service == stops_together
    finally:
        jax.config.update("jax_enable_preemption_service", before)


def test_a_cluster_manager_whose_processes_do_not_answer_is_not_called_a_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*flags: object) -> None:
        raise RuntimeError("DEADLINE_EXCEEDED: 1 of 2 tasks\nand more")

    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(jax.distributed, "initialize", fail)
    monkeypatch.setattr("vaswani.run.connect._launched_together", lambda: 2)
    with pytest.raises(UserError, match=r"^this cluster manager's job: .* \(DEADLINE_EXCEEDED: 1 of 2 tasks\)$"):
        connect(SimpleNamespace(coordinator=None, processes=None, process=None))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("localhost:1234", 2, None), "go together: give all three or none"),
        (("localhost:1234", 2, 2), r"^--process=2: it must be from 0 to 1, since --processes=2$"),
        (("localhost", 2, 0), r"^--coordinator=localhost: it must be HOST:PORT, like 10\.0\.0\.1:1234$"),
        (("localhost:http", 2, 0), "it must be HOST:PORT"),
    ],
)
def test_flags_that_cannot_be_right_are_refused_at_once(flags: tuple[str, int, int | None], message: str) -> None:
    coordinator, processes, process = flags
    with pytest.raises(UserError, match=message):
        connect(SimpleNamespace(coordinator=coordinator, processes=processes, process=process))


def test_a_process_that_is_alone_is_not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """jax would take a port that a second command on this machine takes, too, and end both."""
    step = {"JOB_ID": "1", "STEP_NODELIST": "localhost", "NTASKS": "1", "PROCID": "0", "LOCALID": "0"}
    for name, value in step.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    connected: list[Any] = []
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *flags: connected.append(flags))
    monkeypatch.setattr(compiled, "is_own_folder", lambda: False)
    connect(SimpleNamespace(coordinator=None, processes=None, process=None))
    monkeypatch.setenv("SLURM_NTASKS", "2")
    connect(SimpleNamespace(coordinator=None, processes=1, process=None))
    assert connected == []
    connect(SimpleNamespace(coordinator=None, processes=None, process=None))
    assert connected == [(None, None, None)]


@pytest.mark.parametrize("other", [0, 1])
def test_processes_that_have_read_other_data_are_refused(monkeypatch: pytest.MonkeyPatch, other: int) -> None:
    manifests = {"train": {"sha256": {"ids.bin": "ab"}}, "valid": {"sha256": {"ids.bin": "cd"}}}

    def gathered(own_k: np.ndarray) -> np.ndarray:
        return np.stack([own_k, own_k + np.uint32(other)])

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(distributed.multihost_utils, "process_allgather", gathered)
    if other == 0:
        distributed.check_same_data(manifests)
        return
    with pytest.raises(UserError, match=r"^the data of process 1 differ from process 0's; data\.train "):
        distributed.check_same_data(manifests)


def test_processes_with_other_configs_are_refused(tmp_path: Path) -> None:
    tiny.config_file(tmp_path, config(tmp_path))
    where = [f"--config={tmp_path}/tiny_config.py", f"--workdir={tmp_path}/run", "--config.steps=2"]
    both = launch(["train", *where], 2, 1, ([], ["--config.optim.lr=30.0"]))
    finish(both, status=2)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_an_error_of_one_process_has_its_status_and_ends_the_others_soon(tmp_path: Path) -> None:
    """At exit jax would wait five minutes for the others, which wait for this one, and then abort."""
    tiny.config_file(tmp_path, config(tmp_path))
    where = [f"--config={tmp_path}/tiny_config.py", f"--workdir={tmp_path}/run"]
    both = launch(["train", *where, "--config.data.train=lines:/nowhere"], 2, 1)
    try:
        _, told = both[0].communicate(timeout=200)
        both[1].communicate(timeout=60)
    finally:
        for process in both:
            process.kill()
            process.communicate()
    assert both[0].returncode == 2
    assert told.count("error: data.train") == 1
    assert both[1].returncode != 0


def test_a_process_that_is_killed_ends_the_other_soon_and_in_one_line(tmp_path: Path) -> None:
    """jax would wait 100 seconds for its heartbeat, and then abort the other."""
    cfg = config(tmp_path)
    cfg.steps = 1_000_000
    tiny.config_file(tmp_path, cfg)
    both = start(tmp_path, tmp_path / "run", 2, 1)
    try:
        wait_for(tmp_path / "run" / "metrics.jsonl", both[0])
        both[1].kill()
        _, told = both[0].communicate(timeout=40)
    finally:
        for process in both:
            process.kill()
            process.communicate()
    assert both[0].returncode == 2
    assert "Traceback" not in told
    assert told.count("error: another process of this run has ended, or cannot be reached: ") == 1


def test_processes_of_an_open_mpi_that_jax_does_not_see_are_not_taken_for_single_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMPI_MCA_orte_hnp_uri", raising=False)  # as of release 5
    for name, value in {"PRTE_LAUNCHED": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    connected: list[Any] = []
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *flags: connected.append(flags))
    connect(SimpleNamespace(coordinator=None, processes=1, process=None))
    with pytest.raises(UserError, match=r"^mpirun has started 2 processes, .*COMM_WORLD_RANK"):
        connect(SimpleNamespace(coordinator=None, processes=None, process=None))
    assert connected == []
