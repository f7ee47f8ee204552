"""Evaluates a run: translates a split or a file, and prints every score with its signature.

python -m infer --workdir=runs/quickstart --split=test [--checkpoint=average:5] [--json]
python -m infer --workdir=runs/base --source=newstest2014.en --reference=newstest2014.de [--output=out.de]

The result and the translations are also kept in the run, under evaluations/, for tables to be made from. All devices
share the work; on many hosts, start the same command on each, as for training.
"""

import json
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import flags

from data.errors import UserError, run
from data.progress import Progress
from data.sources import open_corpus
from infer import bleu
from infer.perplexity import perplexity
from infer.runs import Run, count_parameters, open_run, params_sha256
from infer.score import language_of, read_pair, report
from infer.translator import Translator
from train.distributed import connect, is_main

SPLITS = ("test", "valid", "train")


class Sentences(NamedTuple):
    """Sentences to translate, their references, and where they are from."""

    name: str
    data: str
    language: str
    sources: list[str]
    references: list[str]


def open_split(model_run: Run, split: str) -> Sentences:
    """The corpus that the run's config names for `split`."""
    spec = model_run.config.data[split]
    if not spec:
        raise UserError(f"--split={split}: the run's config has no data.{split}; give --source and --reference")
    corpus = open_corpus(spec)
    pairs = list(corpus.pairs())
    return Sentences(split, spec, corpus.target_language, [x for x, _ in pairs], [y for _, y in pairs])


def open_files(source: str, reference: str) -> Sentences:
    """Two files, line by line."""
    sources, references = read_pair(source, reference)
    return Sentences(Path(source).name, f"{source} {reference}", language_of(reference), sources, references)


def evaluate(model_run: Run, sentences: Sentences, *, beam: int, alpha: float) -> tuple[dict[str, Any], list[str]]:
    """Returns the result record, of JSON values, and the translations.

    `seconds` is the wall time of translating, compilation included; `tokens_per_second` counts the subwords written,
    with their EOS. `perplexity` is `infer.perplexity`'s; the other scores are percentages.
    """
    extra_length = model_run.config.decode.extra_length
    translator = Translator(
        model_run.model_config, model_run.tokenizer, beam=beam, alpha=alpha, extra_length=extra_length
    )
    started = time.perf_counter()
    with Progress("translating", "lines") as progress:
        translations = translator.translate(model_run.params, sentences.sources, progress=progress.update)
    seconds = time.perf_counter() - started
    hypotheses = [translation.text for translation in translations]
    scores = bleu.all_scores(hypotheses, sentences.references, sentences.language)
    vocabulary = model_run.tokenizer.vocab_size
    scores["signatures"]["perplexity"] = f"unit:subword|vocabulary:{vocabulary}|eos:yes|smoothing:none"
    record = {
        **{name: scores[name] for name in bleu.READINGS},
        "perplexity": perplexity(
            model_run.model_config, model_run.params, model_run.tokenizer, sentences.sources, sentences.references
        ),
        "signatures": scores["signatures"],
        "seconds": seconds,
        "tokens_per_second": sum(len(translation.hypotheses[0].tokens) + 1 for translation in translations) / seconds,
        **provenance(model_run, sentences),
        "beam": beam,
        "alpha": alpha,
        "extra_length": extra_length,
    }
    return record, hypotheses


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


def keep(model_run: Run, record: dict[str, Any], hypotheses: list[str], checkpoint: str, kind: str = "") -> Path:
    """Writes `evaluations/NAME.json` and the translations as `NAME.txt`; the same evaluation again replaces both.

    NAME begins with `kind` and names split, step, checkpoint, beam and length penalty.
    """
    parts = (record["split"], f"step{record['step']}", checkpoint, f"beam{record['beam']}", f"alpha{record['alpha']:g}")
    name = re.sub(r"[^\w.-]+", "_", "-".join((*kind.split(), *parts)))
    folder = model_run.workdir / "evaluations"
    folder.mkdir(exist_ok=True)
    write_lines(folder / f"{name}.txt", hypotheses)
    write_lines(
        folder / f"{name}.json", [json.dumps({**record, "checkpoint": checkpoint}, indent=2, ensure_ascii=False)]
    )
    return folder / f"{name}.json"


def write_lines(path: Path, lines: list[str]) -> None:
    """Writes a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    part.replace(path)


def table(record: dict[str, Any]) -> str:
    """The record for people: what was translated with what, then every score."""
    head = (
        f"{record['data']}: {record['sentences']:,} sentences, beam {record['beam']}, alpha {record['alpha']:g}, "
        f"step {', '.join(map(str, record['checkpoints']))}"
    )
    speed = f"{record['seconds']:.1f} seconds, {record['tokens_per_second']:,.0f} subwords a second"
    perplexity_line = f"{'perplexity':<12} {record['perplexity']:6.3f}   {record['signatures']['perplexity']}"
    return "\n".join((head, "", report(record), perplexity_line, "", speed))


def main(argv: list[str]) -> None:
    """Entry point; flags below."""
    options = flags.FLAGS
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}; translate standard input with python -m infer.translate")
    files = (options.source, options.reference)
    if (options.split is None) == (files == (None, None)) or (options.split is None and None in files):
        raise UserError("give either --split=test or both --source=FILE and --reference=FILE")
    if options.output and not Path(options.output).expanduser().parent.is_dir():
        raise UserError(f"--output={options.output}: there is no such folder")
    read = open_files(*files) if options.split is None else None  # before the model, so that a bad file fails at once
    model_run = open_run(options.workdir, options.checkpoint)
    decode = model_run.config.decode
    record, hypotheses = evaluate(
        model_run,
        read or open_split(model_run, options.split),
        beam=decode.beam if options.beam is None else options.beam,
        alpha=decode.alpha if options.alpha is None else options.alpha,
    )
    if not is_main():
        return
    print(json.dumps(record, indent=2, ensure_ascii=False) if options.json else table(record), flush=True)
    try:
        print(
            f"kept in {keep(model_run, record, hypotheses, options.checkpoint or decode.checkpoint)}", file=sys.stderr
        )
    except OSError as error:
        print(f"note: {model_run.workdir}/evaluations cannot be written ({error.strerror})", file=sys.stderr)
    if options.output:
        try:
            write_lines(Path(options.output).expanduser(), hypotheses)
        except OSError as error:
            raise UserError(f"--output={options.output}: cannot be written ({error.strerror})") from error


def connected(argv: list[str]) -> None:
    """`main` in one of many processes."""
    connect()
    main(argv)


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of the run")
    flags.DEFINE_enum("split", None, SPLITS, "which corpus of the run's config to translate")
    flags.DEFINE_string("source", None, "file to translate instead of a split; plain text, or gzip if it ends in .gz")
    flags.DEFINE_string("reference", None, "its references, line for line; x.de or x.de.gz names the language")
    flags.DEFINE_string("checkpoint", None, "latest, STEP, best, average:N, average:N@MINUTES or average-best:N; "
                        "default: config.decode.checkpoint")  # fmt: skip
    flags.DEFINE_integer("beam", None, "hypotheses kept; default: config.decode.beam", lower_bound=1)
    flags.DEFINE_float("alpha", None, "length penalty; default: config.decode.alpha")
    flags.DEFINE_bool("json", False, "print JSON rather than a table")
    flags.DEFINE_string("output", None, "also write the translations to this file")
    flags.mark_flags_as_required(["workdir"])
    run(connected)
