"""Lists runs and their scores, compares two of them, and draws their curves, at any time and without loading jax.

    python -m train.runs DIR...                          # every run in these folders: state, step, nll, minutes ...
    python -m train.runs DIR... --sort=nll --columns=run,lr,P_drop,nll
    python -m train.runs DIR... --scores                 # scores of their evaluations, mean and spread over seeds
    python -m train.runs DIR... --scores --latex         # or --markdown; --csv has each run, and no mean
    python -m train.runs --diff RUN RUN2                 # the config keys, results and scores in which two runs differ
    python -m train.runs DIR... --plot=FILE.svg          # or .png: curves of their losses

A DIR is a run, or a folder with runs at any depth, such as a sweep's. Runs that differ only in their seed
become one curve, their mean, with a band from the lowest to the highest, and one row of --scores, their mean ± the
sample standard deviation. A run whose files are damaged is listed, with the reason. "training" is a run that a process
of this machine, or one that shares its locks, is working on. Columns that a terminal (in a pipe: 120 characters) has no
room for are named below the table; --markdown, --latex and --csv have all of them.
"""

import shutil
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import output_file
from vaswani.train.overview.find_runs import find_runs
from vaswani.train.overview.picture import SUFFIXES, draw
from vaswani.train.overview.scores import scores_of
from vaswani.train.overview.table import arrange, as_fitted_text, difference_of, table_of
from vaswani.train.table import Table, as_csv, as_latex, as_markdown, as_text

_WIDTH = 120  # characters, where there is no terminal


def check(options: Any) -> None:
    """Raises a `UserError` if the flags do not go together."""
    if options.diff and options.plot is not None:
        raise UserError("--diff prints a table; --plot draws without it")
    if options.diff and (options.scores or options.columns or options.sort):
        raise UserError("--diff also shows the scores, and takes neither --columns nor --sort")
    if sum((options.markdown, options.latex, options.csv)) > 1:
        raise UserError("give one of --markdown, --latex and --csv")


def main(argv: list[str]) -> None:
    show(flags.FLAGS, argv[1:])


def show(options: Any, places: Sequence[str]) -> None:
    """Prints the table of runs, of scores, or of the difference of two runs, and draws what --plot names.

    Raises:
      UserError: a folder holds no run, --diff has not two runs, no run has scores, there is no such column, or the
        drawing cannot be written.
    """
    if not places:
        raise UserError("which runs? name their folders: python -m train.runs DIR...")
    output = None if options.plot is None else output_file("plot", options.plot, SUFFIXES)
    runs = find_runs(places)
    if options.diff:
        if len(runs) != 2:
            raise UserError(f"--diff compares two runs; these folders hold {len(runs)}")
        print(_form(options, as_text)(difference_of(*runs)))
        return
    table = scores_of(runs, each_run=options.csv) if options.scores else table_of(runs)
    print(_form(options, _fit_terminal)(arrange(table, options.columns, options.sort)))
    if output:
        draw(runs, output)


def _form(options: Any, otherwise: Callable[[Table], str]) -> Callable[[Table], str]:
    """Returns the function that formats a table as the flags ask."""
    if options.markdown:
        return as_markdown
    if options.latex:
        return as_latex
    return as_csv if options.csv else otherwise


def _fit_terminal(table: Table) -> str:
    return as_fitted_text(table, shutil.get_terminal_size((_WIDTH, 0)).columns)


if __name__ == "__main__":
    flags.DEFINE_bool("scores", False, "scores of evaluations, with mean and spread over seeds")
    flags.DEFINE_bool("diff", False, "compare two runs, key by key")
    flags.DEFINE_list("columns", None, "columns to print, with commas between them")
    flags.DEFINE_string("sort", None, "column to sort by; -COLUMN is the highest first")
    flags.DEFINE_bool("markdown", False, "print Markdown")
    flags.DEFINE_bool("latex", False, "print a LaTeX table")
    flags.DEFINE_bool("csv", False, "print comma-separated values, of --scores each run's")
    flags.DEFINE_string("plot", None, "draw the training and validation curves into this .svg or .png file")
    flags.FLAGS.set_gnu_getopt(True)  # flags may follow the folders
    run(main, check=check)
