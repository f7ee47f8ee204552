"""Trains models without residual connections and without layer norms, as lab/residuals/design.py says.

    python -m lab.residuals --workdir=runs/residuals [--cells=12-post,12-pre]

It trains the runs that the folder lacks; several commands may train in one folder, each its own cells.
"""

from pathlib import Path

from absl import flags

from lab.residuals.design import CELLS, seeds
from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import write_json

flags.DEFINE_string("workdir", "runs/residuals", "folder of the runs; made if absent")
flags.DEFINE_list("cells", [cell.name for cell in CELLS], "the cells to train")


def check(options: flags.FlagValues) -> None:
    """Raises a `UserError` for a cell that does not exist."""
    known = [cell.name for cell in CELLS]
    for name in options.cells:
        if name not in known:
            raise UserError(f"--cells={name}: there is no such cell; they are {', '.join(known)}")


def main(argv: list[str]) -> None:
    from lab.residuals.measure import Measured  # only now: it loads jax

    workdir = Path(flags.FLAGS.workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    for cell in CELLS:
        files = {seed: workdir / f"{cell.name}-seed{seed}.json" for seed in seeds(cell)}
        lacking = [seed for seed in files if not files[seed].exists()]
        if cell.name not in flags.FLAGS.cells or not lacking:
            continue
        measured = Measured(cell, workdir)
        for seed in lacking:
            write_json(files[seed], measured.run(seed))


if __name__ == "__main__":
    run(main, check=check)
