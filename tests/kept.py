"""Where the tests keep compiled programs between test runs: compiling is a third of the suite."""

from pathlib import Path

from vaswani import compiled
from vaswani.files import user_cache
from vaswani.machine import cpus

IN_CLONE = Path(__file__).parent.parent / ".cache" / "jax-tests"
MAX_BYTES = 2 << 30  # those of a whole suite are 0.6 GiB


def folder() -> Path:
    """Returns a folder in the user's cache, so that a fresh clone need not compile all again.

    Or one in the clone, if the user's cannot be used, or others may write to it.
    """
    try:
        root = Path(user_cache()).expanduser() / "tests"
    except RuntimeError:  # there is no home
        return IN_CLONE
    if not root.is_absolute() or not compiled.is_private(root):
        return IN_CLONE
    compiled.limit(root, MAX_BYTES)
    return root / f"{cpus()}-threads"
