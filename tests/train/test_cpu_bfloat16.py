"""`cpu_bfloat16`: what processor it needs, what the compiler then does, and that only training's programs change."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tests import tiny
from vaswani import machine
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.run.config import read_config
from vaswani.run.records import read_metrics
from vaswani.tasks.config import model_config
from vaswani.train import cpu_bfloat16
from vaswani.train.aot.programs import topology_mesh, train_step
from vaswani.train.aot.report import report as report_of
from vaswani.train.loop import train

WITH = "processor\t: 0\nmodel name\t: Fake 9000\nflags\t\t: fpu avx512f amx_bf16 amx_tile amx_int8\n\nprocessor\t: 1\n"
# oneDNN takes bfloat16 from the compiler where it can compute it, if slowly.
needs_avx512 = pytest.mark.skipif("avx512f" not in cpu_bfloat16.abilities(), reason="this CPU has no AVX-512")
AVX512 = "processor\t: 0\nmodel name\t: Fake 7000\nflags\t\t: fpu avx512f avx512_bf16\n"
WITHOUT = "processor\t: 0\nmodel name\t: Fake 8000\nflags\t\t: fpu avx512f amx_tile\n"


def report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """Has the processor be the one that this text describes."""
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(cpu_bfloat16, "cpu_model", lambda: "Fake")


def test_a_processor_without_fast_bfloat16_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = (
        r"^config: cpu_bfloat16 is True; it must be False on this CPU \(Fake\), which has neither amx_tile with "
        r"amx_bf16 nor avx512_bf16: bfloat16 would not be faster than float32$"
    )
    report(monkeypatch, tmp_path, WITHOUT)
    with pytest.raises(UserError, match=expected):
        cpu_bfloat16.compiler_options(True)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "absent")
    with pytest.raises(UserError, match=expected):
        cpu_bfloat16.compiler_options(True)


@pytest.mark.parametrize("version, is_refused", [((0, 10, 2), True), ((0, 12, 0), False)])
@pytest.mark.parametrize("text, unit", [(AVX512, "avx512_bf16"), (WITH, "amx_tile with amx_bf16")])
def test_avx512_needs_a_jax_whose_onednn_uses_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, unit: str, version: tuple[int, ...], is_refused: bool
) -> None:
    report(monkeypatch, tmp_path, text)
    monkeypatch.setattr(jax, "__version_info__", version)
    assert f"since this CPU has {unit};" in cpu_bfloat16.choice()
    if is_refused and text == AVX512:
        with pytest.raises(UserError, match=r"CPU \(Fake\) with jax \S+: bfloat16 is faster .* jax 0\.12 on$"):
            cpu_bfloat16.compiler_options(True)
    else:
        assert cpu_bfloat16.compiler_options(True) == cpu_bfloat16.OPTIONS


def test_another_device_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report(monkeypatch, tmp_path, WITH)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    expected = r"^config: cpu_bfloat16 is True; it must be False on this device \(gpu\), which is not a CPU"
    with pytest.raises(UserError, match=expected):
        cpu_bfloat16.compiler_options(True)


def test_without_the_key_nothing_is_asked_and_the_compiler_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report(monkeypatch, tmp_path, WITHOUT)
    assert cpu_bfloat16.compiler_options(False) is None


@needs_avx512
@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache entry")
def test_the_options_give_large_products_to_onednn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report(monkeypatch, tmp_path, WITH)
    options = cpu_bfloat16.compiler_options(True)
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
def test_a_run_trains_in_bfloat16_and_is_read_in_float32(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(monkeypatch, tmp_path, WITH)
    losses = {}
    for name in ("off", "on"):
        cfg = tiny.training_config(tmp_path)
        cfg.cpu_bfloat16 = name == "on"
        cfg.eval.bleu_sentences = 2
        capsys.readouterr()
        assert train(cfg, tmp_path / name) == 0
        said = re.findall(r"^cpu_bfloat16: .*$", capsys.readouterr().err, re.MULTILINE)
        assert said == ([cpu_bfloat16.choice()] if cfg.cpu_bfloat16 else [])
        losses[name] = [record["loss"] for record in read_metrics(tmp_path / name)]
    assert read_config(tmp_path / "on").model.dtype == "float32"
    assert losses["on"] != losses["off"]
    assert losses["on"] == pytest.approx(losses["off"], rel=0.02)
