"""The records that have been trained again: a line each of repeated.jsonl, beside this file, and their table."""

from pathlib import Path
from typing import Any

from lab.reproduce.compare import loss_of, processor, same_parameters, verdict_of
from vaswani.paper.provenance import ROOT
from vaswani.paper.records import RunRecord, save
from vaswani.read_json import read_json_lines
from vaswani.train.table import Table, number

FILE = ROOT / "lab" / "reproduce" / "repeated.jsonl"
SCHEMA = {
    "name": str,
    "recorded": {"processor": str, "loss": float},
    "again": {"processor": str, "loss": float},
    "tolerance": float,
    "same_parameters": bool,
    "verdict": str,
}


def add(record: RunRecord, again: RunRecord, tolerance: float, file: Path = FILE) -> None:
    """Saves what became of a record that was trained again, in place of an earlier repetition.

    Raises:
      UserError: the file is damaged, or cannot be written.
    """
    line = {
        "name": record.record,
        "recorded": _run(record),
        "again": _run(again),
        "tolerance": tolerance,
        "same_parameters": same_parameters(record, again),
        "verdict": verdict_of(record, again, tolerance),
    }
    save(file, line)


def _run(run: RunRecord) -> dict[str, Any]:
    launch = run.launches[-1]
    return {
        "processor": processor(launch),
        "commit": launch["git"]["commit"],
        "versions": launch["versions"],
        "loss": loss_of(run),
        "minutes": run.minutes,
    }


def table(file: Path = FILE) -> Table:
    """Returns the table of the repeated records.

    Raises:
      UserError: the file is damaged.
    """
    lines = read_json_lines(file, SCHEMA)
    head = ("record", "recorded on", "repeated on", "loss: recorded", "again", "difference", "may be", "verdict")
    rows: list[tuple[str, ...]] = []
    for line in lines:
        before = line["recorded"]
        after = line["again"]
        verdict = f"{line['verdict']}, bit for bit" if line["same_parameters"] else line["verdict"]
        rows.append(
            (
                line["name"],
                before["processor"],
                after["processor"],
                number(before["loss"], 4),
                number(after["loss"], 4),
                number(after["loss"] - before["loss"], 4, sign=True),
                number(line["tolerance"], 3),
                verdict,
            )
        )
    notes = [
        "ten drawn by lot, with random.seed(46), from the sorted names of the records of at most eight minutes",
        "losses in nats; they may differ by what the record states, or by three standard deviations of its row's seeds",
    ]
    return Table("repeated", "Records trained again", head, rows, notes)
