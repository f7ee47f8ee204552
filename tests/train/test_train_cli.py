"""`python -m train` as a user runs it: a one-line error for each mistake, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tiny
from vaswani.run import saved

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = {
    **os.environ,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",  # fewer writes where a test limits the size of files
}


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "train", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True)


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 300.0) -> None:
    """Returns once `path` exists and is not empty; fails if the process ends before."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and (path.is_dir() or path.stat().st_size)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"no {path.name} after {seconds} s"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.modle.N=3"], "error: --config.modle.N: there is no such key; did you mean model.N?"),
        (
            ["--config.steps=1e6"],
            "error: --config.steps=1e6: wrong type; a whole number has no point and no exponent: 1000000",
        ),
        (["--config.optim.lr='1e-4'"], "error: --config.optim.lr='1e-4': wrong type; leave out the quotes: 1e-4"),
        (
            ["--config.model.tie_embeddings=no"],
            "error: --config.model.tie_embeddings=no: wrong type; write True or False",
        ),
        (["--config.steps=ten"], "error: --config.steps=ten: wrong type; write, for example, 100000"),
        (["--config.model.P_drop=2.0"], "error: config: model.P_drop is 2.0; it must be at least 0 and below 1"),
        (
            ["--config.seed=99999999999999999999"],
            "error: config: seed is 99999999999999999999; it must be a whole number up to 2147483647, like 0",
        ),
        (
            ["--config.data.vocab_size=2147483648"],
            "error: config: data.vocab_size is 2147483648; it must be a whole number up to 2147483647, like 37000",
        ),
        (
            ["--config.data.vocab_size=100000000"],
            "error: config: data.vocab_size is 100000000; it must be at most 1,000,000",
        ),
        (["--config.optim.lr=nan"], "error: config: optim.lr is nan; it must be a finite number, like 1.0"),
        (
            ["--config.model.attention_impl=splash"],
            "error: config: model.attention_impl is 'splash', which needs a TPU, and jax has found only a CPU: use "
            "--config.model.attention_impl=auto, or pip install -e '.[tpu]' where there is a TPU",
        ),
        (
            ["--workdir=s3://bucket/run", "--config.steps=0"],
            "error: --workdir=s3://bucket/run: this is a URL; only gs:// and mounted file systems are supported: "
            "mount the bucket, and give its mount point",
        ),
        (["--steps=10"], "error: there is no flag --steps; did you mean --config.steps?"),
        (["--config=quickstart"], "error: --config=quickstart: no such file; did you mean configs/quickstart.py?"),
        (["--wrkdir=x"], "error: there is no flag --wrkdir; did you mean --workdir?"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    workdir = [] if any(argument.startswith("--workdir") for argument in arguments) else [f"--workdir={tmp_path}/run"]
    config = tiny.config_file(tmp_path, tiny.training_config(tmp_path))
    process = start(f"--config={config}", *workdir, *arguments)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (2, "", message + "\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143)],
)
def test_an_interrupted_run_saves_its_last_update_and_says_so_by_its_status(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = cfg.checkpoint.every = 1_000_000
    cfg.log_every = 1
    process = start(f"--config={tiny.config_file(tmp_path, cfg)}", f"--workdir={tmp_path}/run")
    wait_for(tmp_path / "run" / "metrics.jsonl", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    assert out == ""
    assert "Traceback" not in err
    last = max(int(line.split("/")[0].split()[1]) for line in err.splitlines() if line.startswith("step "))
    assert saved.steps(tmp_path / "run" / "checkpoints") == [last]
