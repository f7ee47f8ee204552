"""Result records: what a finished run was and what it scored, small enough to commit, and the pages made of them.

    python -m paper.results --workdir=runs/multi30k --name=multi30k     # writes results/multi30k.json
    python -m paper.results --workdir=runs/A1 --name=table3/A1-seed0 --split=valid
    python -m paper.results --workdir=runs/table3 --name=table3 --split=valid    # a sweep: a record of every point
    python -m paper.results                       # rewrites the table in README.md and all tables of docs/tables.md

A record holds the resolved config, the newest evaluation of that split that `python -m infer` kept in the run, how the
run was launched (versions, git commit, device), how long it trained and what its validations were; --translations adds
what was translated, as NAME.txt, for paired tests. The README's table is made from the records directly in results/ and
from nothing else, docs/tables.md (what `python -m paper all` prints) from those in its subfolders as well. A new record
replaces the old one.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from absl import flags

from base.errors import UserError, run
from base.markers import rewritten
from base.table import as_markdown
from paper.command import make
from paper.records import search
from run.folder import read_json

RESULTS, README, TABLES = Path("results"), Path("README.md"), Path("docs/tables.md")
BEGIN, END = "<!-- results: made by `python -m paper.results` -->", "<!-- end of results -->"
COLUMNS = {  # heading: key of the evaluation
    "sacreBLEU": "sacrebleu",
    "lower-cased": "sacrebleu_lc",
    "chrF": "chrf",
    "tokenised": "bleu_tok",
    "tokenised, lower-cased": "bleu_tok_lc",
    "the paper's reading": "bleu_paper",
    "exact match %": "exact_match",
    "perplexity": "perplexity",
}


def newest_evaluation(workdir: Path, split: str) -> Path:
    """The file of a run's newest evaluation of `split`; its translations lie beside it, as .txt.

    Raises:
      UserError: the split has not been evaluated.
    """
    names = (f"{split}-*.json", f"parse-{split}-*.json")  # of infer, and of infer.parse
    paths = {read_json(path)["time"]: path for name in names for path in (workdir / "evaluations").glob(name)}
    if not paths:
        raise UserError(
            f"{workdir}: no evaluation of the {split} split; run python -m infer --workdir={workdir} --split={split}, "
            "or for a parser infer.parse"
        )
    return paths[max(paths)]


def make_record(workdir: Path, split: str = "test") -> dict[str, Any]:
    """Returns the record of the newest evaluation of `split` by the run in `workdir`.

    Raises:
      UserError: the folder is not a run's, or the split has not been evaluated.
    """
    config, launches = read_json(workdir / "config.json"), read_json(workdir / "run.json")["launches"]
    evaluation = newest_evaluation(workdir, split)
    last = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    trained = [record for record in last if record["kind"] == "train"]
    return {
        "config": config,
        "evaluation": read_json(evaluation),
        "launches": [
            {**launch, "command": _without_folder(launch["command"]), "data": _counts(launch["data"])}
            for launch in launches
        ],
        "training": {
            "steps": trained[-1]["step"],
            "minutes": trained[-1]["seconds"] / 60,
            "validations": [record for record in last if record["kind"] == "valid"],
        },
    }


def runs_of(workdir: Path, name: str) -> dict[str, Path]:
    """The run by its record's name; of a sweep every point, as NAME/POINT."""
    if not (workdir / "sweep").is_dir():
        return {name: workdir}
    return {f"{name}/{path.parent.name}": path.parent for path in sorted(workdir.glob("*/config.json"))}


def keep(workdir: Path, name: str, split: str, *, translations: bool) -> None:
    """Writes the record of a run as results/NAME.json and, if wanted, what it translated as results/NAME.txt."""
    record, path = make_record(workdir, split), RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if translations:
        shutil.copyfile(newest_evaluation(workdir, split).with_suffix(".txt"), path.with_suffix(".txt"))


def _without_folder(command: list[str]) -> list[str]:
    """The flags but --workdir, which is of the machine and not of the run."""
    return [flag for flag in command if not flag.startswith("--workdir=")]


def _counts(manifests: dict[str, Any]) -> dict[str, Any]:
    """What was read: counts and hashes, without the paths of the machine it was read on."""
    return {name: {key: manifest[key] for key in ("pairs", "tokens", "sha256")} for name, manifest in manifests.items()}


def table(records: dict[str, dict[str, Any]]) -> str:
    """The records as a Markdown table, one row a record, and every signature below it."""
    head = ["result", *COLUMNS, "parameters", "seed", "device", "training minutes"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    signatures: dict[str, list[str]] = {}
    for name, record in sorted(records.items()):
        evaluation, launch = record["evaluation"], record["launches"][-1]
        scores = [f"{evaluation[key]:.2f}" for key in COLUMNS.values()]
        device = f"{launch['device']['kind']}, {launch['device']['cpus']} cores"
        rest = [
            f"{evaluation['params']:,}",
            str(record["config"]["seed"]),
            device,
            f"{record['training']['minutes']:.0f}",
        ]
        lines.append(f"| [{name}](results/{name}.json) | {' | '.join(scores + rest)} |")
        for heading, key in COLUMNS.items():
            if key in evaluation["signatures"]:
                signatures.setdefault(f"{heading}: `{evaluation['signatures'][key]}`", []).append(name)
    lines += ["", *(f"- {signature} ({', '.join(names)})" for signature, names in signatures.items())]
    return "\n".join(lines)


def all_tables() -> str:
    """Tables 1-4 of all records, as Markdown."""
    made = make("all", search(RESULTS))
    return "\n\n".join(as_markdown(table) for tables in made.values() for table in tables)


def pages() -> dict[Path, str]:
    """The pages that are made of records, as they ought to be.

    Raises:
      UserError: the lines between which tables stand are missing in one.
    """
    made = {README: table(read_records()), TABLES: all_tables()}
    return {page: rewritten(page, BEGIN, END, text) for page, text in made.items()}


def read_records() -> dict[str, dict[str, Any]]:
    """The committed records of translation by name, those in subfolders left out."""
    contents = {path.stem: read_json(path) for path in sorted(RESULTS.glob("*.json"))}
    return {name: content for name, content in contents.items() if "sacrebleu" in content.get("evaluation", {})}


def main(argv: list[str]) -> None:
    """Entry point; flags below."""
    options = flags.FLAGS
    if (options.workdir is None) != (options.name is None):
        raise UserError("--workdir and --name go together")
    if options.workdir:
        if not re.fullmatch(r"[\w=,+-][\w=,.+-]*(/[\w=,+-][\w=,.+-]*)*", options.name):
            raise UserError(f"--name={options.name}: it must be like base or table3-small/A1-seed0, without .json")
        runs = runs_of(Path(options.workdir).expanduser(), options.name)
        for name, run_folder in runs.items():
            try:
                keep(run_folder, name, options.split, translations=options.translations)
            except UserError as error:
                if name == options.name:
                    raise
                print(f"left out: {error}", file=sys.stderr)  # one bad point must not hide the others
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of a finished, evaluated run, or of a sweep of such runs")
    flags.DEFINE_string("name", None, "name of that record, or for a sweep of a folder of records")
    flags.DEFINE_enum("split", "test", ("test", "valid"), "whose evaluation to keep")
    flags.DEFINE_bool("translations", False, "keep the translations as well, for paired tests")
    run(main)
