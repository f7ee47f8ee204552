"""The tests of the kernels, on the GPU, and of sharding, which needs eight devices and so takes virtual ones."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.accelerator.record import LOG, Options, Part

ROOT = Path(__file__).parent.parent.parent
TESTS = {"kernels": ("tests/model/test_kernels.py", "cuda,cpu"), "sharding": ("tests/run/test_sharding.py", "cpu")}
QUICK = "what_cannot_be or mesh_that_does_not_fit"


def pytest(file: str, platforms: str, tiny: bool) -> dict[str, Any]:
    """Returns pytest's last line and the end of its log; a failing test makes the part fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", file]
    command += ["-k", QUICK] if tiny else []
    environment = {**os.environ, "JAX_PLATFORMS": "cpu" if tiny else platforms}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    outcome = next((line for line in reversed(lines) if " passed" in line or " failed" in line), "no test ran")
    return {"failed": outcome, "log": done.stdout[-LOG:]} if done.returncode else {"outcome": outcome}


def parts(options: Options) -> dict[str, Part]:
    """Returns a call of pytest for each file; in miniature a few tests that need no compilation."""
    names = ["kernels"] if options.tiny else list(TESTS)
    return {name: partial(pytest, *TESTS[name], options.tiny) for name in names}
