"""Trains one run of the study, and leaves its record, a line of JSON, in runs/dropout/ROW-SEED/record.json.

    python -m lab.studies.dropout.run --row=sum --seed=0

The same command resumes a run that was stopped.
"""

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from absl import flags
from jaxtyping import Array, Float
from ml_collections import ConfigDict

from lab.studies import texts
from lab.studies.dropout.design import PAIRS, ROWS, TEXT, get_config
from lab.studies.own_records import Record, about
from vaswani.command import run
from vaswani.data.corpora import corpus_folder
from vaswani.errors import UserError
from vaswani.files import write_text
from vaswani.model.block import Block
from vaswani.model.noise import Noise, dropout
from vaswani.run.records import read_metrics
from vaswani.train.loop import train

RUNS = Path("runs/dropout")


def drop_sum_and_norm(
    block: Block,
    x_btd: Float[Array, "b t d"],
    y_btd: Float[Array, "b t d"],
    norm: Callable[[Array], Array],
    noise: Noise | None,
) -> Float[Array, "b t d"]:
    """Returns LayerNorm(Dropout(x + f(x))), in the place of post-norm's LayerNorm(x + Dropout(f(x)))."""
    return norm(dropout(x_btd + y_btd, block.config.P_drop, noise))


def train_row(row: str, cfg: ConfigDict, workdir: Path) -> Record | None:
    """Trains a row to its end; returns its record, or None if a signal stopped it."""
    started = time.monotonic()
    patched = patch.object(Block, "_add_and_norm", drop_sum_and_norm) if row == "sum" else nullcontext()
    with patched:
        if train(cfg, workdir):
            return None
    valid = [line for line in read_metrics(workdir) if line["kind"] == "valid"]
    return {
        "study": "dropout",
        "row": row,
        "seed": cfg.seed,
        "minutes": (time.monotonic() - started) / 60,
        "steps": cfg.steps,
        "valid": [{key: line[key] for key in ("step", "nll")} for line in valid],
        **about(workdir),
    }


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if options.row not in ROWS:
        raise UserError(f"--row={options.row}: the rows are {', '.join(ROWS)}")
    if not texts.is_written(TEXT):
        whole = texts.read(f"text:{corpus_folder('multi30k')}/train.{{en,de}}.gz")
        texts.write(TEXT, texts.part(whole, PAIRS))
    cfg = get_config(options.row)
    cfg.seed = options.seed
    workdir = RUNS / f"{options.row}-{options.seed}"
    record = train_row(options.row, cfg, workdir)
    if record:
        write_text(workdir / "record.json", f"{json.dumps(record)}\n")


if __name__ == "__main__":
    flags.DEFINE_string("row", "paper", "row of design.py")
    flags.DEFINE_integer("seed", 0, "of parameters, order and dropout")
    run(main, hint="the row is given as --row=sum")
