"""Runs the numerical tests as other processors would: `python -m tests.processors [SETTING ...] [-- PYTEST OPTIONS]`.

A test whose bound is the rounding seen on one machine fails on the next. The compiler and the library of matrix
products can be told to use fewer instructions than this processor has, which changes the rounding as another processor
would. Prints a line for each setting and exits with 1 if a test failed under any; pytest's output is in
`.cache/processors/`. For another version of jax run this module with the Python that has it.
"""

import os
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.hurry import AS_IN_TRAINING

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / ".cache" / "processors"


OPTIMISED = " ".join(f"--{name}={str(value).lower()}" for name, value in AS_IN_TRAINING.items())


class Setting(NamedTuple):
    """How to pretend to be a processor."""

    what: str
    xla_flags: str = ""  # of the compiler
    onednn: str = ""  # the instructions that oneDNN, which computes the larger matrix products, may use; "": all
    one_cpu: bool = False


SETTINGS = {
    "as-is": Setting("this processor"),
    "sse4": Setting("of 2008: four numbers at once, products rounded", "--xla_cpu_max_isa=SSE4_2", "SSE41"),
    "avx2": Setting("of 2013: eight numbers, fused products", "--xla_cpu_max_isa=AVX2", "AVX2"),
    "avx512": Setting("of 2017: sixteen numbers, no AMX", "--xla_cpu_max_isa=AVX512", "AVX512_CORE"),
    "onednn-avx2": Setting("this one, large products with AVX2", onednn="AVX2"),
    "one-thread": Setting("one core, one thread", "--xla_cpu_multi_thread_eigen=false", one_cpu=True),
    "optimised": Setting("this one, programs optimised as in training", OPTIMISED),
    "optimised-sse4": Setting("of 2008, the same", f"{OPTIMISED} --xla_cpu_max_isa=SSE4_2", "SSE41"),
}
LIBRARIES = r"^(import|from) (jax|numpy|optax|torch|tests\.reference)\b"
ARRAYS = re.compile(rf"{LIBRARIES}|^from tests.*\btolerance\b", re.MULTILINE)


def numerical_files() -> list[str]:
    """Returns the test files that import a library of arrays or a bound: those that may compare floats."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if ARRAYS.search(path.read_text())]


def environment(name: str) -> dict[str, str]:
    """Returns the environment of a setting, with compiled programs of its own: their key does not tell all."""
    setting = SETTINGS[name]
    changes = {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(RESULTS / f"jax-{version('jaxlib')}" / name),
        "XLA_FLAGS": setting.xla_flags,
    }
    if setting.onednn:
        changes["ONEDNN_MAX_CPU_ISA"] = setting.onednn
    return os.environ | changes


def tried(name: str, files: list[str], options: list[str]) -> bool:
    """Runs the files under a setting, prints its line, and returns whether all passed."""
    report, log = RESULTS / f"{name}.xml", RESULTS / f"{name}.log"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--quiet", f"--junitxml={report}", *files, *options]
    allowed = os.sched_getaffinity(0)
    if SETTINGS[name].one_cpu:
        os.sched_setaffinity(0, {min(allowed)})  # as the command below inherits it
    begun = time.monotonic()
    try:
        with log.open("w") as output:
            status = subprocess.run(command, cwd=ROOT, env=environment(name), stdout=output, stderr=output).returncode
    finally:
        os.sched_setaffinity(0, allowed)
    passed, failed = counts(report)
    print(f"{name:<16}{passed:>7}{failed:>7}{time.monotonic() - begun:>7.0f} s  {SETTINGS[name].what}", flush=True)
    if status:
        print(f"  {failures(log)}see {log.relative_to(ROOT)}", file=sys.stderr)
    return status == 0


def counts(report: Path) -> tuple[int, int]:
    """Returns how many tests passed and failed, (0, 0) if pytest could not start."""
    if not report.exists():
        return 0, 0
    found = {
        key: int(value) for key, value in next(ElementTree.parse(report).iter("testsuite")).items() if value.isdigit()
    }
    failed = found["failures"] + found["errors"]
    return found["tests"] - failed - found["skipped"], failed


def failures(log: Path) -> str:
    """Returns pytest's lines about what failed."""
    lines = re.findall(r"^(?:FAILED|ERROR) .*", log.read_text(), re.MULTILINE)
    return "".join(f"{line}\n  " for line in lines)


def main(arguments: list[str]) -> int:
    """Tries the settings named before `--`, or all, with pytest's options after it; returns the exit status."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:cut] or list(SETTINGS), arguments[cut + 1 :]
    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        print(f"error: no setting {unknown[0]!r}; there are {', '.join(SETTINGS)}", file=sys.stderr)
        return 2
    own_files = any(option.startswith("tests/") for option in options)
    files = [] if own_files else numerical_files()
    RESULTS.mkdir(parents=True, exist_ok=True)
    print(f"Python {sys.version.split()[0]}, jax {version('jax')}; on another: OTHER/bin/python -m tests.processors")
    print(f"{'setting':<16}{'passed':>7}{'failed':>7}{'wall':>9}  processor", flush=True)
    green = [tried(name, files, options) for name in names]
    return 0 if all(green) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
