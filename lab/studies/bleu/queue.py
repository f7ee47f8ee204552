"""Runs what is not recorded yet, each run in its own process: seed 0 of all rows, seed 1, then the curve.

    setsid nohup taskset -c 1 python -m lab.studies.bleu.queue > runs/bleu.log 2>&1 &

A run is done if its folder has record.json, or the study's records.jsonl its row and seed; the same command goes on
where it was stopped. A run that fails is reported, and the next one begins.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lab.studies.bleu import curve, design
from lab.studies.bleu.run import folder_of
from vaswani.command import run
from vaswani.read_json import read_json_lines
from vaswani.train.huge_pages import SETTING, TUNABLES

RECORDS = Path("lab/studies/bleu/records.jsonl")


def runs() -> Iterator[tuple[str, int]]:
    """Yields the row and the seed of every run, in their order."""
    for seed in design.SEEDS:
        for row in design.ROWS:
            yield row, seed
    for row, seeds in curve.SEEDS.items():
        for seed in seeds:
            yield row, seed


def recorded() -> set[tuple[str, int]]:
    """Returns the row and the seed of every committed record of a training."""
    if not RECORDS.exists():
        return set()
    records = read_json_lines(RECORDS, {"study": str, "part": str})
    return {(record["row"], record["seed"]) for record in records if "row" in record}


def main(argv: list[str]) -> None:
    for row, seed in runs():
        if (row, seed) in recorded() or (folder_of(row, seed) / "record.json").exists():
            continue
        print(f"{datetime.now(UTC):%H:%M:%S} {row}, seed {seed}", flush=True)
        command = [sys.executable, "-m", "lab.studies.bleu.run", f"--row={row}", f"--seed={seed}"]
        status = subprocess.run(command, env=os.environ | {TUNABLES: SETTING}).returncode
        if status in (130, 143):  # it was stopped, and so is the queue
            sys.exit(status)
        if status:
            print(f"{row}, seed {seed}: exit status {status}", flush=True)


if __name__ == "__main__":
    run(main, hint="it takes no flags")
