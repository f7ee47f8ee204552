"""Result records: what a finished run was and what it scored, small enough to commit, and the README's table of them.

    python -m paper.results --workdir=runs/multi30k --name=multi30k     # writes results/multi30k.json
    python -m paper.results                                             # rewrites the table in README.md

A record holds the resolved config, the evaluation that `python -m infer` kept in the run, how the run was launched
(versions, git commit, device) and how long it trained. The table is made from the records and from nothing else;
a record of a new evaluation replaces the old one of that name.
"""

import json
from pathlib import Path
from typing import Any

from absl import flags

from data.errors import UserError, run
from train.run import read_json

RESULTS, README = Path("results"), Path("README.md")
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


def make_record(workdir: Path) -> dict[str, Any]:
    """Returns the record of the newest evaluation of the run's test split in `workdir`.

    Raises:
      UserError: the folder is not a run's, or its test split has not been evaluated.
    """
    config, launches = read_json(workdir / "config.json"), read_json(workdir / "run.json")["launches"]
    evaluations = [read_json(path) for path in (workdir / "evaluations").glob("test-*.json")]
    if not evaluations:
        raise UserError(
            f"{workdir}: no evaluation of the test split; run python -m infer --workdir={workdir} --split=test"
        )
    last = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    trained = [record for record in last if record["kind"] == "train"]
    return {
        "config": config,
        "evaluation": max(evaluations, key=lambda evaluation: evaluation["time"]),
        "launches": [{**launch, "data": _counts(launch["data"])} for launch in launches],
        "training": {"steps": trained[-1]["step"], "minutes": trained[-1]["seconds"] / 60},
    }


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


def with_table(readme: str, text: str) -> str:
    """The README with everything between the two markers replaced by `text`."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"{README}: the lines {BEGIN!r} and {END!r} must both stand in it")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def read_records() -> dict[str, dict[str, Any]]:
    """All committed records by name."""
    return {path.stem: read_json(path) for path in sorted(RESULTS.glob("*.json"))}


def main(argv: list[str]) -> None:
    """Entry point; flags below."""
    options = flags.FLAGS
    if (options.workdir is None) != (options.name is None):
        raise UserError("--workdir and --name go together")
    if options.workdir:
        RESULTS.mkdir(exist_ok=True)
        record = json.dumps(make_record(Path(options.workdir)), indent=1, ensure_ascii=False)
        (RESULTS / f"{options.name}.json").write_text(record + "\n", encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8"), table(read_records())), encoding="utf-8")


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of a finished, evaluated run to make a record of")
    flags.DEFINE_string("name", None, "name of that record")
    run(main)
