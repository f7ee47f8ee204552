"""Lists runs, compares two of them, and draws their curves, at any time and without loading jax.

    python -m train.runs DIR...                          # every run in these folders: state, step, nll, minutes ...
    python -m train.runs --diff RUN RUN2                 # the config keys and the results in which two runs differ
    python -m train.runs DIR... --plot=FILE.svg          # or .png; .html also has the table

A DIR is a run, or a folder with runs at any depth, such as that of a sweep. Runs that differ in nothing but their seed
become one curve, their mean, with a band from the lowest to the highest. A run whose files are damaged is listed, with
the reason. "training" is a run that a process of this machine, or one that shares its locks, is working on.
On a terminal, columns that do not fit stand below their run; in a pipe or a file each run is one line.
"""

from absl import flags

from base.command import run
from base.errors import UserError


def main(argv: list[str]) -> None:
    from train.overview.command import show

    show(flags.FLAGS, argv[1:])


def check(options: flags.FlagValues) -> None:
    """Raises a `UserError` if the flags do not go together."""
    if options.diff and options.plot is not None:
        raise UserError("--diff prints a table; --plot draws without it")


if __name__ == "__main__":
    flags.DEFINE_bool("diff", False, "compare two runs, key by key")
    flags.DEFINE_string("plot", None, "draw the training and validation curves into this .svg, .png or .html file")
    flags.FLAGS.set_gnu_getopt(True)  # flags may follow the folders
    run(main, check=check)
