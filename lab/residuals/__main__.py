"""Trains models without residual connections and without layer norms, and makes the page of what becomes of them.

    python -m lab.residuals --workdir=runs/residuals [--cells=12-post,12-pre]   # trains the runs that it lacks
    python -m lab.residuals --workdir=runs/residuals --record                   # those of the folder are the record
    python -m lab.residuals                                                     # rewrites table and figure

The cells, their seeds and the rule are those of lab/residuals/design.py. Several commands may train in one folder, each
its own cells. The record is lab/residuals/records.jsonl, a run a line; the table in lab/residuals/README.md and
lab/residuals/figure.svg are made of it. A run whose code differed from its commit is not recorded.
"""

from pathlib import Path

from absl import flags

from lab.residuals.design import CELLS, seeds
from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import write_json

flags.DEFINE_string("workdir", None, "folder of the runs; made if absent")
flags.DEFINE_list("cells", [cell.name for cell in CELLS], "the cells to train")
flags.DEFINE_bool("record", False, "record the folder's runs, and train none")


def check(options: flags.FlagValues) -> None:
    """Raises a `UserError` for a cell that does not exist, or a record of no folder."""
    known = [cell.name for cell in CELLS]
    for name in options.cells:
        if name not in known:
            raise UserError(f"--cells={name}: there is no such cell; they are {', '.join(known)}")
    if options.record and options.workdir is None:
        raise UserError("--record: --workdir has the runs to record; give it")


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if options.workdir is not None and not options.record:
        train(Path(options.workdir), options.cells)
        return
    from lab.residuals import report  # only now: it loads scipy

    if options.record:
        report.record(Path(options.workdir))
    report.write()


def train(workdir: Path, names: list[str]) -> None:
    """Trains the runs of these cells that the folder lacks."""
    from lab.residuals.measure import Measured  # only now: it loads jax

    workdir.mkdir(parents=True, exist_ok=True)
    for cell in CELLS:
        files = {seed: workdir / f"{cell.name}-seed{seed}.json" for seed in seeds(cell)}
        lacking = [seed for seed in files if not files[seed].exists()]
        if cell.name not in names or not lacking:
            continue
        measured = Measured(cell, workdir)
        for seed in lacking:
            write_json(files[seed], measured.run(seed))


if __name__ == "__main__":
    run(main, check=check)
