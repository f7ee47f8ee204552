"""What the evaluations of a run share: the sentences, the record, and the file it is saved in."""

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
from absl import flags
from ml_collections import ConfigDict

from base.errors import UserError
from base.files import output_file, write_text
from base.progress import Progress
from data.sources import open_corpus
from infer.decoding import Decoding
from infer.runs import Run, corpus_named, count_parameters, params_sha256
from infer.scores import bleu
from infer.scores.perplexity import perplexity
from infer.translator import FULL_BATCH, Translation, Translator, note_unknown
from run.distributed import is_main


class Sentences(NamedTuple):
    """Sentences to translate, their references, and where they come from."""

    name: str
    data: str
    language: str
    sources: list[str]
    references: list[str]


def open_split(model_run: Run, split: str) -> Sentences:
    """Returns the corpus that the run's config names for `split`."""
    return open_sentences(split, corpus_named(model_run.config, split))


def open_sentences(name: str, spec: str) -> Sentences:
    """Returns the corpus of a spec (`data.sources.open_corpus`), under a name."""
    corpus = open_corpus(spec)
    pairs = list(corpus.pairs())
    return Sentences(name, spec, corpus.target_language, [x for x, _ in pairs], [y for _, y in pairs])


def translate(
    model_run: Run, sentences: Sentences, decoding: Decoding, job: str, unit: str, batch_tokens: int = FULL_BATCH
) -> tuple[list[Translation], float]:
    """Returns the translations and the wall time in seconds, compilation included; `job` and `unit` name the work."""
    translator = Translator(model_run.model_config, model_run.tokenizer, decoding, batch_tokens=batch_tokens)
    started = time.perf_counter()
    with Progress(job, unit) as progress:
        translations = translator.translate(model_run.params, sentences.sources, progress=progress.update)
    note_unknown(model_run.tokenizer.unknown(sentences.sources))
    return translations, time.perf_counter() - started


def score(
    model_run: Run, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, Any]:
    """Returns every score of `infer.scores.bleu`, the references' perplexity, and the `signatures` of all of them.

    `bleu.AS_IS` is among them if the run writes words.

    Raises:
      ValueError: if the sides differ in length or are empty.
    """
    tokenizer = model_run.tokenizer
    joined = [tokenizer.joined(line) for line in references]
    scores = bleu.all_scores(hypotheses, joined, language)
    unit = tokenizer.units.rpartition(",")[2].removesuffix("s")
    as_is = {}
    if unit == "word":
        as_is[bleu.AS_IS], scores["signatures"][bleu.AS_IS] = bleu.bleu_as_is(hypotheses, joined)
    signatures = scores["signatures"] | {
        "perplexity": f"unit:{unit}|vocabulary:{tokenizer.vocab_size}|eos:yes|smoothing:none",
    }
    return {
        **{name: scores[name] for name in bleu.READINGS},
        **as_is,
        "perplexity": perplexity(model_run.model_config, model_run.params, model_run.tokenizer, sources, references),
        "signatures": signatures,
    }


def provenance(model_run: Run, sentences: Sentences, decoding: Decoding) -> dict[str, Any]:
    """Returns what every record says about the parameters, sentences, search, machine and time."""
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
        "beam": decoding.beam,
        "alpha": decoding.alpha,
        "extra_length": decoding.extra_length,
    }


def headline(record: dict[str, Any]) -> str:
    """Returns one line: the data, the search options and the checkpoint steps."""
    return (
        f"{record['data']}: {record['sentences']:,} sentences, beam {record['beam']}, alpha {record['alpha']:g}, "
        f"step {', '.join(map(str, record['checkpoints']))}"
    )


@runtime_checkable
class Trained(Protocol):
    """What the record of an evaluation is kept with: a `Run`, or a run of another task."""

    @property
    def workdir(self) -> Path: ...

    @property
    def config(self) -> ConfigDict: ...


def deliver(
    model_run: Trained, record: dict[str, Any], lines: list[str], table: Callable[[dict[str, Any]], str], kind: str = ""
) -> None:
    """Prints the record (as JSON with --json), saves it in the run with the lines, and writes the lines to --output.

    Only process 0 does so. If the run cannot be written to, a note says so: the result has been printed.

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
    if options.output is not None:
        try:
            write_lines(output_file("output", options.output), lines)
        except OSError as error:
            raise UserError(f"--output={options.output}: cannot be written ({error.strerror})") from error


def keep(model_run: Trained, record: dict[str, Any], lines: list[str], checkpoint: str, kind: str = "") -> Path:
    """Writes `evaluations/NAME.json` and the lines, if any, as `NAME.txt`; repeating an evaluation replaces both.

    NAME begins with `kind` and names split, step, checkpoint, and what applies of beam, length penalty and row length.
    """
    options = (f"{key}{record[key]:g}" for key in ("beam", "alpha", "row") if key in record)
    parts = (record["split"], f"step{record['step']}", checkpoint, *options)
    name = re.sub(r"[^\w.-]+", "_", "-".join((*kind.split(), *parts)))
    folder = model_run.workdir / "evaluations"
    folder.mkdir(exist_ok=True)
    if lines:
        write_lines(folder / f"{name}.txt", lines)
    write_text(
        folder / f"{name}.json", json.dumps({**record, "checkpoint": checkpoint}, indent=2, ensure_ascii=False) + "\n"
    )
    return folder / f"{name}.json"


def write_lines(path: Path, lines: list[str]) -> None:
    """Writes a file with a newline after each line."""
    write_text(path, "".join(f"{line}\n" for line in lines))
