"""Huge pages for the arrays of a training on CPUs, whose memory XLA takes anew at each update and gives back.

glibc asks the kernel for them only if the environment says so when a process starts (`GLIBC_TUNABLES`), so a process
without them starts itself again.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

TUNABLES = "GLIBC_TUNABLES"
SETTING = "glibc.malloc.hugetlb=1"
_KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def start_again(module: str) -> None:
    """Starts this command again with huge pages, in the same process, if that changes anything; then does not return.

    To be called before anything is begun, by `python -m MODULE` or `vaswani MODULE`. Any other program that calls it
    goes on as it is, and so does one whose environment has `GLIBC_TUNABLES`.
    """
    if _runs(sys.orig_argv, module) and _would_help(os.environ, _kernel_setting(), _libc()):
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(OSError):
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {TUNABLES: SETTING})


def _runs(orig_argv: Sequence[str], module: str) -> bool:
    """Returns whether this is the command line of that command."""
    is_named = list(orig_argv[2:3]) == [module]
    return is_named and (orig_argv[1] == "-m" or Path(orig_argv[1]).name == "vaswani")


def _would_help(environment: Mapping[str, str], kernel_setting: str, libc: str) -> bool:
    """Returns whether glibc is the allocator, reads the setting, and has to ask for huge pages."""
    return TUNABLES not in environment and "[madvise]" in kernel_setting and libc.startswith("glibc")


def _kernel_setting() -> str:
    with suppress(OSError):
        return _KERNEL.read_text(encoding="utf-8")
    return ""


def _libc() -> str:
    with suppress(ValueError, OSError, AttributeError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""
