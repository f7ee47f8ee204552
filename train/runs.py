"""Lists runs, compares two of them, and draws their curves, at any time and without loading jax.

    python -m train.runs DIR...                          # every run in these folders: state, step, nll, minutes ...
    python -m train.runs --diff RUN RUN2                 # the config keys and the results in which two runs differ
    python -m train.runs DIR... --plot=FILE.svg          # or .png; .html has controls, and the table

A DIR is a run, or a folder with runs at any depth, such as that of a sweep. Runs that differ in nothing but their seed
become one curve, their mean, with a band from the lowest to the highest. A run whose files are damaged is listed, with
the reason. "training" is a run that a process of this machine, or one that shares its locks, is working on.
On a terminal, columns that do not fit stand below their run; in a pipe or a file each run is one line.
"""

import shutil
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import output_file
from vaswani.train.overview.found import find_runs
from vaswani.train.overview.picture import SUFFIXES, draw
from vaswani.train.overview.table import as_fitted_text, difference_of, table_of
from vaswani.train.table import as_text


def check(options: Any) -> None:
    """Raises a `UserError` if the flags do not go together."""
    if options.diff and options.plot is not None:
        raise UserError("--diff prints a table; --plot draws without it")


def main(argv: list[str]) -> None:
    show(flags.FLAGS, argv[1:])


def show(options: Any, places: Sequence[str]) -> None:
    """Prints the table, or the difference of two runs, and draws what --plot names.

    Raises:
      UserError: a folder holds no run, --diff has not two runs, or the drawing cannot be written.
    """
    if not places:
        raise UserError("which runs? name their folders: python -m train.runs DIR...")
    output = None if options.plot is None else output_file("plot", options.plot, SUFFIXES)
    runs = find_runs(places)
    if options.diff:
        if len(runs) != 2:
            raise UserError(f"--diff compares two runs; these folders hold {len(runs)}")
        print(as_text(difference_of(*runs)))
        return
    table = table_of(runs)
    if sys.stdout.isatty():
        print(as_fitted_text(table, shutil.get_terminal_size().columns))
    else:  # a line a run, for other programs
        print(as_text(table))
    if output:
        draw(runs, table, output)


if __name__ == "__main__":
    flags.DEFINE_bool("diff", False, "compare two runs, key by key")
    flags.DEFINE_string("plot", None, "draw the training and validation curves into this .svg, .png or .html file")
    flags.FLAGS.set_gnu_getopt(True)  # flags may follow the folders
    run(main, check=check)
