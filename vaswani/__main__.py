"""Runs a command of this project: `vaswani train --config=..` is `python -m train --config=..` from any folder.

A bundled configuration is named as in a clone, --config=configs/quickstart.py, if there is no such
file in the current folder.
"""

import ast
import os
import runpy
import sys
from pathlib import Path

from vaswani import __version__
from vaswani.keys import nearest

START = '\nif __name__ == "__main__"'
CONFIG = ("--config", "-config")
ROOT = Path(__file__).resolve().parent  # has every package, or a link to it


def commands() -> dict[str, Path]:
    """Returns the file of each command, by the name after `python -m`."""
    rooms = (path for path in sorted(ROOT.iterdir()) if (path / "__init__.py").is_file())
    files = (path for room in rooms for path in sorted(room.rglob("*.py")))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__"): path
        for path in files
        if START in path.read_text(encoding="utf-8")
    }


def main() -> int:
    """Runs the command that the command line names, or lists all."""
    name, *rest = sys.argv[1:] or ["--help"]
    found = commands()
    if name in ("--help", "-h", "help"):
        return _print(_help(found))
    if name == "--version":
        return _print(f"vaswani {__version__}")
    if name not in found:
        near = nearest(name, found)
        advice = f"did you mean {near}?" if near else "vaswani --help lists them"
        print(f"error: there is no command {name!r}; {advice}", file=sys.stderr)
        return 2
    sys.argv = [f"vaswani {name}", *own_configs(rest)]
    runpy.run_module(f"vaswani.{name}", run_name="__main__", alter_sys=True)
    return 0


def _help(found: dict[str, Path]) -> str:
    """Returns the text of --help: every command with the first line of its docstring."""
    lines = [__doc__ or "", "Commands; --help explains each:", ""]
    for command, path in found.items():
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"  {command:<22} {about.splitlines()[0]}")
    return "\n".join(lines)


def _print(text: str) -> int:
    """Prints the text; returns the exit status, SIGPIPE's if the reader, such as `head`, has gone."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes it again at exit
        return 141
    return 0


def own_configs(arguments: list[str]) -> list[str]:
    """Returns the arguments, with the whole path of each configuration of this code, after "=" or a space."""
    found: list[str] = []
    before = ""
    for argument in arguments:
        flag, equals, path = argument.partition("=")
        if before in CONFIG:
            found.append(_own(argument))
        elif equals and flag in CONFIG:
            found.append(f"{flag}={_own(path)}")
        else:
            found.append(argument)
        before = argument
    return found


def _own(path: str) -> str:
    """Returns FILE[:ARGUMENT] with the whole path if it is of this code and not in the current folder."""
    file = path.partition(":")[0]
    is_own = file.startswith(f"configs{os.sep}") and not Path(file).exists() and (ROOT / file).is_file()
    return str(ROOT / path) if is_own else path


if __name__ == "__main__":
    sys.exit(main())
