"""The processors of this machine: how many this process may use, and what Linux says of the first one."""

import os
import sys
from contextlib import suppress
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def cpus() -> int:
    """Returns how many processors this process may use: fewer than the machine has under taskset or Slurm."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def described(name: str) -> str:
    """Returns what Linux says of the first processor under a name, such as "model name"; "" on other systems."""
    with suppress(OSError):
        for line in CPUINFO.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""
