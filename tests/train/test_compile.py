"""`python -m train.compile` with the real compilers, on descriptions of TPU slices and GPUs: what fits, what does not.

On this machine, which needs no description, updates are also made. Without libtpu, or jax's CUDA plugin, tests of TPUs
and GPUs are skipped, unless REQUIRE_EXTRAS=tpu,aot-gpu makes that a failure.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import pytest
from ml_collections import ConfigDict

from tests.conftest import ROOT
from tests.extras import reason, skipped
from vaswani import machine
from vaswani.configs import base
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.model.config import ModelConfig
from vaswani.run.sharding import make_mesh, process_shard
from vaswani.tasks.config import model_config
from vaswani.train import compile as compile_command
from vaswani.train.aot import gpus, local, programs
from vaswani.train.aot.flops import update_flops
from vaswani.train.aot.hardware import CHIPS, GIB
from vaswani.train.aot.report import _estimate_lines, as_text, estimate, refusal
from vaswani.train.aot.report import report as make_report
from vaswani.train.compile import prepare

needs_compiler = pytest.mark.skipif(skipped("libtpu"), reason=reason("libtpu"))
needs_gpu_compiler = pytest.mark.skipif(skipped(gpus.PLUGIN), reason=reason(gpus.PLUGIN))
SMALL = ("data.buckets=32,", "data.max_length=32", "data.tokens_per_batch=2048", "data.vocab_size=4096")
SMALL += ("model.N=1", "model.d_model=256", "model.d_ff=1024", "model.h=4", "model.dropout_bits=hash")
PAPER = [
    (config, topology, slices)
    for config in ("base", "big")
    for topology, slices in (("v5e:2x2", 1), ("v5e:4x4", 1), ("v6e:4x4", 1), ("v5p:2x2x2", 1), ("v5e:4x4", 2))
]


def start(
    config: str, topology: str | None, *arguments: str, keys: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs the command without beam search, and with the compiler's own settings; it keeps no programs."""
    command = [sys.executable, "-m", "train.compile", f"--config=configs/{config}.py", "--nosearch"]
    command += [f"--topology={topology}"] if topology else []
    command += [*arguments, *(f"--config.{key}" for key in ("model.dtype=bfloat16", *keys))]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def report(*arguments: str, **options: Any) -> dict[str, Any]:
    done = start(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def inside_cudnn(found: dict[str, Any], program: dict[str, Any]) -> float:
    """Returns the FLOPs of the attentions that are calls of cuDNN, which the compiler does not count, a device.

    An attention has two products, Q K^T and the weights times V, and its gradient has two for each.
    """
    model = found["config"]["model"]
    calls = gpus.cudnn_calls(program.get("kernels", {}))  # only programs for GPUs have any
    attentions = 3 * model["N"] if calls else 0
    products = 2 * program["rows"] * program["length"] ** 2 * model["h"] * (model["d_k"] + model["d_v"])
    return 3 * products * attentions / found["devices"]


def check(found: dict[str, Any], excess: float = 0.05) -> None:
    """Checks what must hold for every training program; `excess` is the share of other operations than products."""
    chip = CHIPS[found["topology"].partition(":")[0]]
    longest = found["train_longest"]
    assert 0 < longest["memory"]["peak"] < chip.memory
    assert longest["memory"]["aliased"] == pytest.approx(longest["state_bytes"], rel=0.01)  # donated
    program = found["train_middle"]
    flops = program["flops"] + inside_cudnn(found, program)
    assert flops / program["flops_analytic"] == pytest.approx(1, abs=excess)
    reduced = [e for e in program["collectives"] if e["kind"] in ("all-reduce", "reduce-scatter")]
    if found["devices"] > 1:
        assert sum(e["bytes"] for e in reduced) >= 2 * found["parameters"] / found["mesh"]["tensor"]  # in bfloat16
    across = [e for e in program["collectives"] if e["kind"] == "send"]
    assert bool(across) == (found["slices"] > 1)


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:
    """Sets the environment before a test makes the compiler's library load, and for the tests of this file alone."""
    with mock.patch.dict(os.environ):
        prepare()
        yield


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return report("base", "v5e:2x2", keys=SMALL)


@needs_compiler
def test_a_small_model_fits_and_its_gradient_is_reduced_and_its_state_donated(small: dict[str, Any]) -> None:
    check(small)
    assert small["mesh"] == {"data": 4, "fsdp": 1, "tensor": 1}
    assert (small["devices"], small["train_longest"]["rows"]) == (4, 64)


@needs_compiler
@pytest.mark.slow
def test_a_tpu7x_has_two_devices_a_chip() -> None:
    found = report("base", "tpu7x:2x2x1", keys=SMALL)
    check(found)
    assert found["devices"] == 8
    assert "8 TPU7x half chips, 96 GiB each" in as_text(found)


@needs_compiler
def test_the_report_says_what_it_is(small: dict[str, Any]) -> None:
    text = as_text(small)
    assert "4 TPU v5e chips, 16 GiB each" in text
    assert "all-reduce" in text and re.search("to .* (seconds|minutes|hours) for 100,000 steps", text)
    assert "an estimate, not a measurement" in text


def small_config() -> ConfigDict:
    cfg = default()
    cfg.data.update({"buckets": (8, 16), "max_length": 16, "tokens_per_batch": 64, "vocab_size": 300})
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "d_k": 8, "d_v": 8})
    return cfg


@pytest.mark.slow
def test_three_steps_are_timed_on_this_machine() -> None:
    cfg = small_config()
    cfg.steps = 600
    found = make_report(cfg, "local", 1, with_search=False)
    assert (found["topology"], found["device"]["kind"]) == ("local", "cpu")
    longest, program = found["train_longest"], found["train_middle"]
    assert (program["rows"], program["length"]) == (4, 16)
    assert longest["memory"]["aliased"] == pytest.approx(longest["state_bytes"], rel=0.01)  # donated
    assert program["flops"] > program["flops_analytic"] > 0
    timed = found["timed"]
    assert len(timed["seconds"]) == 3
    median = sorted(timed["seconds"])[1]
    assert timed["minutes"] == pytest.approx(600 * median / 60)
    assert timed["flops_per_second"] == pytest.approx(program["flops_analytic"] / median)
    assert "utilisation" not in timed  # a CPU's peak is not known
    lines = as_text(found).splitlines()
    assert lines[0].startswith("1 x cpu, ") and re.search(r", CPUs: \d+$", lines[0])
    assert lines[-3].startswith("timed steps, 16 positions per row: ")
    spent = timed["minutes"]
    duration = f"{spent:.2f} minutes" if spent >= 1 else f"{60 * spent:.2f} seconds"
    assert lines[-2] == f"estimated {duration} for 600 steps"
    assert lines[-1].startswith("  an estimate: random tokens")


def test_each_layer_costs_as_much_as_the_second_and_what_is_outside_the_layers_costs_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Adam of the embedding and the softmax are outside the layers; a factor for FLOPs would multiply their bytes."""

    def counts(depths: tuple[int, int], mesh: Any) -> programs.Counts:
        layers = sum(depths)
        gathers = {("all-gather", 4): 5} if layers == 4 else {}
        sent = Counter({("all-reduce", 8): 50 + 7 * layers, **gathers})
        return {
            "totals": Counter(flops=1_000 + 30 * depths[0] + 50 * depths[1], traffic=600 + layers, scatters=1),
            "number": Counter(dict.fromkeys(sent, 1)),
            "sent": sent,
            "kernels": Counter(attend=3 * layers),
        }

    def train_step(cfg: ConfigDict, config: ModelConfig, mesh: Any, rows: int, length: int) -> Any:
        assert (rows, length) == (4, 16)  # of one of the two microbatches
        assert (config.scan_layers, cfg.loss.chunk, cfg.optim.accumulate) == (False, 0, 1)
        return mock.Mock(step=config.depths)

    monkeypatch.setattr(programs, "counts", counts)
    monkeypatch.setattr(programs, "train_step", train_step)
    cfg = small_config()
    cfg.optim.accumulate = 2
    config = ModelConfig(vocab_size=300, N=6, d_model=16, d_ff=32, h=2, d_k=8, d_v=8, scan_layers=True)
    mesh = make_mesh(cfg.mesh, jax.devices())
    found = programs.update_costs(cfg, config, mesh, 8, 16)
    assert found["flops"] == 2 * (1_000 + 6 * 30 + 6 * 50)
    assert found["traffic"] == 2 * (600 + 2 * 6)
    assert found["collectives"] == [
        {"kind": "all-gather", "group": 4, "count": 2 * 5, "bytes": 2 * 5 * 5},
        {"kind": "all-reduce", "group": 8, "count": 2, "bytes": 2 * (50 + 2 * 6 * 7)},
    ]
    assert cfg.optim.accumulate == 2
    deep = programs.update_costs(cfg, replace(config, N_encoder=10, N_decoder=3), mesh, 8, 16)
    assert deep["flops"] == 2 * (1_000 + 10 * 30 + 3 * 50)


@needs_compiler
@pytest.mark.slow
def test_shallow_programs_for_tpus_tell_the_costs_of_a_deeper_one() -> None:
    """For CPUs they do not: their compiler fuses layers, and each computes again what is cheap in those before."""
    cfg = small_config()
    cfg.loss.chunk = 0
    cfg.model.update({"N": 3, "dtype": "bfloat16", "dropout_bits": "hash"})
    _, devices = programs.open_topology("v5e:2x2", 1)
    mesh = programs.topology_mesh(cfg.mesh, devices, 1)
    shape = (cfg, model_config(cfg, 300), mesh, 4, 16)
    whole = programs.as_facts(programs.counts(programs.train_step(*shape).step, mesh), mesh)
    found = programs.update_costs(*shape)
    assert found["flops"] == pytest.approx(whole["flops"], rel=0.005)
    assert found["traffic"] == pytest.approx(whole["traffic"], rel=0.05)
    assert found["collectives"] == whole["collectives"]


@pytest.mark.slow
def test_beam_search_is_compiled_for_a_full_batch_with_the_config_s_options() -> None:
    cfg = small_config()
    mesh = make_mesh(cfg.mesh, jax.devices())
    config = model_config(cfg, cfg.data.vocab_size)
    found = {}
    for beam in (1, 4):
        cfg.decode.beam = beam
        found[beam] = programs.search_program(cfg, config, mesh)
    assert (found[4]["rows"], found[4]["length"]) == (64, 32)  # 2,048 source positions
    assert found[4]["collectives"] == []
    assert found[4]["flops"] > 2 * found[1]["flops"] > 0
    assert found[4]["memory"]["temporaries"] > 2 * found[1]["memory"]["temporaries"] > 0


@pytest.mark.slow
def test_beam_search_is_compiled_for_no_more_positions_than_are_learned() -> None:
    cfg = small_config()
    cfg.model.update({"positions": "learned", "max_positions": 16})
    found = programs.search_program(cfg, model_config(cfg, cfg.data.vocab_size), make_mesh(cfg.mesh, jax.devices()))
    assert (found["rows"], found["length"]) == (128, 16)


@pytest.mark.slow
def test_without_a_topology_this_machine_is_meant() -> None:
    keys = ("model.dtype=float32", "model.N=1", "data.tokens_per_batch=64", "data.max_length=16", "data.buckets=16,")
    found = report("quickstart", None, keys=(*keys, "data.batching=bucket"))
    assert found["topology"] == "local"
    assert len(found["timed"]["seconds"]) == 3


def test_a_device_with_a_known_peak_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "peak_flops", lambda: 1e15)
    found = make_report(small_config(), "local", 1, with_search=False)
    timed = found["timed"]
    assert timed["utilisation"] == timed["flops_per_second"] / 1e15
    assert "of the peak in bfloat16)" in as_text(found)


def test_what_does_not_fit_this_machine_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "available", lambda device: 1_000)
    found = make_report(small_config(), "local", 1, with_search=False)
    assert "timed" not in found and "train_middle" not in found
    assert re.match(r"does not fit: train_longest needs \d.* per device, and this machine has 0\.00; ", refusal(found))


def test_a_kernel_that_this_machine_cannot_run_is_refused() -> None:
    cfg = small_config()
    cfg.model.attention_impl = "cudnn"
    with pytest.raises(UserError, match=r"model\.attention_impl is 'cudnn', for gpus; this machine needs another"):
        make_report(cfg, "local", 1, with_search=False)


def test_learned_positions_that_are_too_few_are_refused() -> None:
    cfg = small_config()
    cfg.model.update({"positions": "learned", "max_positions": 15})
    with pytest.raises(UserError, match=r"^config: model\.max_positions is 15; it must be at least 16, as long as "):
        make_report(cfg, "local", 1, with_search=False)


def test_the_memory_of_this_machine_is_shared_by_its_processors_and_a_device_knows_its_own() -> None:
    (processor,) = jax.devices()
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 21}
    without_groups = mock.patch.object(machine, "GROUPS", Path("/no/such/file"))
    four = mock.patch.object(jax, "local_device_count", lambda: 4)
    with mock.patch.object(os, "sysconf", sizes.get), four, without_groups:
        assert programs.available(processor) == 2 << 30
    with mock.patch.object(jax, "devices", lambda: [accelerator]):
        accelerator = mock.Mock(memory_stats=lambda: {"bytes_limit": 5})
        assert programs.available(accelerator) == 5


def test_the_share_of_a_gpus_memory_has_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_target", lambda device: mock.Mock(memory=1_000))
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    assert gpus.available(None) == 750
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
    assert gpus.available(None) == 500
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "")
    assert gpus.available(None) == 500
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", ".9")
    with pytest.raises(UserError, match=r"are both set, which jax refuses; unset the second$"):
        gpus.available(None)
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION")
    assert gpus.available(None) == 900
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "most")
    with pytest.raises(UserError, match=r"^XLA_CLIENT_MEM_FRACTION=most: it must be a share of the memory, as 0\.75$"):
        gpus.available(None)


@needs_compiler
def test_what_does_not_fit_is_refused_with_its_numbers() -> None:
    done = start("base", "v5e:2x2", keys=(*SMALL, "data.vocab_size=1000000", "model.d_model=1024"))
    assert done.returncode == 1
    numbers = r"does not fit: train_longest needs (\d+\.\d+) GiB per device, and v5e:2x2 has 15\.75"
    assert float(_only(numbers, done.stderr)) > 16


def test_the_environment_is_set_before_the_checks_load_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else jax's CUDA plugin looks for CUDA's libraries, and without them knows no topology."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    found: list[str | None] = []
    monkeypatch.setattr(compile_command, "check", lambda *_: found.append(os.environ.get("JAX_PLATFORMS")))
    options = mock.Mock(topology="h100:1", config=mock.Mock(task="translation"))
    compile_command.check_flags(options)
    assert found == ["cpu"]


def test_an_unknown_topology_is_answered_with_the_known_ones() -> None:
    known = "v4, v5e, v5p, v6e, tpu7x, a colon and a layout, like v5e:4x4, or one of a100, h100, a colon and a number"
    with pytest.raises(UserError, match=f"--topology=v9:2x2: it must be local, one of {known}, like h100:8"):
        programs.open_topology("v9:2x2", 1)


@needs_compiler
@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        ("v5e:3x3", "v5e:3x3: .* is not divisible by .*; write, for example, v5e:4x4"),
        ("v5e", "v5e: .* is invalid .*; write, for example, v5e:4x4"),
    ],
)
def test_a_bad_topology_is_named(topology: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        programs.open_topology(topology, 1)


@needs_compiler
def test_a_mistake_is_one_line_and_status_2() -> None:
    done = start("base", "v5e:2x2", keys=("mesh.data=3",))
    expected = "error: config: mesh.data=3, mesh.fsdp=1, mesh.tensor=1 do not divide 4 device(s); set one to -1 for"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{expected} the remaining devices\n"


@needs_compiler
def test_slices_stand_along_the_data_axis() -> None:
    cfg = default().mesh
    cfg.fsdp = 2
    _, devices = programs.open_topology("v5e:2x2", 3)
    grid = programs.topology_mesh(cfg, devices, 3).devices
    assert grid.shape == (6, 2, 1)
    assert [{d.slice_index for d in rows.flat} for rows in grid.reshape(3, -1)] == [{0}, {1}, {2}]
    cfg.data, cfg.fsdp = 4, 3
    with pytest.raises(UserError, match=r"mesh.data=4 is not a multiple of --slices=3"):
        programs.topology_mesh(cfg, devices, 3)


@needs_compiler
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5e:4x4", "v5p:2x2x2"])
def test_every_host_of_a_slice_can_read_its_rows(topology: str) -> None:
    _, devices = programs.open_topology(topology, 1)
    assert process_shard(make_mesh(default().mesh, devices)).parts == len(devices)


@pytest.mark.parametrize(("topology", "extra"), [("v5e:2x2", "tpu"), ("h100:8", "aot-gpu")])
def test_without_the_compiler_its_extra_is_named(monkeypatch: pytest.MonkeyPatch, topology: str, extra: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"not installed; pip install -e '\.\[{extra}\]'"):
        programs.open_topology(topology, 1)


@pytest.mark.parametrize(
    ("topology", "slices", "message"),
    [
        ("h100:9", 1, "--topology=h100:9: a node has 1 to 8 GPUs; write, for example, h100:8"),
        ("h100", 1, "--topology=h100: a node has 1 to 8 GPUs; write, for example, h100:8"),
        ("a100:2x2", 1, "--topology=a100:2x2: a node has 1 to 8 GPUs; write, for example, a100:8"),
        ("h100:8", 2, "--slices=2: only TPUs have slices; h100:8 is one node"),
        ("local", 2, "--slices=2: only TPUs have slices; give their --topology"),
    ],
)
def test_a_node_that_cannot_be_is_refused_with_or_without_the_compiler(topology, slices, message) -> None:
    with pytest.raises(UserError, match=message):
        programs.open_topology(topology, slices)


@pytest.mark.parametrize(
    ("flags", "calls", "scatters", "deterministic"),
    [
        ("", {}, 0, True),
        ("", {"fmhaSoftmax": 1}, 0, True),
        ("", {"fmhaSoftmaxBackward": 1}, 0, False),
        ("", {}, 1, False),
        ("--xla_gpu_deterministic_ops=true", {"fmhaSoftmaxBackward": 1}, 0, True),
        ("--xla_gpu_deterministic_ops --xla_x=1", {"fmhaSoftmaxBackward": 1}, 0, True),
        ("--xla_gpu_deterministic_ops=true --xla_gpu_deterministic_ops=false", {"fmhaSoftmaxBackward": 1}, 0, False),
        ("--xla_gpu_deterministic_ops=true", {}, 1, False),
    ],
)
def test_two_runs_give_the_same_bits_if_every_sum_has_an_order(
    monkeypatch: pytest.MonkeyPatch, flags: str, calls: dict[str, int], scatters: int, deterministic: bool
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert gpus.order_of_sums(calls, scatters)["deterministic"] == deterministic


@needs_gpu_compiler
@pytest.mark.slow
@pytest.mark.parametrize("attention", ["einsum", "cudnn"])
@pytest.mark.parametrize("devices", [1, 8])
def test_base_is_compiled_for_h100s(attention: str, devices: int) -> None:
    keys = ("data.buckets=64,", "data.max_length=64", "model.scan_layers=True", f"model.attention_impl={attention}")
    found = report("base", f"h100:{devices}", keys=keys)
    assert found["devices"] == devices
    longest, program = found["train_longest"], found["train_middle"]
    assert longest["memory"]["aliased"] == pytest.approx(longest["state_bytes"], rel=0.01)  # donated
    forward, gradients = 0, 0
    if attention == "cudnn":
        forward = gradients = 18  # six encoder layers, and two in each of six decoder layers
    calls = program["kernels"]
    assert sum(times for name, times in calls.items() if name.endswith(gpus.GRADIENT)) == gradients
    assert gpus.cudnn_calls(calls) == forward + gradients
    assert not program["deterministic"]  # the gradient of the embedding
    reduced = sum(e["bytes"] for e in program["collectives"] if e["kind"] == "all-reduce")
    assert reduced >= 2 * found["parameters"] if devices > 1 else not program["collectives"]
    if attention == "einsum":
        assert program["flops"] / program["flops_analytic"] == pytest.approx(1, abs=0.05)


@needs_gpu_compiler
@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"fsdp": 8}, {"data": 2, "fsdp": 2, "tensor": 2}])
def test_cudnn_is_compiled_for_h100s_that_share_the_parameters(mesh: dict[str, int]) -> None:
    keys = [f"mesh.{axis}={size}" for axis, size in mesh.items()]
    keys += ["data.buckets=64,", "data.max_length=64", "data.vocab_size=2000", "model.attention_impl=cudnn"]
    keys += ["model.N=1", "model.d_ff=512"]
    found = report("base", "h100:8", keys=keys)
    assert gpus.cudnn_calls(found["train_middle"]["kernels"]) == 6  # three attentions, forward and gradient


@needs_gpu_compiler
def test_a_kernel_of_another_device_is_one_line_and_status_2() -> None:
    done = start("base", "h100:1", keys=("model.attention_impl=splash",))
    expected = "error: config: model.attention_impl is 'splash', for tpus; h100:1 needs another\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


@needs_gpu_compiler
@pytest.mark.slow
def test_what_needs_more_than_jax_takes_of_a_gpu_is_refused() -> None:
    done = start("base", "h100:1", keys=(*SMALL, "data.tokens_per_batch=4000000", "loss.chunk=0"))
    assert done.returncode == 1 and done.stdout.startswith("h100:1, 1 NVIDIA H100")
    numbers = r"does not fit: train_longest needs (\d+\.\d+) GiB per device, and h100:1 has 59\.33"
    assert float(_only(numbers, done.stderr)) > 60


@pytest.mark.parametrize(
    ("message", "needed", "available"),
    [
        ("Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm. Exceeded", 21.95, 15.48),
        (
            "on HBM, the total memory required for temporaries (45.81G) exceeds available HBM (15.75G).",
            45.81,
            15.75,
        ),
        ("on HBM, the total memory required for arguments (512.00M) exceeds available HBM (0.25G).", 0.5, 0.25),
    ],
)
def test_the_compilers_complaint_is_read(message: str, needed: float, available: float) -> None:
    error = programs._too_large(f"RESOURCE_EXHAUSTED: {message}")
    assert error is not None
    assert (error.needed, error.available) == (round(needed * GIB), round(available * GIB))
    found = {"topology": "v5e:2x2", "refused": {"program": "search", "needed": error.needed, "available": 1}}
    assert f"needs {needed:.2f} GiB" in refusal(found)


def test_another_complaint_is_not_taken_for_one_about_memory() -> None:
    assert programs._too_large("INTERNAL: something else") is None


def test_batches_are_those_of_the_config_with_rows_that_fill_the_mesh() -> None:
    cfg = base.get_config()
    cfg.data.max_length = 100
    cfg.optim.accumulate = 2
    shapes = programs.batch_shapes(cfg, make_mesh(cfg.mesh))
    assert shapes[-1] == (195, 196, 128)  # the bucket of 256 stays empty
    cfg.data.batching = "pack"
    assert programs.batch_shapes(cfg, make_mesh(cfg.mesh)) == [(97, 98, 256)]
    cfg.data.tokens_per_batch = 200
    with pytest.raises(UserError, match="too few for a row of 256"):
        programs.batch_shapes(cfg, make_mesh(cfg.mesh))


def test_an_estimate_is_a_roofline() -> None:
    chip = CHIPS["v5e"]
    flops = update_flops(ModelConfig(vocab_size=37_000), 1, 25_000, 25_000)
    collectives = [
        {"kind": "all-reduce", "bytes": 90_000_000, "group": 4, "count": 1},
        {"kind": "all-gather", "bytes": 90_000_000, "group": 2, "count": 1},
        {"kind": "send", "bytes": 3_125_000, "group": 2, "count": 1},
    ]
    program = {"flops_analytic": flops, "traffic": chip.memory_bandwidth / 1000, "collectives": collectives}
    found = estimate(chip, program, 25_000, 3_600)
    assert found["compute_seconds"] == flops / 197e12
    assert found["memory_seconds"] == pytest.approx(1e-3)
    assert found["links_seconds"] == pytest.approx((2 * 3 / 4 + 1 / 2) * 1e-3)
    assert found["network_seconds"] == pytest.approx(1e-3)
    assert found["step_seconds_least"] == flops / 197e12
    assert found["step_seconds_most"] == pytest.approx(flops / 197e12 + 4e-3)
    assert found["hours_least"] == pytest.approx(found["step_seconds_least"])
    assert found["positions_per_second_most"] == pytest.approx(25_000 / found["step_seconds_least"])


def test_an_update_that_computes_nearly_nothing_still_has_to_be_started() -> None:
    program = {"flops_analytic": 1e6, "traffic": 1e6, "collectives": []}
    found = estimate(CHIPS["v5e"], program, 4096, 370)
    assert found["step_seconds_least"] == found["step_seconds_most"] == 1e-4
    rate, duration = _estimate_lines(found, 64, 370)[1].split("; ")
    assert (rate, duration) == ("  40,960,000 to 40,960,000 target positions/s", "0.04 to 0.04 seconds for 370 steps")


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize(("config", "topology", "slices"), PAPER)
def test_the_papers_models_fit_at_the_papers_batch(config: str, topology: str, slices: int) -> None:
    """The longest rows need the most memory; one length is one program, and scanned layers are one to compile."""
    keys = ("data.buckets=256,", "model.scan_layers=True")
    found = report(config, topology, f"--slices={slices}", keys=keys)
    assert found["config"]["data"]["tokens_per_batch"] == 25_000
    assert found["train_longest"]["length"] == 256
    check(found)


def _only(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text)
    return found


def test_what_the_compiler_refuses_for_another_reason_than_memory_is_one_line() -> None:
    lowered = mock.Mock()
    lowered.compile.side_effect = jax.errors.JaxRuntimeError("INTERNAL: Mosaic failed:\n a tile of 8 x 128")
    with pytest.raises(UserError) as refused:
        programs._compile(lowered)
    assert str(refused.value) == "the compiler refuses this run: INTERNAL: Mosaic failed:\\n a tile of 8 x 128"


@pytest.mark.parametrize("batching", ["bucket", "pack"])
def test_rows_that_training_would_refuse_are_not_compiled(batching: str) -> None:
    cfg = small_config()
    cfg.data.update({"batching": batching, "pack_length": 16, "max_length": 17})
    message = r"^data\.max_length is 17, but .* is 16: a pair of 17 tokens would fit no row$"
    with pytest.raises(UserError, match=message):
        programs.batch_shapes(cfg, make_mesh(cfg.mesh))
    cfg.data.batching = "window"
    with pytest.raises(UserError, match=r"^data\.batching is window, for monolingual text"):
        programs.batch_shapes(cfg, make_mesh(cfg.mesh))


@pytest.mark.parametrize("vocab_size", [1, 4])
def test_a_vocabulary_of_special_tokens_alone_is_refused(vocab_size: int) -> None:
    cfg = small_config()
    cfg.data.vocab_size = vocab_size
    message = rf"^data\.vocab_size is {vocab_size}; it must exceed 4, the number of special tokens$"
    with pytest.raises(UserError, match=message):
        make_report(cfg, "local", 1, with_search=False)
