"""Utilities that any package may use: errors, progress, files, tables."""

import sys

# Every command imports this file first. It has no newer syntax, so that an older Python can read it.
if sys.version_info < (3, 11):  # noqa: UP036
    _TOLD = f"Python 3.11 or newer is needed; {sys.executable} is {sys.version_info[0]}.{sys.version_info[1]}"
    if sys.argv[:1] != ["-m"]:
        raise ImportError(_TOLD)
    print(f"error: {_TOLD}; `make quickstart PYTHON=python3.12` installs into .venv with another", file=sys.stderr)
    sys.exit(2)
