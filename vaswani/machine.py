"""What this process may use of the machine, memory and CPUs, and how much memory it has used."""

import contextlib
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

STATUS = Path("/proc/self/status")
GROUPS = Path("/proc/self/cgroup")  # the control groups that limit this process, in a container or a job
LIMITS = Path("/sys/fs/cgroup")
CPUINFO = Path("/proc/cpuinfo")


def largest_resident() -> int:
    """Returns the most resident memory of this process so far, in bytes.

    On Linux not what `getrusage` says, which begins at the peak of the process that started this one.
    """
    if STATUS.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def most_allowed() -> int:
    """Returns the memory of this machine, or of the container or job that this process is in, in bytes."""
    # The smallest limit counts; a machine has its memory, and each group around the process may have less.
    allowed = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _limits():
        with contextlib.suppress(OSError, ValueError):  # there is none: no such file, or "max"
            allowed.append(int(file.read_text(encoding="utf-8")))
    return min(allowed)


def _limits() -> Iterator[Path]:
    """Yields the files with a limit for this process: of its control groups and of those around them."""
    with contextlib.suppress(OSError):  # there are no control groups
        # The line of the group that this process is in, as "0::/job/7"; version 1 of the groups had several.
        for line in GROUPS.read_text(encoding="utf-8").splitlines():
            group = Path(line.removeprefix("0::").strip("/"))
            for folder in (group, *group.parents):
                yield LIMITS / folder / "memory.max"


def cpus() -> int:
    """Returns how many CPUs this process may use: fewer than the machine has under taskset or Slurm."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def cpu_info(name: str) -> str:
    """Returns a field of Linux's entry for the first CPU, such as "model name"; "" on other systems."""
    with contextlib.suppress(OSError):
        for line in CPUINFO.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""
