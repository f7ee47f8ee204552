"""Other processors: which tests run as them, with what, and that a failure is told; and the bounds themselves."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests import processors, tolerance
from tests.tiny import TINY


def test_every_file_that_compares_with_a_bound_runs_on_every_processor() -> None:
    files = {Path(file).stem.removeprefix("test_") for file in processors.numerical_files()}
    assert {"mixers", "masked_lm", "invariants", "kernels", "scan", "oracle", "torch_parity", "search"} <= files
    assert {"inside", "profile"} <= files  # each failed on one processor while a list by hand left it out
    assert not files & {"commands", "packaging", "layout"}


def test_settings_differ_and_share_no_compiled_program() -> None:
    environments = [processors.environment(name) for name in processors.SETTINGS]
    caches = {one["JAX_COMPILATION_CACHE_DIR"] for one in environments}
    assert len(caches) == len(processors.SETTINGS) >= 6
    different = {(s.xla_flags, s.onednn, s.one_cpu) for s in processors.SETTINGS.values()}
    assert len(different) == len(processors.SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "status", "line"), [("assert True", 0, "2      0"), ("assert False", 1, "0      2")])
def test_a_line_for_each_setting_and_a_status_that_tells(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    body: str,
    status: int,
    line: str,
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_one.py").write_text(f"def test_a():\n    {body}\n\n\ndef test_b():\n    {body}\n")
    monkeypatch.setattr(processors, "ROOT", tmp_path)
    monkeypatch.setattr(processors, "RESULTS", tmp_path / "results")
    cpus = os.sched_getaffinity(0)
    assert processors.main(["one-thread", "--", "tests/test_one.py"]) == status
    assert os.sched_getaffinity(0) == cpus
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith(f"one-thread            {line}")
    assert ("FAILED tests/test_one.py::test_a" in said.err) == bool(status)


def test_an_unknown_setting_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert processors.main(["z80"]) == 2
    assert capsys.readouterr().err.startswith("error: no setting 'z80'; there are as-is, sse4, ")


def test_sums_in_another_order_stay_far_within_the_bound_and_a_change_of_a_thousandth_does_not() -> None:
    x = np.random.default_rng(0).random(4096, dtype=np.float32)
    one_by_one = np.add.accumulate(x)[-1]
    backwards = np.add.accumulate(x[::-1])[-1]
    assert 0 < abs(one_by_one - backwards) / one_by_one < tolerance.rounding(len(x)) < 1e-4
    expected = {"small": np.full(4, 0.01), "large": np.full(4, 10.0)}
    changed = {"small": expected["small"] * 1.01, "large": expected["large"]}
    assert tolerance.gradient_error(expected, expected) == 0
    assert tolerance.gradient_error(changed, expected) == pytest.approx(1e-4 / np.sqrt(50), rel=1e-3)
    assert tolerance.gradient_error(expected | {"large": np.full(4, 10.01)}, expected) == pytest.approx(1e-3)
    assert tolerance.forward(TINY) < tolerance.backward(TINY) < 5e-5
