"""`python -m train` itself: pipeline, logging and checkpoints, beside the bare update of the same model and shapes."""

import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from lab.benchmarks.accelerator.corpus import corpora
from lab.benchmarks.accelerator.process import in_fresh_process
from lab.benchmarks.accelerator.record import Options, OutOfTime, Part
from lab.benchmarks.accelerator.step import timed
from lab.benchmarks.accelerator.training import emptied, miniature, write_config
from lab.benchmarks.contenders import our_step
from vaswani.checked_json import read_json_lines
from vaswani.configs import big
from vaswani.data.batching import random_batch
from vaswani.errors import UserError
from vaswani.model.config import ModelConfig

SECONDS = 90.0  # of each model, with compilation


def recipe(options: Options, name: str) -> ConfigDict:
    """Returns the config of the first corpus in the folder, or of the built-in grammar, with the model's size."""
    cfg = next(iter(corpora(None if options.tiny else options.corpora).values()))
    if name == "big":
        cfg.model.update({key: big.get_config().model[key] for key in ("d_model", "d_ff", "h", "P_drop")})
    if options.tiny:
        miniature(cfg)
        cfg.log_every = 1
        cfg.checkpoint.every = 2
    else:
        cfg.log_every = 50
        cfg.checkpoint.every = 1_000
        cfg.steps = 100_000
        cfg.eval.every = cfg.steps
    return cfg


def trained(cfg: ConfigDict, folder: Path, seconds: float) -> dict[str, Any]:
    """Trains in a process of its own until the seconds are over; returns its rates.

    `overall_milliseconds` has everything between the first line of the log and the last, checkpoints too.

    Raises:
      UserError: training failed, or wrote too few lines to the log.
    """
    emptied(folder)
    config = write_config(folder / "config.py", cfg)
    workdir = folder / "run"
    command = [sys.executable, "-m", "train", f"--config={config}", f"--workdir={workdir}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    log = workdir / "metrics.jsonl"
    end = time.monotonic() + seconds
    times: dict[int, float] = {}  # when each number of lines was first seen
    try:
        while process.poll() is None and time.monotonic() < end:
            written = log.read_text().count("\n") if log.exists() else 0
            times.setdefault(written, time.monotonic())
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)  # the loop then saves and ends
        _, errors = process.communicate()
    finally:
        process.kill()
    records = read_json_lines(log, {"kind": str}) if log.exists() else []
    lines = [record for record in records if record["kind"] == "train"]
    if process.returncode not in (0, 128 + signal.SIGTERM) or len(lines) < 2:
        raise UserError(f"training ended with {process.returncode}: {errors.decode(errors='replace')[-300:]}")
    return _summary(lines, times)


def _summary(lines: list[dict[str, Any]], times: dict[int, float]) -> dict[str, Any]:
    """Returns the rates of the lines after the first, whose updates compiled the program."""
    first, last = lines[0], lines[-1]
    updates = last["step"] - first["step"]
    tokens = 0.0
    for before, after in pairwise(lines):
        tokens += after["tokens_per_second"] * (after["seconds"] - before["seconds"])
    training = last["seconds"] - first["seconds"]
    moments = [moment for count, moment in times.items() if count > 0]  # of lines, not of the empty log
    overall = max(moments) - min(moments) if moments else training
    return {
        "updates": last["step"],
        "milliseconds": 1e3 * training / updates,
        "target_tokens_per_second": tokens / training,
        "overall_milliseconds": 1e3 * max(overall, training) / updates,
    }


def bare(config: ModelConfig, rows: int, length: int, chunk: int, tiny: bool) -> float:
    """Returns the seconds of the update alone, with `loss.chunk`; to be run in a fresh process."""
    step = our_step(config, random_batch(rows, length, config.vocab_size), chunk=chunk)
    return timed(step.run, *((1, 1) if tiny else (10, 5)))


def parts(options: Options) -> dict[str, Part]:
    """Returns a run of each model, as long as the row's time is."""
    names = ("base",) if options.tiny else ("base", "big")
    end = time.monotonic() + options.seconds

    def one(name: str) -> dict[str, Any]:
        from vaswani.infer.runs import open_run

        seconds = min(SECONDS, end - time.monotonic() - 30)
        if seconds < 20:
            raise OutOfTime
        cfg = recipe(options, name)
        folder = options.runs / f"trainer-{name}"
        found = trained(cfg, folder, seconds)
        config = open_run(folder / "run", "latest").model_config
        rows = cfg.data.tokens_per_batch // cfg.data.pack_length
        shape = (rows, cfg.data.pack_length)
        alone = 1e3 * in_fresh_process(bare, config, *shape, cfg.loss.chunk, options.tiny)
        return found | {
            "bare_milliseconds": alone,
            "share": 100 * alone / found["milliseconds"],
            "overall_share": 100 * alone / found["overall_milliseconds"],
        }

    return {name: partial(one, name) for name in names}
