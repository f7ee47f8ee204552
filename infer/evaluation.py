"""What the evaluations of a run share: the sentences, what every record says, and where it is kept."""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import flags

from base.errors import UserError
from data.sources import open_corpus
from infer.runs import Run, count_parameters, params_sha256
from run.distributed import is_main

SPLITS = ("test", "valid", "train")


class Sentences(NamedTuple):
    """Sentences to translate, their references, and where they are from."""

    name: str
    data: str
    language: str
    sources: list[str]
    references: list[str]


def define_flags(written: str) -> None:
    """The flags of every evaluation; `written` says what the model writes."""
    flags.DEFINE_string("workdir", None, "folder of the run")
    flags.DEFINE_enum("split", None, SPLITS, "which corpus of the run's config to take the sentences of")
    flags.DEFINE_string("checkpoint", None, "latest, STEP, best, average:N, average:N@MINUTES or average-best:N; "
                        "default: config.decode.checkpoint")  # fmt: skip
    flags.DEFINE_integer("beam", None, "hypotheses kept; default: config.decode.beam", lower_bound=1)
    flags.DEFINE_float("alpha", None, "length penalty; default: config.decode.alpha")
    flags.DEFINE_bool("json", False, "print JSON rather than a table")
    flags.DEFINE_string("output", None, f"also write the {written} to this file, one a line")
    flags.mark_flags_as_required(["workdir"])


def check_output(path: str | None) -> None:
    """Refuses, before anything is computed, a file whose folder is not there."""
    if path and not Path(path).expanduser().parent.is_dir():
        raise UserError(f"--output={path}: there is no such folder")


def open_split(model_run: Run, split: str) -> Sentences:
    """The corpus that the run's config names for `split`."""
    spec = model_run.config.data[split]
    if not spec:
        raise UserError(f"--split={split}: the run's config has no data.{split}; give the sentences as files")
    return open_sentences(split, spec)


def open_sentences(name: str, spec: str) -> Sentences:
    """The corpus of a spec (`data.sources.open_corpus`), under a name."""
    corpus = open_corpus(spec)
    pairs = list(corpus.pairs())
    return Sentences(name, spec, corpus.target_language, [x for x, _ in pairs], [y for _, y in pairs])


def provenance(model_run: Run, sentences: Sentences) -> dict[str, Any]:
    """What any record says of the parameters, the sentences, the machine and the hour."""
    return {
        "params": count_parameters(model_run.params),
        "params_sha256": params_sha256(model_run.params),
        "step": model_run.step,
        "checkpoints": list(model_run.checkpoints),
        "data": sentences.data,
        "split": sentences.name,
        "sentences": len(sentences.sources),
        "language": sentences.language,
        "device": jax.devices()[0].device_kind,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def headline(record: dict[str, Any]) -> str:
    """What was read, and with which parameters and search."""
    return (
        f"{record['data']}: {record['sentences']:,} sentences, beam {record['beam']}, alpha {record['alpha']:g}, "
        f"step {', '.join(map(str, record['checkpoints']))}"
    )


def deliver(
    model_run: Run, record: dict[str, Any], lines: list[str], table: Callable[[dict[str, Any]], str], kind: str = ""
) -> None:
    """Prints the record as --json says, keeps it in the run with the lines written, and writes these to --output.

    Only the first of many processes does. A run that cannot be written to is a note: the result has been printed.

    Raises:
      UserError: --output cannot be written.
    """
    options = flags.FLAGS
    if not is_main():
        return
    print(json.dumps(record, indent=2, ensure_ascii=False) if options.json else table(record), flush=True)
    checkpoint = options.checkpoint or model_run.config.decode.checkpoint
    try:
        print(f"kept in {keep(model_run, record, lines, checkpoint, kind)}", file=sys.stderr)
    except OSError as error:
        print(f"note: {model_run.workdir}/evaluations cannot be written ({error.strerror})", file=sys.stderr)
    if options.output:
        try:
            write_lines(Path(options.output).expanduser(), lines)
        except OSError as error:
            raise UserError(f"--output={options.output}: cannot be written ({error.strerror})") from error


def keep(model_run: Run, record: dict[str, Any], lines: list[str], checkpoint: str, kind: str = "") -> Path:
    """Writes `evaluations/NAME.json` and the lines as `NAME.txt`; the same evaluation again replaces both.

    NAME begins with `kind` and names split, step, checkpoint, beam and length penalty.
    """
    parts = (record["split"], f"step{record['step']}", checkpoint, f"beam{record['beam']}", f"alpha{record['alpha']:g}")
    name = re.sub(r"[^\w.-]+", "_", "-".join((*kind.split(), *parts)))
    folder = model_run.workdir / "evaluations"
    folder.mkdir(exist_ok=True)
    write_lines(folder / f"{name}.txt", lines)
    write_lines(
        folder / f"{name}.json", [json.dumps({**record, "checkpoint": checkpoint}, indent=2, ensure_ascii=False)]
    )
    return folder / f"{name}.json"


def write_lines(path: Path, lines: list[str]) -> None:
    """Writes a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    part.replace(path)
