"""Evaluates a run: translates a split or a file, and prints every score with its signature.

python -m infer --workdir=runs/quickstart --split=test [--checkpoint=average:5] [--json]
python -m infer --workdir=runs/base --source=newstest2014.en --reference=newstest2014.de [--output=out.de]
python -m infer --workdir=runs/char_lm --split=valid [--json]

Of a language model the scores are nats and perplexity, a token and a byte; --row_length is for one that has been
trained on rows of a text, to read longer ones. Of a classifier of images they are accuracy and nats an image.

The result and the translations are also saved in the run, under evaluations/, from which the tables are made. All
devices share the work; on several hosts, start the same command on each, as for training.
"""

from pathlib import Path
from typing import Any

from absl import flags

from base.errors import UserError, run
from base.files import folder
from infer import language_model, vision
from infer.decoding import Decoding
from infer.evaluation import (
    Sentences,
    check_output,
    define_flags,
    deliver,
    headline,
    open_split,
    provenance,
    score,
    translate,
)
from infer.options import decoding
from infer.runs import Run, open_run
from infer.scores import bleu
from infer.scores.pairs import language_of, read_pair
from run.config import read_config
from run.distributed import connect


def open_files(source: str, reference: str) -> Sentences:
    """Returns the sentences of two files that correspond line by line."""
    sources, references = read_pair(source, reference)
    return Sentences(Path(source).name, f"{source} {reference}", language_of(reference), sources, references)


def evaluate(model_run: Run, sentences: Sentences, decoding: Decoding) -> tuple[dict[str, Any], list[str]]:
    """Returns the result record, of JSON values, and the translations.

    `seconds` is the wall time of translation, compilation included; `tokens_per_second` counts output subwords, EOS
    included. `perplexity` is that of `infer.scores.perplexity`; the other scores are percentages.
    """
    translations, seconds = translate(model_run, sentences, decoding, "translating", "lines")
    hypotheses = [translation.text for translation in translations]
    record = {
        **score(model_run, sentences.sources, hypotheses, sentences.references, sentences.language),
        "seconds": seconds,
        "tokens_per_second": sum(len(translation.hypotheses[0].tokens) + 1 for translation in translations) / seconds,
        **provenance(model_run, sentences, decoding),
    }
    return record, hypotheses


def table(record: dict[str, Any]) -> str:
    """Returns the record as text: the data and the search, then every score."""
    speed = f"{record['seconds']:.1f} seconds, {record['tokens_per_second']:,.0f} subwords per second"
    perplexity_line = f"{'perplexity':<12} {record['perplexity']:6.3f}   {record['signatures']['perplexity']}"
    return "\n".join((headline(record), "", bleu.as_text(record), perplexity_line, "", speed))


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    options = flags.FLAGS
    files = (options.source, options.reference)
    if (options.split is None) == (files == (None, None)) or (options.split is None and None in files):
        raise UserError("give either --split=test or both --source=FILE and --reference=FILE")
    check_output(options.output)
    task = read_config(folder("workdir", options.workdir)).task
    if task != "translation" and (options.split is None or options.output):
        raise UserError(f"this run's task is {task}: give --split=valid, and neither files nor --output")
    if task == "vision":
        classifier = vision.open_vision(options.workdir, options.checkpoint)
        deliver(classifier, vision.evaluate(classifier, options.split), [], vision.table)
        return
    if task == "language_model":
        model_run = open_run(options.workdir, options.checkpoint, task="language_model")
        record = language_model.evaluate(model_run, options.split, options.row_length)
        deliver(model_run, record, [], language_model.table)
        return
    if options.row_length:
        raise UserError("--row_length is for language models; this run's task is another")
    read = open_files(*files) if options.split is None else None  # before the model, so that a bad file fails at once
    model_run = open_run(options.workdir, options.checkpoint)
    sentences = read or open_split(model_run, options.split)
    record, hypotheses = evaluate(model_run, sentences, decoding(model_run.config))
    deliver(model_run, record, hypotheses, table)


def connected(argv: list[str]) -> None:
    """Connects to the other processes, then runs `main`."""
    connect()
    main(argv)


if __name__ == "__main__":
    define_flags("translations")
    flags.DEFINE_string("source", None, "file to translate instead of a split; plain text, or gzip if it ends in .gz")
    flags.DEFINE_string("reference", None, "its references, line by line; x.de or x.de.gz names the language")
    flags.DEFINE_integer("row_length", None, "tokens of a row of text, for a language model; default: data.pack_length")
    run(connected, stray="translate standard input with python -m infer.translate")
