"""Huge pages for the arrays of training on CPUs: XLA allocates their memory at each step, and frees it again.

glibc asks the kernel for them only if the environment says so when a process starts (`GLIBC_TUNABLES`), so a process
without them restarts itself.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

TUNABLES = "GLIBC_TUNABLES"
SETTING = "glibc.malloc.hugetlb=1"
_FIRST_GLIBC = (2, 35)
_OPTIONS = ("-u", "-O", "-OO", "-E", "-s", "-I")  # of Python, before the command
_KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def start_again(module: str) -> None:
    """Starts this command again with huge pages, in the same process, if that changes anything; then does not return.

    To be called before anything is begun, by `python -m MODULE` or `vaswani MODULE`. Any other program that calls it
    goes on as it is, and so does one whose environment has `GLIBC_TUNABLES`.
    """
    if _runs(sys.orig_argv, module) and _would_help(os.environ, _kernel_setting(), _libc()):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # it is None if it was closed before the start
                stream.flush()
        with suppress(OSError):
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {TUNABLES: SETTING})


def _runs(orig_argv: Sequence[str], module: str) -> bool:
    """Returns whether this is the command line of that command."""
    arguments = list(orig_argv[1:])
    while arguments and arguments[0] in _OPTIONS:
        arguments.pop(0)
    is_named = arguments[1:2] == [module]
    return is_named and (arguments[0] == "-m" or Path(arguments[0]).name == "vaswani")


def _would_help(environment: Mapping[str, str], kernel_setting: str, libc: str) -> bool:
    """Returns whether glibc is the allocator, knows the setting, and has to ask for huge pages."""
    version = re.match(r"glibc (\d+)\.(\d+)", libc)
    knows = version is not None and (int(version[1]), int(version[2])) >= _FIRST_GLIBC
    return TUNABLES not in environment and "[madvise]" in kernel_setting and knows


def _kernel_setting() -> str:
    with suppress(OSError):
        return _KERNEL.read_text(encoding="utf-8")
    return ""


def _libc() -> str:
    with suppress(ValueError, OSError, AttributeError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""
