"""Measures one row, in a process of its own; `python -m lab.benchmarks.accelerator` starts it."""

import importlib
from pathlib import Path

from absl import flags

from lab.benchmarks.accelerator.record import MINUTES, Options, measure
from vaswani.command import run

_ROW = flags.DEFINE_enum("row", None, list(MINUTES), "which", required=True)
_FILE = flags.DEFINE_string("file", None, "its record", required=True)
_RUNS = flags.DEFINE_string("runs", None, "folder of the runs that are trained", required=True)
_CORPORA = flags.DEFINE_string("corpora", None, "folder of the corpora")
_SECONDS = flags.DEFINE_float("seconds", None, "for the whole row", required=True)
_TINY = flags.DEFINE_bool("tiny", False, "in miniature")


def main(argv: list[str]) -> None:
    """Measures the parts that the record lacks."""
    corpora = Path(_CORPORA.value) if _CORPORA.value else None
    options = Options(_TINY.value, Path(_RUNS.value), corpora, _SECONDS.value)
    row = importlib.import_module(f"lab.benchmarks.accelerator.{_ROW.value}")
    measure(row.parts(options), Path(_FILE.value), options.seconds)


if __name__ == "__main__":
    run(main)
