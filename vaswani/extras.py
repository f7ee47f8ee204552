"""How to install the optional packages, the extras of pyproject.toml."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # the clone, or the folder of all installed packages


def pip_install(extra: str) -> str:
    """Returns the command that installs an extra: in a clone from there, else for the installed package."""
    if (ROOT / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]'"
    return f"pip install 'vaswani[{extra}]'"
