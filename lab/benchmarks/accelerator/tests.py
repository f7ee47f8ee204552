"""The tests of cuDNN on the GPU; on the CPU those of the code around kernels, and of sharding on eight devices."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lab.benchmarks.accelerator.record import LOG, Options, Part

ROOT = Path(__file__).parent.parent.parent
ON_GPU = {
    "JAX_PLATFORMS": "cuda,cpu",
    "JAX_DEFAULT_MATMUL_PRECISION": "highest",  # the definition's products would be TF32
    "XLA_FLAGS": "--xla_backend_optimization_level=3",  # which tests/conftest.py lowers
}
ON_CPU = {"JAX_PLATFORMS": "cpu"}
CUDNN = "test_cudnn_equals_the_definition"
QUICK = "what_cannot_be"


class Tests(NamedTuple):
    """Tests of a file, those whose names fit `names`, in an environment."""

    file: str
    names: str
    environment: dict[str, str]


TESTS = {
    "cudnn": Tests("tests/model/test_kernels.py", CUDNN, ON_GPU),
    "kernels": Tests("tests/model/test_kernels.py", f"not {CUDNN}", ON_CPU),
    "sharding": Tests("tests/run/test_sharding.py", "", ON_CPU),
}


def pytest(tests: Tests, tiny: bool) -> dict[str, Any]:
    """Returns pytest's last line and the end of its log; a failing test makes the part fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", tests.file]
    names = QUICK if tiny else tests.names
    if names:
        command += ["-k", names]
    environment = {**os.environ, **tests.environment}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    outcome = next((line for line in reversed(lines) if " passed" in line or " failed" in line), "no test ran")
    return {"failed": outcome, "log": done.stdout[-LOG:]} if done.returncode else {"outcome": outcome}


def parts(options: Options) -> dict[str, Part]:
    """Returns a call of pytest for each file; in miniature a few tests that need no compilation."""
    names = ["kernels"] if options.tiny else list(TESTS)
    return {name: partial(pytest, TESTS[name], options.tiny) for name in names}
