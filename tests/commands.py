"""Commands of this repository, run as a reader runs them."""

import subprocess
import sys

from tests.conftest import ROOT


def run(module: str, *arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs `python -m MODULE` in the repository, with `text` on its standard input."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, encoding="utf-8")
