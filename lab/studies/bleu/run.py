"""Trains and scores one run of the study, and leaves its record, a line of JSON, in WORKDIR/record.json.

    python -m lab.studies.bleu.run --row=base --seed=0 [--workdir=runs/bleu/base-0]

A row is one of `design.py` or of `curve.py`. The same command resumes a run that was stopped.
"""

import json
import math
import time
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from lab.studies import texts
from lab.studies.bleu import curve, design
from lab.studies.bleu.faults import fault
from lab.studies.bleu.measure import Scored, compare, score
from lab.studies.own_records import about
from vaswani.command import run
from vaswani.data.lines import read_lines
from vaswani.errors import UserError
from vaswani.files import write_text
from vaswani.infer.runs import Run, open_run
from vaswani.run.parameters import count_parameters
from vaswani.run.records import read_launches, read_metrics
from vaswani.train.loop import train

RUNS = Path("runs/bleu")
TRANSLATIONS = "translations.txt"
LOGGED = ("step", "loss", "nll", "learning_rate", "gradient_norm", "non_pad_share")


def config_of(row: str) -> ConfigDict:
    """Returns the config of a row of either part; raises `ValueError` if there is none of that name."""
    return curve.get_config(row) if row in curve.ROWS else design.get_config(row)


def write_text_of(row: str) -> None:
    """Writes the training text that a row has for itself, if it is not there yet."""
    name = row.partition("-")[0] if row in curve.ROWS else row
    if texts.is_written(name):
        return
    if row in curve.ROWS:
        texts.write(name, texts.part(texts.read(curve.source()), curve.TEXT[name].pairs))
    elif row in design.CHANGED_TEXTS:
        base = design.get_config().data
        train = texts.read(base.train)
        texts.write(name, texts.lowered(train) if row == "lowercase" else [*train, *texts.read(base.test)])


def folder_of(row: str, seed: int) -> Path:
    """Returns the folder of a run, if no other is given."""
    return RUNS / f"{row}-{seed}"


def train_and_score(row: str, cfg: ConfigDict, workdir: Path, base: Path) -> dict[str, Any] | None:
    """Trains a row to its end; returns its record, or None if a signal stopped it.

    `base` is the folder of the run that its translations are compared with, if there is one.
    """
    started = time.monotonic()
    with fault(row):
        try:
            if train(cfg, workdir):
                return None
        except UserError as error:
            if "finite" not in str(error):
                raise
            return _record(row, cfg, workdir, failed="the loss is no longer finite", minutes=_minutes(started))
        trained = _minutes(started)
        model_run = open_run(workdir)
        scored = score(model_run, cfg.data.test)
    write_text(workdir / TRANSLATIONS, texts.as_lines(scored.translations))
    further: dict[str, Any] = {"failed": "", "minutes": trained, "test": scored.measures}
    # A row of the curve translates another corpus than the base.
    is_compared = workdir != base and row not in curve.ROWS
    further["against_base"] = _against(base, scored) if is_compared else None
    if row in curve.ROWS:
        further["foreign"] = score(model_run, curve.foreign()).measures
    return _record(row, cfg, workdir, model_run=model_run, **further)


def _minutes(started: float) -> float:
    return (time.monotonic() - started) / 60


def _against(base: Path, scored: Scored) -> dict[str, float] | None:
    """Compares translations with the base's of the same seed; None if these are not there."""
    path = base / TRANSLATIONS
    return compare([*read_lines(path)], scored.translations, scored.references) if path.exists() else None


def _record(row: str, cfg: ConfigDict, workdir: Path, model_run: Run | None = None, **further: Any) -> dict[str, Any]:
    """Returns the record of a run: what it was, its log, and `further`."""
    metrics = read_metrics(workdir)
    log = [{key: line[key] for key in LOGGED} for line in metrics if line["kind"] == "train"]
    valid = [{key: line[key] for key in ("step", "loss", "nll")} for line in metrics if line["kind"] == "valid"]
    data = read_launches(workdir)[-1]["data"]
    read = sum(line["non_pad_share"] for line in log) / max(len(log), 1) * cfg.steps * cfg.data.tokens_per_batch
    return {
        "study": "bleu",
        "part": "curve" if row in curve.ROWS else "training",
        "row": row,
        "seed": cfg.seed,
        **further,
        "log": log,
        "valid": valid,
        "valid_subwords": data["valid"]["tokens"]["target"],
        "pairs": data["train"]["pairs"],
        # Both sides' positions hold `read` tokens each, on average.
        "epochs": 2 * read / sum(data["train"]["tokens"].values()),
        "steps": cfg.steps,
        "parameters": count_parameters(model_run.params) if model_run else 0,
        **about(workdir),
    }


def finite(part: Any) -> Any:
    """Returns a part of a record with None for numbers that JSON has no name for."""
    if isinstance(part, dict):
        return {key: finite(value) for key, value in part.items()}
    if isinstance(part, list):
        return [finite(value) for value in part]
    return None if isinstance(part, float) and not math.isfinite(part) else part


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if options.row not in (*design.ROWS, *curve.ROWS):
        raise UserError(f"--row={options.row}: the rows are {', '.join((*design.ROWS, *curve.ROWS))}")
    workdir = Path(options.workdir) if options.workdir else folder_of(options.row, options.seed)
    write_text_of(options.row)
    cfg = config_of(options.row)
    cfg.seed = options.seed
    if options.steps:
        cfg.steps = options.steps
    record = train_and_score(options.row, cfg, workdir, folder_of("base", options.seed))
    if record:
        write_text(workdir / "record.json", f"{json.dumps(finite(record))}\n")
        print(f"{options.row}, seed {options.seed}: {json.dumps(record.get('test'))}", flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("row", "base", "row of design.py or curve.py")
    flags.DEFINE_integer("seed", 0, "of parameters, order and dropout")
    flags.DEFINE_string("workdir", "", "folder of the run; by default runs/bleu/ROW-SEED")
    flags.DEFINE_integer("steps", None, "end after so many updates, to try the commands; such a run is no record")
    run(main, hint="the row is given as --row=base")
