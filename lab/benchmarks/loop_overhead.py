"""Measures the overhead of the training loop: target tokens/s of `train` divided by those of the bare update.

    python -m lab.benchmarks.loop_overhead [--config=FILE] [--rounds=5] [--updates=20]
    python -m lab.benchmarks.loop_overhead --config=FILE --record=NAME     # a record, and the page

One training alternates between the two: it makes some updates, validates and saves, and then the same compiled program
makes the same updates again, with nothing around it and the batches in memory. The loop reads, packs and prefetches
them, logs and writes metrics. Rounds in which anything was compiled are left out; validation and saving are timed on
their own. Without --config it trains a small model (N 3, d_model 256) on packed batches of the built-in grammar.

The machine may be shared: `cpus` is process time over wall time, and wall times compare only in rounds in which loop
and bare update had as many. So the table's ratios are those of process times. Its last column is the share of the bare
update's tokens/s that 200 updates keep with validation and saving as often as the config has them, and as if nothing of
the writing went on concurrently with the updates.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_flags

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.train.table import as_text

_CONFIG = config_flags.DEFINE_config_file("config", None, "what is trained, any task on text; default: see above")
_SMALL = "a small model"


def main(argv: list[str]) -> None:
    """Prints a line per round, then the table's row."""
    from lab.benchmarks.overhead import rounds, table  # only now, so that a mistyped flag is answered without jax

    options = flags.FLAGS
    cfg = _CONFIG.value or rounds.small()
    file, changes = _SMALL, {}
    if _CONFIG.value:
        file = config_flags.get_config_filename(options["config"])
        changes = config_flags.get_override_values(options["config"])
    with tempfile.TemporaryDirectory() as folder:
        measured = rounds.measure(cfg, Path(folder), options.rounds, options.updates)
    record = {"config": file, "changes": table.without_paths(changes), **measured}
    print(as_text(table.table({options.record or file: record})))
    if options.record:
        table.write(options.record, record)
        print(f"{table.RECORDS / options.record}.json and {table.PAGE} are written", file=sys.stderr)


def check(options: Any) -> None:
    """Raises a `UserError` for what cannot be measured or told."""
    if options.record and not _CONFIG.value:
        raise UserError(f"--record={options.record}: give --config too; the table names its file")
    if not _CONFIG.value:
        return
    if _CONFIG.value.task == "vision":
        raise UserError("config: task is 'vision'; it must be one on text, whose tokens are counted")
    for group in ("eval", "checkpoint"):
        if _CONFIG.value[group].every_epochs:
            raise UserError(f"config: {group}.every_epochs: set it to 0, and {group}.every to a number of updates")


if __name__ == "__main__":
    flags.DEFINE_integer("rounds", 5, "pairs of measurements", lower_bound=1)
    flags.DEFINE_integer("updates", 20, "updates in one measurement", lower_bound=1)
    flags.DEFINE_string("record", None, "name of a record to write, and of its row in docs/cpu.md")
    run(main, hint="a configuration is given as --config=FILE", check=check)
