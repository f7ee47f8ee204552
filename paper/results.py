"""Records what a finished run was and what it scored, small enough to commit, and rewrites the pages made from records.

    python -m paper.results --workdir=runs/multi30k --name=multi30k              # a line of paper/records/runs.jsonl
    python -m paper.results --workdir=runs/A1 --name=table3/A1-seed0 --split=valid          # of table3.jsonl, there
    python -m paper.results --workdir=runs/table3 --name=table3 --split=valid    # a sweep: a record of every point
    python -m paper.results                                     # rewrites the tables in README.md and docs/

A record holds the resolved config, the newest evaluation of that split by `python -m infer`, how the run was launched
(versions, git commit, device, CPU), how long it trained, its validations, and the SHA-256 of its translations. Paths
begin at the home (~/) or the project's parent (../). A run is refused if its training has not ended, or if its code
cannot be checked out again: uncommitted changes, a commit that is not in the repository, launches from several commits.
--allow_dirty records the latter all the same, and every table marks it with a dagger.

The README's table and docs/results.md, which has every score and its signature, are made from the records of
paper/records/runs.jsonl and from nothing else; docs/tables.md (what `python -m paper all` prints) from all in
paper/records. A new record replaces the old one of its name.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import flags

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import folder, sha256, write_text
from vaswani.paper import front
from vaswani.paper.command import make
from vaswani.paper.markers import replace_block
from vaswani.paper.records import (
    Evaluation,
    Records,
    RunRecord,
    find_records,
    newest_evaluation,
    read_run,
    save,
    without_flags,
)
from vaswani.paper.rows import RowRuns, ScoredRun, caveat_notes
from vaswani.read_json import check
from vaswani.train.table import Markdown, Table, as_markdown, escape_markdown

RECORDS = Path("paper/records")
README = Path("README.md")
SCORES = Path("docs/results.md")
TABLES = Path("docs/tables.md")
BEGIN = "<!-- results: made by `python -m paper.results` -->"
END = "<!-- end of results -->"
COLUMNS = {  # heading: key of the evaluation
    "sacreBLEU": "sacrebleu",
    "lower-cased": "sacrebleu_lc",
    "chrF": "chrf",
    "tokenised": "bleu_tok",
    "tokenised, lower-cased": "bleu_tok_lc",
    "the paper's variant": "bleu_paper",
    "exact match %": "exact_match",
    "perplexity": "perplexity",
}
MANIFEST = {"pairs": dict, "tokens": dict, "sha256": dict}


def make_record(workdir: Path, split: str = "test", *, allow_dirty: bool = False) -> dict[str, Any]:
    """Returns the record of a run's newest evaluation of `split`.

    Raises:
      UserError: the folder is no run's, its training has not ended, the split has not been evaluated, or, unless
        `allow_dirty`, the code that made the run cannot be checked out again.
    """
    run_record = read_run(workdir)
    evaluation = newest_evaluation(run_record, split)
    if run_record.problem:
        raise UserError(f"{workdir}: not recorded, since its training has not ended: {run_record.problem}")
    if run_record.caveats and not allow_dirty:
        raise UserError(
            f"{workdir}: not recorded, since {'; '.join(run_record.caveats)}; commit and train again, or give "
            "--allow_dirty, and every table will mark the run"
        )
    record = {
        "config": run_record.config,
        **evaluation_part(evaluation),
        "caveats": run_record.caveats,
        "launches": [_without_paths(workdir, launch) for launch in run_record.launches],
        "training": {
            "steps": run_record.steps,
            "minutes": run_record.minutes,
            "validations": run_record.validations,
        },
    }
    return _without_this_machine(record)


def evaluation_part(evaluation: Evaluation) -> dict[str, Any]:
    """Returns the part of a record that tells what was scored."""
    lines = evaluation.lines
    return {"evaluation": evaluation.scores, "translations_sha256": sha256(lines) if lines.is_file() else None}


def runs_of(workdir: Path, name: str) -> dict[str, Path]:
    """Returns the run by its record's name; of a sweep every point, as NAME/POINT."""
    if not (workdir / "sweep").is_dir():
        return {name: workdir}
    return {f"{name}/{path.parent.name}": path.parent for path in sorted(workdir.glob("*/config.json"))}


def _without_this_machine(part: Any) -> Any:
    """Returns a part of a record whose paths begin at the home, "~/", or the project's parent, "../", if possible."""
    if isinstance(part, dict):
        return {key: _without_this_machine(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_without_this_machine(value) for value in part]
    if not isinstance(part, str):
        return part
    for place, short in ((Path.home(), "~/"), (Path.cwd().parent, "../")):
        beginning = rf"(?<![\w.~/-]){re.escape(str(place))}/"  # not in the middle of a longer path
        part = re.sub(beginning, short, part)
    return part


def _without_paths(workdir: Path, launch: dict[str, Any]) -> dict[str, Any]:
    """Returns a launch without paths of this machine: of what was read, counts and hashes."""
    manifests = launch["data"]
    check(workdir / "run.json", "data", manifests, dict.fromkeys(manifests, MANIFEST))
    data = {name: {key: manifest[key] for key in MANIFEST} for name, manifest in manifests.items()}
    command = without_flags(launch["command"], ("workdir",))
    return {**launch, "command": command, "data": data}


def table(records: dict[str, RunRecord]) -> str:
    """Returns the records as a Markdown table, one row each with every score, and every signature below it."""
    head = ("result", *COLUMNS, "parameters", "seed", "device, cores", "training minutes")
    rows: list[tuple[str, ...]] = []
    signatures: dict[str, list[str]] = {}
    shown = {name: as_row(record) for name, record in sorted(records.items())}
    for name, row in shown.items():
        record = records[name]
        (evaluation,) = record.evaluations
        scores = evaluation.scores
        # A run whose text is lower-cased never writes a capital: its scores with case would measure only case.
        cased = {key for key, signature in scores["signatures"].items() if "case:mixed" in signature}
        left_out = cased if record.config["data"]["lowercase"] else set()
        readings = ["" if key in left_out else f"{scores[key]:.2f}" for key in COLUMNS.values()]
        rows.append(
            (
                Markdown(row.label(f"[{escape_markdown(name)}]({'..' / RECORDS / 'runs.jsonl'})")),
                *readings,
                f"{scores['params']:,}",
                str(record.config["seed"]),
                f"{record.device['kind']}, {record.device['cpus']}",
                f"{record.minutes:.0f}",
            )
        )
        for heading, key in COLUMNS.items():
            if key in scores["signatures"].keys() - left_out:
                signatures.setdefault(f"{heading}: `{scores['signatures'][key]}`", []).append(name)
    text = as_markdown(Table("results", "", head, rows, caveat_notes(shown)))
    listed = "\n".join(f"- {signature} ({', '.join(names)})" for signature, names in signatures.items())
    return f"{text}\n\nSignatures of the scores:\n\n{listed}"


def as_row(record: RunRecord) -> RowRuns:
    """Returns the row of a record, of which there is one evaluation."""
    (evaluation,) = record.evaluations
    scored = ScoredRun(record, evaluation.scores, evaluation.lines)
    return RowRuns([scored], missing="", notes=[])


def pages(records: Records) -> dict[Path, str]:
    """Returns the pages that are made of these records, as they ought to be.

    Raises:
      UserError: a record is damaged, or the lines between which tables are put are missing in a page.
    """
    if records.notes:
        raise UserError(records.notes[0].removeprefix("left out: "))
    all_tables: list[str] = []
    for tables in make("all", records).values():
        all_tables += map(as_markdown, tables)
    by_name = {run.record: run for run in records.runs}
    made = {
        README: front.table(by_name),
        SCORES: table(translation_records(records.runs)),
        TABLES: "\n\n".join(all_tables),
    }
    return {page: replace_block(page, BEGIN, END, text) for page, text in made.items()}


def translation_records(runs: list[RunRecord]) -> dict[str, RunRecord]:
    """Returns the records of translation in paper/records/runs.jsonl, by name."""
    return {
        run_record.record: run_record
        for run_record in runs
        if run_record.path == RECORDS / "runs.jsonl" and "sacrebleu" in run_record.evaluations[0].scores
    }


def file_of(name: str) -> Path:
    """Returns the file of the record NAME: runs.jsonl, or of TABLE/NAME TABLE.jsonl."""
    table, has_table, _ = name.partition("/")
    return RECORDS / (f"{table}.jsonl" if has_table else "runs.jsonl")


def record_runs(options: Any, file_of: Callable[[str], Path]) -> None:
    """Writes the records that the flags of `define_flags` ask for into the files that their names say.

    Raises:
      UserError: the flags do not go together, or the run cannot be recorded.
    """
    check_name(options)
    if options.workdir is None:
        return
    for name, path in runs_of(folder("workdir", options.workdir), options.name).items():
        file = file_of(name)
        try:
            save(file, {"name": name, **make_record(path, options.split, allow_dirty=options.allow_dirty)})
        except UserError as error:
            if name == options.name:
                raise
            print(f"left out: {error}", file=sys.stderr)  # one bad point must not hide the others


def check_name(options: Any) -> None:
    """Raises a `UserError` unless a run and a name for its record are given together, or neither, in our folder."""
    if (options.workdir is None) != (options.name is None):
        raise UserError("--workdir and --name go together")
    if not README.is_file():  # before a record is written where nothing reads it
        raise UserError(f"{README}: there is no such file here; run it in the project's folder, whose pages it writes")
    if options.name and not re.fullmatch(r"[\w=,+-][\w=,.+-]*(/[\w=,+-][\w=,.+-]*)*", options.name):
        raise UserError(f"--name={options.name}: write, for example, base or table3-small/A1-seed0")


def main(argv: list[str]) -> None:
    record_runs(flags.FLAGS, file_of)
    for page, text in pages(find_records(RECORDS)).items():
        write_text(page, text)


def define_flags() -> None:
    """Defines the flags that say which run is recorded, and how."""
    flags.DEFINE_string("workdir", None, "folder of a finished, evaluated run, or of a sweep")
    flags.DEFINE_string("name", None, "name of the record or, for a sweep, of what its records' names begin with")
    flags.DEFINE_enum("split", "test", ("test", "valid"), "split whose evaluation to record")
    flags.DEFINE_bool("allow_dirty", False, "also record runs whose code cannot be checked out again; tables mark them")


if __name__ == "__main__":
    define_flags()
    run(main, hint="the run is given as --workdir=DIR")
