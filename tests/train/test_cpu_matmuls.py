"""`cpu_bfloat16` and `cpu_onednn`: what each CPU and jax get, what the compiler then does, and for which programs."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from tests import tiny
from vaswani import machine
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.run.config import read_config
from vaswani.run.records import read_metrics
from vaswani.tasks.config import model_config
from vaswani.train import cpu_matmuls
from vaswani.train.aot.programs import topology_mesh, train_step
from vaswani.train.aot.report import report as report_of
from vaswani.train.loop import train

WITH = "processor\t: 0\nmodel name\t: Fake 9000\nflags\t\t: fpu avx512f amx_bf16 amx_tile amx_int8\n\nprocessor\t: 1\n"
# oneDNN takes bfloat16 from the compiler where it can compute it, if slowly.
needs_avx512 = pytest.mark.skipif("avx512f" not in cpu_matmuls.abilities(), reason="this CPU has no AVX-512")
runs_float32 = pytest.mark.skipif(
    jax.__version_info__ < (0, 12), reason="jax 0.10 cannot run oneDNN's matmuls in float32"
)
AVX512 = "processor\t: 0\nmodel name\t: Fake 7000\nflags\t\t: fpu avx512f avx512_bf16\n"
WITHOUT = "processor\t: 0\nmodel name\t: Fake 8000\nflags\t\t: fpu avx512f amx_tile\n"


def report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """Has the processor be the one that this text describes."""
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(cpu_matmuls, "cpu_model", lambda: "Fake")


def config(**keys: bool | int | str) -> ConfigDict:
    """Returns the default config with some keys set."""
    cfg = default()
    cfg.update_from_flattened_dict(keys)
    return cfg


def test_a_processor_without_fast_bfloat16_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = (
        r"^config: cpu_bfloat16 is True; it must be False on this CPU \(Fake\), which has neither amx_tile with "
        r"amx_bf16 nor avx512_bf16: bfloat16 would not be faster than float32$"
    )
    report(monkeypatch, tmp_path, WITHOUT)
    with pytest.raises(UserError, match=expected):
        cpu_matmuls.compiler_options(config(cpu_bfloat16=True), "cpu")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "absent")
    with pytest.raises(UserError, match=expected):
        cpu_matmuls.compiler_options(config(cpu_bfloat16=True), "cpu")


def test_avx512_needs_a_jax_whose_onednn_uses_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report(monkeypatch, tmp_path, AVX512)
    monkeypatch.setattr(jax, "__version_info__", (0, 10, 2))
    expected = r"CPU \(Fake\) with jax \S+: bfloat16 is faster with avx512_bf16 from jax 0\.12 on$"
    with pytest.raises(UserError, match=expected):
        cpu_matmuls.compiler_options(config(cpu_bfloat16=True), "cpu")


@pytest.mark.parametrize(
    "text, version, keys, unit",
    [
        (WITH, (0, 10, 2), {}, ""),  # cannot run it
        (WITH, (0, 12, 0), {}, "amx_tile with amx_bf16"),
        (WITH, (0, 12, 0), {"cpu_onednn": False}, ""),
        (WITH, (0, 12, 0), {"model.d_model": 128}, ""),
        (AVX512, (0, 12, 0), {"model.dtype": "bfloat16"}, "avx512_bf16"),
        (AVX512, (0, 10, 2), {}, ""),
        (AVX512, (0, 12, 0), {}, "avx512_bf16"),
        (WITHOUT, (0, 12, 0), {}, ""),
        (WITH, (0, 10, 2), {"cpu_bfloat16": True}, "amx_tile with amx_bf16"),
        (AVX512, (0, 12, 0), {"cpu_bfloat16": True, "model.d_model": 128}, "avx512_bf16"),
    ],
)
def test_each_cpu_and_jax_have_the_matmuls_that_were_measured_to_be_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, version: tuple[int, ...], keys: dict, unit: str
) -> None:
    report(monkeypatch, tmp_path, text)
    monkeypatch.setattr(jax, "__version_info__", version)
    options = cpu_matmuls.compiler_options(config(**keys), "cpu")
    assert options == (cpu_matmuls.OPTIONS if unit else None)
    said = f"matmuls=oneDNN (this CPU has {unit})" if unit else "matmuls=XLA"
    assert cpu_matmuls.choice(config(**keys), "cpu") == said


def test_another_device_is_refused_or_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report(monkeypatch, tmp_path, WITH)
    monkeypatch.setattr(jax, "__version_info__", (0, 12, 0))
    assert cpu_matmuls.compiler_options(config(), "gpu") is None
    expected = r"^config: cpu_bfloat16 is True; it must be False on this device \(gpu\), which is not a CPU"
    with pytest.raises(UserError, match=expected):
        cpu_matmuls.compiler_options(config(cpu_bfloat16=True), "gpu")


@needs_avx512
@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache entry")
def test_the_options_give_large_products_to_onednn() -> None:
    options = cpu_matmuls.OPTIONS
    x = jnp.ones((512, 512), jnp.bfloat16)
    lowered = jax.jit(lambda x, y: jnp.maximum(x @ y, 0)).lower(x, x)
    assert "__onednn_fusion" in lowered.compile(compiler_options=options).as_text()
    assert "__onednn_fusion" not in lowered.compile().as_text()


# XLA cannot store a program with oneDNN's products: `vaswani.compiled` keeps that from users, and each start compiles.
def test_no_other_machine_is_compiled_for_with_it() -> None:
    cfg = default()
    cfg.cpu_bfloat16 = True
    with pytest.raises(UserError, match=r"cpu_bfloat16 is True; it must be False for h100:1, which is no CPU$"):
        report_of(cfg, "h100:1", 1, with_search=False)


@pytest.mark.slow
@needs_avx512
@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache entry")
def test_the_update_that_is_timed_here_is_the_one_that_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report(monkeypatch, tmp_path, WITH)
    texts = {}
    for on in (False, True):
        cfg = tiny.training_config(tmp_path)
        cfg.cpu_bfloat16 = on
        mesh = topology_mesh(cfg.mesh, jax.devices(), 1)
        update = train_step(cfg, model_config(cfg, 100), mesh, 4, 8)
        texts[on] = update.step.as_text()
    assert "bf16[" in texts[True] and "bf16[" not in texts[False]


@needs_avx512
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache entry")
@pytest.mark.parametrize("key, rel", [("cpu_bfloat16", 0.02), pytest.param("cpu_onednn", 1e-5, marks=runs_float32)])
def test_a_run_learns_the_same_and_is_read_in_float32(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, rel: float
) -> None:
    report(monkeypatch, tmp_path, WITH)
    monkeypatch.setattr(cpu_matmuls, "WIDTH", 16)
    losses = {}
    for name in ("off", "on"):
        cfg = tiny.training_config(tmp_path)
        cfg[key] = name == "on"
        cfg.eval.bleu_sentences = 2
        assert train(cfg, tmp_path / name) == 0
        assert f", {cpu_matmuls.choice(cfg, 'cpu')}\n" in capsys.readouterr().err
        losses[name] = [record["loss"] for record in read_metrics(tmp_path / name)]
    assert read_config(tmp_path / "on").model.dtype == "float32"
    assert losses["on"] != losses["off"] or key == "cpu_onednn"
    assert losses["on"] == pytest.approx(losses["off"], rel=rel)


@pytest.mark.parametrize("recorded, may", [(None, True), ({}, False), ({"cpu_onednn": False}, False)])
def test_a_run_may_have_what_its_config_says(tmp_path: Path, recorded: dict | None, may: bool) -> None:
    if recorded is not None:
        (tmp_path / "config.json").write_text(json.dumps(recorded))
    assert cpu_matmuls.may_use_onednn(tmp_path) is may


@pytest.mark.slow
def test_a_run_from_before_the_key_keeps_its_matmuls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = 1
    train(cfg, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    recorded = json.loads(path.read_text())
    del recorded["cpu_onednn"]
    path.write_text(json.dumps(recorded))

    report(monkeypatch, tmp_path, WITH)
    monkeypatch.setattr(jax, "__version_info__", (0, 12, 0))
    monkeypatch.setattr(cpu_matmuls, "WIDTH", 16)
    monkeypatch.setattr(cpu_matmuls, "OPTIONS", {})  # with the real ones jax 0.10 would end this process by SIGILL
    cfg.steps = 2
    assert cpu_matmuls.choice(cfg, "cpu") != "matmuls=XLA"
    train(cfg, tmp_path / "run")
    assert ", matmuls=XLA\n" in capsys.readouterr().err.partition("resuming")[2]
    assert read_config(tmp_path / "run").cpu_onednn is False
