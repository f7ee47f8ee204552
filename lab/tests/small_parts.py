"""Parts that need no jax, for test_gpu.py: a part's process imports the module of its work."""

import os
import subprocess
import sys
import time
from typing import Any

from lab.gpu.sitting import Context


def finds(context: Context, **found: Any) -> dict[str, Any]:
    """Finds what it is told to, and the flags of its environment."""
    with (context.runs / "calls").open("a") as file:
        file.write(f"{found.get('name')}\n")
    return found | {"flags": os.environ.get("XLA_FLAGS")}


def fails(context: Context) -> dict[str, Any]:
    """Fails."""
    found: dict[str, Any] = {}
    return found["no such key"]


def dies(context: Context) -> dict[str, Any]:
    """Ends its process without a word."""
    os._exit(3)


def hangs(context: Context) -> dict[str, Any]:
    """Waits with a child, whose number it writes."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (context.runs / "pid").write_text(str(child.pid))
    time.sleep(600)
    return {}
