"""Trains many variants of one config: every point of a grid, or the trials of a search.

    python -m train.sweep --config=FILE[:ARGUMENT] --workdir=DIR [--config.k=v]               # a grid
    python -m train.sweep --config=FILE[:ARGUMENT] --workdir=DIR --trials=40 [--storage=URL]  # a search
    python -m train.sweep --workdir=DIR --table [--csv | --json]                              # results, at any time
    python -m train.sweep --workdir=DIR --best                                                # how to train the best

Besides `get_config()`, FILE has `sweep()`, which returns the points of a grid (written with the expressions of
train/sweep/expressions.py), or `search(trial)`, which returns the keys that an Optuna trial sets. Give the same command
again to start another worker, also on another machine if they all reach --storage. Workers share the points, skip
finished ones, and resume a dead worker's from their last checkpoints. Each point is a separate run, `python -m train`,
in DIR/POINT; DIR/sweep has the study and the runs' output. `python -m train.runs DIR --plot=FILE.svg` draws the curves
of the runs. See docs/sweeps.md.

Ctrl-C and SIGTERM let the run save and release its point (Ctrl-C twice: at once). Exit status: 0 all points are done
(with grpc:// some may still train), 1 some have failed (the table says why; they did not stop the others), 2 a wrong
config, folder or storage, 130 and 143 stopped by Ctrl-C and SIGTERM.
"""

from absl import flags
from ml_collections import config_flags

from vaswani.command import run
from vaswani.configs.common import default
from vaswani.data.other_corpora import other_corpora
from vaswani.errors import UserError, note
from vaswani.files import folder, in_bucket, output_folder
from vaswani.train.check import check
from vaswani.train.sweep import command

_CONFIG = config_flags.DEFINE_config_file("config", None, "the experiment", lock_config=True)
flags.DEFINE_string("workdir", None, "folder of the sweep; made if absent")
flags.DEFINE_integer(
    "trials",
    None,
    "search with this many trials in all",
    lower_bound=1,
    upper_bound=100_000,
)
flags.DEFINE_string(
    "storage",
    None,
    "SQLAlchemy URL of a database, or grpc://HOST:PORT; default: an SQLite file in the folder",
)
flags.DEFINE_string("study", None, "name of the study in its storage; default: the folder's")
flags.DEFINE_enum(
    "pruner",
    "asha",
    ["asha", "hyperband", "none"],
    "what stops bad trials of a search early",
)
flags.DEFINE_integer(
    "silence",
    120,
    "heartbeat timeout: seconds without a heartbeat after which a worker counts as dead",
    lower_bound=6,  # a heartbeat is due every sixth of it, and the loop that sends them runs twice a second
)
flags.DEFINE_bool("retry", False, "train failed points again; with grpc:// also dead workers' points")
flags.DEFINE_bool("table", False, "print the points and what they reached")
flags.DEFINE_bool("csv", False, "as --table, in comma-separated values")
flags.DEFINE_bool("json", False, "print all that the study has of the points, in JSON")
flags.DEFINE_bool("best", False, "print the command that trains the best point again")


def main(argv: list[str]) -> int:
    options = flags.FLAGS
    showing = options.table or options.csv or options.json or options.best
    if showing:
        workdir = folder("workdir", options.workdir)
    elif _CONFIG.value is None:
        raise UserError("--config is missing; only --table, --csv, --json and --best do without it")
    else:
        check(_CONFIG.value, default())
        for split, fault in other_corpora(_CONFIG.value.data).items():
            note(f"{fault}: give --config.data.{split} too", "warning")
        workdir = output_folder("workdir", options.workdir)
    if in_bucket(workdir) and options.storage is None:
        raise UserError(f"--workdir={workdir}: a study in SQLite cannot be in a bucket: give a database, --storage=URL")

    try:
        if showing:
            return command.show(options, workdir)
        return command.train(options, workdir)
    except OSError as error:
        raise UserError(f"{error.filename or workdir}: {error.strerror or error}") from error


if __name__ == "__main__":
    flags.mark_flag_as_required("workdir")
    run(main, default().to_dict(), hint="keys are set as --config.KEY=VALUE")
