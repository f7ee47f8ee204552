"""Trains our model and PyTorch's side by side, and draws by how much the losses of their updates differ.

    python -m lab.lockstep

The cases are those of tests/model/test_lockstep.py. Of each the record, lab/lockstep/records.jsonl, has a line: the
losses of ours, of theirs, and of ours from parameters of which one row of the embeddings has 2^-22 added. The table in
docs/tables.md and lab/lockstep/figure.svg are made of it. It takes a minute of one core, and needs PyTorch.
"""

import importlib.util
import tempfile
from pathlib import Path

from vaswani.command import run
from vaswani.errors import UserError, pip_install


def main(argv: list[str]) -> None:
    """Trains every case, and writes the record, the table and the figure."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        raise UserError(f"PyTorch and transformers are not installed: {pip_install('convert')}")
    from lab.lockstep import record, report  # only now: they load jax

    with tempfile.TemporaryDirectory() as folder:
        record.measure(Path(folder))
    report.write()


if __name__ == "__main__":
    run(main)
