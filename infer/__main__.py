"""Evaluates a run: translates a split or a file, and prints every score with its signature.

python -m infer --workdir=runs/quickstart --split=test [--checkpoint=average:5] [--json]
python -m infer --workdir=runs/quickstart --corpus=grammar:deeper    # any corpus that a config could name
python -m infer --workdir=runs/base --source=newstest2014.en --reference=newstest2014.de [--output=out.de]
python -m infer --workdir=runs/char_lm --split=valid [--json]

The corpus may be a text (lines:FILE) or images (idx:IMAGES,LABELS), if the run's task reads them. Imported models,
which have no splits, need one:
python -m infer --workdir=runs/gpt2 --corpus=lines:FILE

For a language model the scores are nats and perplexity, per token and per byte; if it was trained on rows of a text,
--row_length tests it on longer ones. For a masked one, or for span denoising, they are nats, perplexity and accuracy on
the hidden tokens; for a classifier, accuracy and nats per text or image.

The result and the translations are also saved in the run, under evaluations/; the tables are made from them. All
devices share the work; on several hosts, start the same command on each, as for training.
"""

from typing import Any

from absl import flags

from base.errors import UserError
from base.files import folder, output_file
from infer.options import decoding, define_evaluation_flags, start
from run.config import read_config
from run.connect import connect


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    options = flags.FLAGS
    _check_input(options)
    if options.output is not None:
        output_file("output", options.output)
    from infer.runs import TRANSLATION  # only now: a mistyped flag is answered without jax

    task = read_config(folder("workdir", options.workdir)).task
    if options.row_length and task != "language_model":
        raise UserError("--row_length is for language models; this run's task is another")
    evaluated = _evaluated_task(task, options.corpus)
    if evaluated in TRANSLATION:
        _evaluate_translations(options)
    else:
        _check_nothing_is_translated(options, task, evaluated)
        _evaluate_other(options, task, evaluated)


def _check_input(options: Any) -> None:
    """Raises a `UserError` unless the flags name one split, one corpus, or a file and its references."""
    has_file = options.source is not None or options.reference is not None
    inputs = [options.split is not None, options.corpus is not None, has_file]
    half = has_file and (options.source is None or options.reference is None)
    if sum(inputs) != 1 or half:
        raise UserError("give one of --split=test, --corpus=SPEC, or both --source=FILE and --reference=FILE")


def _evaluated_task(task: str, corpus: str | None) -> str:
    """Returns the run's task, or "denoising" if it translates and the corpus is a text: an imported T5 does both."""
    from data.sources import open_corpus

    if task == "translation" and corpus and open_corpus(corpus).sides == 1:
        return "denoising"
    return task


def _check_nothing_is_translated(options: Any, task: str, evaluated: str) -> None:
    """Raises a `UserError` if a flag of translation is given, or no split or corpus."""
    corpus = options.split or options.corpus
    searches = any(value is not None for value in (options.beam, options.alpha, options.extra_length))
    if corpus is None or options.output or searches:
        why = f"this run's task is {task}" if evaluated == task else f"{corpus} is a text, which is not translated"
        raise UserError(f"{why}: give --split or --corpus, and no file, --output, --beam, --alpha or --extra_length")


def _evaluate_other(options: Any, task: str, evaluated: str) -> None:
    """Evaluates a run on a split or a corpus that it does not translate."""
    from data.imported import Unigram
    from infer import language_model, restoring, vision
    from infer.evaluation import deliver
    from infer.runs import open_run

    corpus = options.split or options.corpus
    if task == "vision":
        classifier = vision.open_vision(options.workdir, options.checkpoint)
        deliver(classifier, vision.evaluate(classifier, corpus), [], vision.table)
        return
    model_run = open_run(options.workdir, options.checkpoint, task=task)
    if evaluated != task and not isinstance(model_run.tokenizer, Unigram):
        raise UserError(f"--corpus={options.corpus}: this is a text; this run translates pairs, as of tsv:FILE")
    if task == "language_model":
        record = language_model.evaluate(model_run, corpus, options.row_length)
    else:
        record = restoring.evaluate(model_run, corpus, evaluated)
    deliver(model_run, record, [], language_model.table)


def _evaluate_translations(options: Any) -> None:
    """Translates a split, a corpus or a file, and scores the translations."""
    from infer import translation
    from infer.evaluation import deliver, open_sentences, open_split
    from infer.runs import TRANSLATION, open_run

    sentences = None
    # What does not depend on the model comes before it, so that a wrong file fails at once.
    if options.corpus is not None:
        sentences = open_sentences(options.corpus, options.corpus)
    elif options.split is None:
        sentences = translation.open_files(options.source, options.reference)
    model_run = open_run(options.workdir, options.checkpoint, TRANSLATION)
    if sentences is None:
        sentences = open_split(model_run, options.split)
    record, hypotheses = translation.evaluate(model_run, sentences, decoding(model_run.config))
    deliver(model_run, record, hypotheses, translation.table)


def connected(argv: list[str]) -> None:
    """Connects to the other processes, then runs `main`."""
    connect()
    main(argv)


if __name__ == "__main__":
    define_evaluation_flags("translations")
    flags.DEFINE_string("corpus", None, "corpus to read instead of a split, written as in data.test")
    flags.DEFINE_string("source", None, "file to translate instead of a split; plain text, or gzip if it ends in .gz")
    flags.DEFINE_string("reference", None, "its references, line by line; x.de or x.de.gz names the language")
    flags.DEFINE_integer("row_length", None, "tokens per row of text, for a language model; default: data.pack_length")
    start(connected, stray="translate standard input with python -m infer.translate")
