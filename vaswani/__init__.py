"""The Transformer of "Attention Is All You Need" in JAX: the one name that an installation adds.

    from vaswani import load_run
    from vaswani.model.transformer import Transformer

The packages lie at the top of the repository, where a reader looks for them, and `vaswani/` has a link to each, for
editors, type checkers and setuptools; in a wheel they are its folders. `vaswani COMMAND` on the command line is
`python -m COMMAND` in a clone.
"""

import sys
from pathlib import Path

# Every command imports this file first. It has no newer syntax, so that an older Python can read it.
if sys.version_info < (3, 11):  # noqa: UP036
    _TOLD = f"Python 3.11 or newer is needed; {sys.executable} is {sys.version_info[0]}.{sys.version_info[1]}"
    if sys.argv[:1] != ["-m"]:
        raise ImportError(_TOLD)
    print(f"error: {_TOLD}; `make quickstart PYTHON=python3.12` installs into .venv with another", file=sys.stderr)
    sys.exit(2)

# In a clone, Python follows no link: a traceback names the file that git knows.
_HERE = Path(__file__).resolve().parent
if (_HERE / "model").is_symlink():
    __path__.insert(0, str(_HERE.parent))

from vaswani.errors import UserError  # noqa: E402
from vaswani.infer import load_run  # noqa: E402

__all__ = ["UserError", "__version__", "load_run"]
__version__ = "0.1.0"
