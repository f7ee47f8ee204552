"""What a run says as it starts: where the config comes from, device, model, data, memory, and the time left."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests import tiny
from vaswani.run.checkpoint import load_params
from vaswani.run.parameters import count_parameters
from vaswani.tasks.loss import Loss
from vaswani.train import loop, metrics
from vaswani.train.metrics import Reporter
from vaswani.train.start import compiled_memory, config_line, peak_memory
from vaswani.train.step import Sums


def test_a_start_says_what_it_does_and_compiles_the_update_once(
    tmp_path: Path, capsys: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = 3
    cfg.data.test = "grammar:test:9"  # as configs/quickstart.py has it
    cfg.model.d_ff = 4096  # or the state would be less than the line's one decimal can tell
    with jax.log_compiles(True), caplog.at_level(logging.WARNING, "jax"):
        assert loop.train(cfg, tmp_path / "run", config_line="config: some.py") == 0
    compiled = [one for one in caplog.messages if one.startswith("Finished XLA compilation of jit(train_step)")]
    assert len(compiled) == 1
    assert "XLA compilation of jit(not_equal)" not in caplog.text, "counting positions computes nothing"
    lines = capsys.readouterr().err.splitlines()
    start = lines.index("config: some.py")
    size = count_parameters(load_params(tmp_path / "run", 3))
    assert lines[start + 1].startswith("device: 1 x cpu; ")
    assert lines[start + 1].endswith("; mesh: data 1, fsdp 1, tensor 1")
    assert lines[start + 2] == f"model: translation, N=1, d_model=16, d_ff=4096, h=2: {size:,} parameters"
    assert lines[start + 3] == (
        "speed: model.dtype=float32, model.attention_impl=auto, model.dropout_bits=threefry, loss.chunk=1024, "
        "data.batching=bucket, checkpoint.every=4, checkpoint.every_minutes=0.0, eval.every=100, matmuls=XLA"
    )
    assert lines[start + 4] == (
        f"warning: data.test is 'grammar:test:9', of another corpus than data.train, {cfg.data.train!r}: "
        "give --config.data.test too"
    )
    assert lines[start + 5].startswith("data.train: 200 of 200 pairs, ")
    assert lines[start + 6].startswith("data.valid: 8 of 8 pairs, ")
    assert lines[start + 7] == "compiling the first step"
    assert lines[start + 8].startswith("memory of a step, by the compiler: ")
    state_mib = float(lines[start + 8].partition("a device, ")[2].partition(" MiB of state")[0])
    assert state_mib == pytest.approx(3 * 4 * size / 2**20, rel=0.05), "parameters and Adam's two moments"
    assert sum(line.startswith("peak memory so far: ") for line in lines) == 1

    loop.train(cfg, tmp_path / "run")
    assert "compiling" not in capsys.readouterr().err, "nothing is left to train"


def test_what_is_argument_and_output_counts_once() -> None:
    sizes = {"argument": 6, "output": 5, "alias": 4, "temp": 3, "generated_code": 2}  # MiB
    analysis = SimpleNamespace(**{f"{name}_size_in_bytes": size << 20 for name, size in sizes.items()})
    line = compiled_memory(SimpleNamespace(memory_analysis=lambda: analysis))
    assert line == (
        "memory of a step, by the compiler: 12.0 MiB a device, 6.0 MiB of state and batch, 3.0 MiB of temporaries"
    )


def test_a_compiler_that_does_not_know_its_memory_is_no_error() -> None:
    line = compiled_memory(SimpleNamespace(memory_analysis=lambda: None))
    assert line == "memory of a step: this device's compiler does not say"


def test_the_peak_is_the_device_s_where_it_knows_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {"peak_bytes_in_use": 3 << 19}
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(memory_stats=lambda: stats)])
    assert peak_memory() == "peak memory so far: 1.5 MiB on the device"
    stats["bytes_limit"] = 2 << 20
    assert peak_memory() == "peak memory so far: 1.5 MiB of 2.0 MiB on the device"
    del stats["peak_bytes_in_use"]
    assert peak_memory().endswith(" MiB of this process")


def test_the_keys_that_the_command_line_sets_are_named() -> None:
    assert config_line("configs/base.py", {}) == "config: configs/base.py"
    assert config_line("a.py", {"seed": 1, "model.norm": "pre"}) == "config: a.py, but model.norm='pre', seed=1"


def test_the_time_left_follows_the_updates_since_the_last_record_without_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now)
    sums = Sums(Loss(np.float32(20), np.float32(10), np.float32(10)), np.int32(18), np.float32(1))
    with Reporter(tmp_path, lambda step: 0.1, first=1, last=12, every=3) as reporter:
        for step, seconds in enumerate((60, 6, 6, 12, 12, 12), start=1):
            now += seconds
            reporter.update(step, sums, positions=20)
    train = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert train[0] == "step 1/12: loss 2.0000  after 60.0 s, compilation included", "at once, not after 3 updates"
    assert [line.rpartition("  ")[2] for line in train[1:]] == ["0.9 min left", "1.2 min left"]


def test_a_records_rate_is_of_its_own_updates_without_the_pauses_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now)
    sums = Sums(Loss(np.float32(20), np.float32(10), np.float32(10)), np.int32(18), np.float32(1))
    for first in (1, 3):  # the second launch resumes the first
        with Reporter(tmp_path, lambda step: 0.1, first=first, last=4, every=1) as reporter:
            for step in (first, first + 1):
                now += 5
                reporter.update(step, sums, positions=20)
                with reporter.paused():
                    now += 100
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["seconds"] for record in records] == [5, 10, 15, 20]
    assert [record["tokens_per_second"] for record in records] == [2, 2, 2, 2]
