"""Runs commands in processes that are forked from one that has loaded the libraries, each with a limit of time."""

import contextlib
import multiprocessing
import os
import runpy
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
# Not the commands themselves: `python -m` warns of a module that is loaded already.
LOADED = [
    *("tests.fuzzing", "orbax.checkpoint", "optuna", "matplotlib.figure"),
    *(
        "vaswani.infer.evaluate.predictions",
        "vaswani.infer.evaluate.texts",
        "vaswani.infer.evaluate.translations",
        "vaswani.infer.evaluate.trees",
    ),
    *("vaswani.infer.translate.explain", "vaswani.infer.translate.stream"),
    *(
        "vaswani.infer.attention.drawing",
        "vaswani.infer.scores.significance",
        "vaswani.train.loop",
        "vaswani.train.job",
    ),
    *("vaswani.train.sweep.command", "vaswani.paper.command"),
]


class Done(NamedTuple):
    """How a command ended: its status, None if it did not, and what it printed."""

    status: int | None
    out: str
    err: str


def run(command: list[str], folder: Path, stdin: Path | None = None, limit: float = 300.0) -> Done:
    """Runs `python -m COMMAND` in a folder; kills it after `limit` seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    out, err = folder / ".out", folder / ".err"
    process = context.Process(target=_child, args=(command, str(folder), str(stdin or os.devnull), str(out), str(err)))
    process.start()
    process.join(limit)
    status = process.exitcode
    if status is None:
        process.kill()
        process.join()
    return Done(status, out.read_text(errors="replace"), err.read_text(errors="replace"))


def _child(command: list[str], folder: str, stdin: str, out: str, err: str) -> None:
    for number, name in enumerate((stdin, out, err)):
        descriptor = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    sys.path.insert(0, str(ROOT))
    sys.argv = [*command]
    module = f"vaswani.{command[0]}"
    with contextlib.suppress(KeyError):
        del sys.modules[module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
