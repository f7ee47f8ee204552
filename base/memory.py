"""How much memory this process has used."""

import re
import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


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
