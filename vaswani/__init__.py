"""The installed package: in a wheel it holds the other packages, in a clone it finds them beside itself.

    import vaswani
    from infer import load_run

After `import vaswani` these packages are importable by their own names, as everywhere in this code; without it nothing
but `vaswani` is a top-level name of the environment. `vaswani COMMAND` on the command line is `python -m COMMAND`.

Raises:
  ImportError: a package's name belongs to another module here, such as a `data.py` beside your program. Modules in a
    folder of your own that has such a name cannot be imported after it.
"""

import importlib.util
import sys
from pathlib import Path

ROOMS = ("base", "model", "data", "search", "run", "tasks", "infer", "train", "configs", "paper")


def _find() -> Path:
    """Returns the folder of the packages."""
    here = Path(__file__).resolve().parent
    return here if (here / "model").is_dir() else here.parent


def _check(root: Path) -> None:
    """Raises `ImportError` if a package's name means another module."""
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        where = spec and spec.origin
        # A folder without __init__.py has no origin; a package is found before it, unless it is imported already.
        if spec and not where and room in sys.modules:
            where = next(iter(spec.submodule_search_locations or ()), None)
        if where and Path(where).resolve().parent != root / room:
            raise ImportError(f"vaswani needs the name {room!r}, but {where} has it already: rename that one")


ROOT = _find()
_check(ROOT)
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import base  # noqa: E402, F401 (it refuses a Python that is too old)
