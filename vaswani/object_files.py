"""Keeps jaxlib 0.10 from loading a compiled function that would kill the process.

On a CPU, XLA makes an object file of each kernel. To load them from the compilation cache, the linker of jaxlib 0.10
recurses once for each object that calls another library, such as `tanf` of libm, on a worker's stack of 2 MB: 802 such
objects load, and 1,002 end the process by SIGSEGV, in this launch and in every later one. jaxlib 0.11 and 0.12 load
them.
"""

import re
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

MOST = 400  # half of what loads; our largest compiled functions have 313
_CACHE = "jax._src.compilation_cache"
_OBJECT = re.compile(rb"\x7fELF|\xcf\xfa\xed\xfe")  # how an object file begins, on Linux and on macOS


def guard() -> None:
    """Makes jax compile again what has too many object files, instead of writing it to its cache or loading it.

    jax has no setting for this, so two of its functions are replaced: now if it has been imported, and otherwise
    when it is, since this package does not import it. jax turns the error that they raise into a warning.
    """
    if _CACHE in sys.modules:
        _replace(sys.modules[_CACHE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def are_too_many(executable: bytes) -> bool:
    """Returns whether an executable, as jax serializes it, has more than `MOST` object files."""
    return len(_OBJECT.findall(executable)) > MOST


class _Finder(MetaPathFinder):
    """Replaces the two functions as soon as their module is imported, and then steps aside."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != _CACHE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _replace(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _replace(cache: Any) -> None:
    from jaxlib.version import __version__  # imported by now

    compress = cache.compress_executable
    decompress = cache.decompress_executable
    if not __version__.startswith("0.10.") or compress.__module__ != _CACHE:
        return

    def compress_executable(executable: bytes) -> bytes:
        return compress(_check(executable))

    def decompress_executable(kept: bytes) -> bytes:
        return _check(decompress(kept))

    cache.compress_executable = compress_executable
    cache.decompress_executable = decompress_executable


def _check(executable: bytes) -> bytes:
    if are_too_many(executable):
        raise ValueError(f"it has more than {MOST} object files, which jaxlib 0.10 may not be able to load")
    return executable
