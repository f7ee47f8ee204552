"""Sets up jax's compilation cache, in the user's cache folder: compiled functions are kept between commands.

jax reads the settings from the environment, so nothing here imports it. jax leaves a few things to do:

- Loading a compiled function runs code from a file, so the folder must belong to the user, and nobody else may write
  to it.
- A changed byte in a compiled function can change its results, or crash it, and XLA does not notice. jax compresses
  the files with zlib, which has a checksum; zstandard has none as jax uses it, and jax prefers it where it is
  installed. There the cache is off.
- jax's cache key includes the CPU and the versions, but not the number of threads, on which the code depends.
- jax writes in place: a process that is killed, or a full disk, leaves a partial file. jax would warn of it and
  recompile in every later process. It is deleted.
- jaxlib 0.10 dies when it loads a large executable (`vaswani.object_files`), wherever the user may cache it.
- jax's own size limit needs a lock that can be written, and on jax 0.10 fails for good after a killed process.
"""

import os
import re
import sys
import time
import warnings
import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vaswani import object_files
from vaswani.files import user_cache
from vaswani.machine import cpus

DIRECTORY = "JAX_COMPILATION_CACHE_DIR"
ENABLED = "JAX_ENABLE_COMPILATION_CACHE"
MAX_BYTES = 512 << 20  # of the whole cache
_DAY = 24 * 3600.0
_SETTINGS: dict[str, Any] = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,  # most of ours compile in less than jax's default of a second
    "jax_persistent_cache_enable_xla_caches": "none",  # other files, of XLA's for GPUs, without a checksum
}
_FAILED = "Error (?:reading|writing) persistent compilation cache entry for '(.*?)'"  # how jax's warnings begin


def keep() -> None:
    """Turns on jax's compilation cache in this process, and in those that it starts.

    To be called before anything is compiled. Chooses no folder if the environment or the caller, in jax's config, has
    set JAX_COMPILATION_CACHE_DIR or JAX_ENABLE_COMPILATION_CACHE, if no folder can be used, or if jax would not notice
    a damaged file.
    """
    object_files.guard()
    root = _root()
    if root is None or ENABLED in os.environ:
        return
    if _is_configured() and not is_own_folder():
        return
    if _has_no_checksum() or not is_private(root):
        return
    os.environ.pop(DIRECTORY, None)  # of the parent process, perhaps for other CPUs
    folder = root / f"{cpus()}-threads"
    _set({DIRECTORY.lower(): str(folder), **_SETTINGS})
    _repair(folder)
    limit(root, MAX_BYTES)


def is_own_folder() -> bool:
    """Returns whether `keep`, here or in a parent process, chose jax's cache folder, and not the user."""
    return DIRECTORY in os.environ and Path(os.environ[DIRECTORY]).parent == _root()


def _is_configured() -> bool:
    """Returns whether the cache is already configured, or off."""
    jax = sys.modules.get("jax")
    if jax is None:
        return DIRECTORY in os.environ
    config = jax.config
    return DIRECTORY in os.environ or bool(config.jax_compilation_cache_dir) or not config.jax_enable_compilation_cache


def _root() -> Path | None:
    """Returns the folder of our caches, which need not exist, or None if the user has no folder for caches."""
    try:
        root = Path(user_cache()).expanduser()
    except RuntimeError:
        return None
    return root if root.is_absolute() else None


def _has_no_checksum() -> bool:
    return any(find_spec(name) is not None for name in ("compression", "zstandard"))  # the former from Python 3.14


def is_private(root: Path) -> bool:
    """Returns whether the folder, created if absent, is the user's, and nobody else may write to it."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _set(settings: dict[str, Any]) -> None:
    """Sets jax's settings for this process and those that it starts, if the environment does not have them."""
    jax = sys.modules.get("jax")  # already loaded by a command whose file is also a library
    for name, value in settings.items():
        if name.upper() in os.environ:
            continue
        os.environ[name.upper()] = str(value)
        if jax is not None:
            jax.config.update(name, value)


@cache
def _repair(folder: Path) -> None:
    """Deletes damaged or too large files when jax comes across them, instead of showing jax's paragraph for each.

    jax then compiles again and rewrites the file. Other failures, such as writing to a read-only folder, need no
    warning either: jax has gone on without.
    """
    show = warnings.showwarning

    def repair(message: Warning | str, *where: Any, **more: Any) -> None:
        failed = re.match(_FAILED, str(message))
        if failed is None:
            show(message, *where, **more)
            return
        with suppress(OSError):
            for path in folder.iterdir():
                if path.name.startswith(f"{failed[1]}-") and not _can_be_loaded(path):
                    path.unlink(missing_ok=True)

    warnings.showwarning = repair
    warnings.filterwarnings("always", _FAILED, UserWarning)


def _can_be_loaded(path: Path) -> bool:
    try:
        executable = zlib.decompress(path.read_bytes())
    except (OSError, zlib.error):
        return False
    return not object_files.are_too_many(executable)


def limit(root: Path, most: int) -> None:
    """Deletes the oldest cache files beyond `most` bytes, once a day and if it may."""
    with suppress(OSError):
        stamp = root / "limited"
        if stamp.exists() and abs(time.time() - stamp.stat().st_mtime) < _DAY:
            return
        stamp.touch()
        delete_oldest(root.glob("*-threads/*-cache"), most)


def delete_oldest(paths: Iterable[Path], most: int) -> None:
    """Deletes the least recently used files until the rest have at most `most` bytes in total."""
    used: list[tuple[float, int, Path]] = []
    for path in paths:
        with suppress(OSError):  # another process has just deleted it
            status = path.stat()
            used.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = 0
    for _, size, path in sorted(used, reverse=True):
        total += size
        if total > most:
            path.unlink(missing_ok=True)
