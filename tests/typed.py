"""Reads command lines as our commands would, and goes no further: what does each say that is wrong with its flags?

Run as `python -m tests.typed`, it reads a list of [module, argument, ...] from standard input, as JSON, and writes the
list of what the commands complain of, "" for none. Each command line is read in a fork of this process, which has
imported what all commands need: a hundredth of a second each, and no command can see another's flags.
"""

import json
import os
import runpy
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.repo.test_layout import LINKED

ROOT = Path(__file__).parent.parent


def complaints(commands: list[tuple[str, ...]], folder: Path) -> list[str]:
    """Returns what each command says of its command line, with `folder` as the working directory; "" for nothing."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.typed", str(folder)],
        input=json.dumps(commands),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    found: list[str] = json.loads(process.stdout)
    assert len(found) == len(commands)
    return found


class Read(BaseException):
    """The command line has been read; `complaint` is what is wrong with it, "" for nothing. No command catches it."""

    def __init__(self, complaint: str) -> None:
        super().__init__(complaint)
        self.complaint = complaint


def stop_once_read() -> None:
    """Makes every command raise `Read` where it would start its work."""
    from vaswani import command
    from vaswani.errors import UserError
    from vaswani.keys import flat

    def begin(arguments: list[str]) -> int:
        raise Read("")

    def run(main: Any, keys: Any = None, hint: str = "", check: Any = None) -> None:
        try:
            command._answer(begin, flat(keys or {}), hint, check)
        except UserError as error:
            raise Read(str(error)) from None
        raise Read("")  # it has answered with help, or its version

    command.run = run
    command.compiled.keep = lambda: None


def complaint_of(command: list[str]) -> str:
    """Returns what a command says of its command line, "" for nothing."""
    sys.argv = list(command)
    is_linked = command[0].partition(".")[0] in LINKED
    module = f"vaswani.{command[0]}" if is_linked else command[0]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Read as read:
        return read.complaint
    except SystemExit as error:
        return f"it exits with {error.code}"
    except BaseException:
        return traceback.format_exc()
    return "it reads no flags"


def forked(command: list[str], folder: str) -> str:
    """Returns `complaint_of(command)` from a fork of this process, in whose working directory it is called."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(complaint_of(command))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        complaint = pipe.read()
    _, status = os.waitpid(child, 0)
    return complaint if status == 0 else f"it ends with status {status}"


def main() -> None:
    stop_once_read()
    import vaswani.paper.command  # noqa: F401  # and with it what else takes long to import

    json.dump([forked(command, sys.argv[1]) for command in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
