"""What `python -m lab.reproduce` does once its command line has been checked."""

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from lab.reproduce.compare import differences, is_close, loss_of, same_parameters, verdict_of
from lab.reproduce.repeated import add
from vaswani.errors import UserError
from vaswani.files import output_folder
from vaswani.paper.provenance import ROOT, caveats
from vaswani.paper.records import RunRecord, find_records, read_run, without_flags
from vaswani.paper.rows import identity, is_of
from vaswani.train.table import Table, as_text, number

RECORDS = (ROOT / "paper" / "records", ROOT / "lab" / "studies")  # the folders of the records that come with the code
COMPARED = ("perplexity", "nll", "accuracy", "f1", "sacrebleu", "exact_match")
# Flags of training that do not say what is trained, but where, by how many processes, and who is told of it.
NOT_REPEATED = ("workdir", "tracker", "profile", "debug_nans", "coordinator", "processes", "process", "accept_changes")
# Nats by which the loss of a run may differ when it is trained again: seven of our runs, trained again on another CPU,
# moved by up to 1.7 % of their perplexity.
TOLERANCE = 0.017
DEVIATIONS = 3  # of a row's seeds: by so many the loss may differ
SEARCH = ("beam", "alpha", "extra_length")


def main(name: str, options: Any) -> int:
    """Repeats the run of the record `name`, prints both runs' scores, and returns the exit status."""
    record = recorded(name)
    with ExitStack() as cleaning:
        if options.workdir is None:
            place = Path(cleaning.enter_context(tempfile.TemporaryDirectory()))
        else:
            place = output_folder("workdir", options.workdir).absolute()  # git runs in another folder
            if place.exists():
                raise UserError(f"--workdir={options.workdir}: it exists already; give a folder that does not")
        again = repeat(record, place)
    tolerance = tolerance_of(record) if options.tolerance is None else options.tolerance
    print(as_text(table(name, record, again, tolerance)))
    if options.save:
        add(record, again, tolerance)
    return 0 if is_close(record, again, tolerance) else 1


def recorded(name: str) -> RunRecord:
    """Returns the record of this name.

    Raises:
      UserError: there is none, or the run cannot be repeated by itself.
    """
    found = find_records(*RECORDS)
    runs = {run.record: run for run in found.runs}
    if name not in runs:
        known = "`python -m lab cards` prints such names"
        raise UserError("; ".join([f"{name}: there is no record of a run of this name", known, *found.notes]))
    reason = obstacle(runs[name])
    if reason:
        raise UserError(f"{name}: it cannot be repeated alone, since {reason}")
    return runs[name]


def tolerance_of(record: RunRecord) -> float:
    """Returns by how many nats the loss of a repeated run may differ: `TOLERANCE`, or more.

    After some hundred updates, rounding moves a run as far as another seed does. So it is at least `DEVIATIONS`
    standard deviations of the record's row, where that has several seeds.
    """
    wanted = identity(record.config)
    split = record.evaluations[0].scores["split"]
    losses: list[float] = []
    of_file = [run for run in find_records(record.path.parent).runs if run.path == record.path]
    for run in of_file:
        if run.begun == record.begun and is_of(run.config, wanted) and run.evaluations[0].scores["split"] == split:
            losses.append(loss_of(run))
    if len(losses) < 2:
        return TOLERANCE
    return max(TOLERANCE, DEVIATIONS * float(np.std(losses, ddof=1)))


def obstacle(record: RunRecord) -> str:
    """Returns why a recorded run cannot be repeated by itself; "" if it can."""
    doubts = record.caveats or caveats(record.launches)
    if doubts:
        return "; ".join(doubts)
    if any(evaluation.members > 1 for evaluation in record.evaluations):
        return "it is of an ensemble; repeat its members"
    if not record.launches:
        return "it says nothing of its launch"
    for flag in record.launches[-1]["command"]:
        if flag.lstrip("-").startswith(("init", "config.data.tokenizer")):
            return f"it started from another run's files ({flag})"
    for value in record.config["data"].values():
        _, _, place = str(value).partition(":")
        if place.startswith("../"):
            return f"it read files beside its clone ({value})"
    return ""


def repeat(record: RunRecord, folder: Path) -> RunRecord:
    """Trains and evaluates the run of a record again, in `folder`, and returns what it scored.

    Raises:
      UserError: the code cannot be checked out, or a command fails.
    """
    code = folder / "code"
    again = folder / "run"
    commit = record.launches[-1]["git"]["commit"]
    _call(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(code)], ROOT)
    _call(["git", "checkout", "--quiet", "--detach", commit], code)
    for command in commands(record, again):
        _call([sys.executable, "-m", *command], code)
    return read_run(again)


def commands(record: RunRecord, folder: Path) -> list[list[str]]:
    """Returns the commands that train the run of a record into `folder`, and evaluate it, without their `python -m`."""
    scores = record.evaluations[0].scores
    _, *given = without_flags(record.launches[-1]["command"], NOT_REPEATED)
    train = ["train", *given, f"--workdir={folder}"]
    module = "infer.parse" if "f1" in scores else "infer"
    evaluate = [module, f"--workdir={folder}", f"--split={scores['split']}"]
    if "checkpoint" in scores:
        evaluate.append(f"--checkpoint={scores['checkpoint']}")
    evaluate += [f"--{key}={scores[key]}" for key in SEARCH if key in scores]
    of_run = record.config["decode"]["stopping"]
    stopping = scores.get("stopping", of_run)  # of what does not search there is none
    if stopping != of_run:  # only then: the code of an older run has no such flag
        evaluate.append(f"--stopping={stopping}")
    if "row" in scores:
        evaluate.append(f"--row_length={scores['row']}")
    return [train, evaluate]


def table(name: str, record: RunRecord, again: RunRecord, tolerance: float) -> Table:
    """Returns the scores of the record and those of the new run, with what else differs in the notes."""
    before = record.evaluations[0].scores
    after = again.evaluations[0].scores
    rows: list[tuple[str, ...]] = []
    for key in COMPARED:
        if key in before and key in after:
            change = after[key] - before[key]
            rows.append((key, number(before[key], 4), number(after[key], 4), number(change, 4, sign=True)))
    rows.append(("training minutes", number(record.minutes, 1), number(again.minutes, 1), ""))
    difference = loss_of(again) - loss_of(record)
    digits = 4
    while abs(difference) > tolerance >= round(abs(difference), digits):  # else the line contradicts its verdict
        digits += 1
    verdict = verdict_of(record, again, tolerance)
    same = " the parameters are the same, bit for bit;" if same_parameters(record, again) else ""
    moved = number(difference, digits, sign=True)
    notes = [
        f"{verdict}:{same} the loss differs by {moved} nats, and may by {tolerance:.2g}",
        f"python -m {' '.join(commands(record, Path('RUN'))[0])}",
        f"code of {record.launches[-1]['git']['commit'][:12]}, {before['split']} split {before['data']}",
        *differences(record.launches[-1], again.launches[-1]),
    ]
    return Table("reproduce", name, ("score", "recorded", "again", "difference"), rows, notes)


def _call(command: list[str], folder: Path) -> None:
    """Runs a command in a folder; what it prints goes to standard error.

    Raises:
      UserError: it fails.
    """
    print(f"{folder.name}$ {' '.join(command[:3])} ...", file=sys.stderr)
    done = subprocess.run(command, cwd=folder, stdout=sys.stderr)
    if done.returncode:
        raise UserError(f"{' '.join(command[:3])}: it ended with status {done.returncode}; its output is above")
