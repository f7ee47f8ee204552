"""Evaluates a run: translates a split or a file, and prints scores with their signatures (--json: all of them).

python -m infer --workdir=runs/quickstart --split=test [--checkpoint=average:5] [--json]
python -m infer --workdir=runs/quickstart --corpus=grammar:deeper    # any corpus that a config could name
python -m infer --workdir=runs/base --source=newstest2014.en --reference=newstest2014.de [--output=out.de]
python -m infer --workdir=runs/a,runs/b,runs/c --split=test          # an ensemble, of one tokenizer
python -m infer --workdir=runs/char_lm --split=valid [--json]

The corpus may be a text (lines:FILE) or images (idx:IMAGES,LABELS), if the run's task reads them. Models imported from
other engines have no splits, so they need --corpus:
python -m infer --workdir=runs/gpt2 --corpus=lines:FILE

For a language model the scores are nats and perplexity, per token and per byte; if it was trained on rows of a text,
--row_length tests it on longer ones. For a masked one, or for span denoising, they are nats, perplexity and accuracy on
the masked tokens; for a classifier, accuracy and nats per text or image.

With --oracle_length translations have one more score, oracle_match: exact match of greedy search that is told how long
each output is. It distinguishes a model that ends too early or too late from one that goes wrong before the end.

The result and the translations are also saved in the run, under evaluations/; an ensemble's are saved in its first run.
The tables are made from these files. All devices share the work; on several hosts, start the same command on each, as
for training.
"""

from functools import partial
from typing import Any

from absl import flags

from vaswani.data.corpus import target_language
from vaswani.data.imported import Unigram
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.files import folders
from vaswani.infer.evaluate import predictions, texts, translations
from vaswani.infer.evaluate.record import report
from vaswani.infer.evaluate.sentences import open_files, open_sentences, open_split
from vaswani.infer.options import check_output, decoding, define_batch_flag, define_evaluation_flags, start
from vaswani.infer.runs import check_finite, open_run, open_runs
from vaswani.run.builtin import run_folder
from vaswani.run.config import read_config
from vaswani.run.connect import connect
from vaswani.tasks import TRANSLATION


def check(options: Any) -> None:
    """Raises a `UserError` unless the flags name one input that the run may have, and --output can be written."""
    inputs = (options.split, options.corpus, options.source)
    given = [text for text in inputs if text is not None]
    # A file needs its references, and references their file.
    has_half_of_a_pair = (options.source is None) != (options.reference is None)
    if len(given) != 1 or has_half_of_a_pair:
        raise UserError("give one of --split=test, --corpus=SPEC, or both --source=FILE and --reference=FILE")
    check_output(options.output, source=options.source, reference=options.reference)
    first, *_ = folders("workdir", options.workdir)
    task = read_config(run_folder("workdir", first)).task
    if options.row_length is not None and task != "language_model":
        raise UserError(f"--row_length is for language models; this run's task is {task}")


def main(options: Any) -> None:
    """Connects to the other processes, evaluates the run or the ensemble on its input, and saves the record."""
    connect(options)
    first, *others = folders("workdir", options.workdir)
    if others:
        evaluate_translations(options)
        return
    task = read_config(run_folder("workdir", first)).task
    evaluated = evaluated_task(task, options.corpus)
    if evaluated in TRANSLATION:
        evaluate_translations(options)
    else:
        check_nothing_is_translated(options, task, evaluated)
        evaluate_other(options, task, evaluated)


def evaluated_task(task: str, corpus: str | None) -> str:
    """Returns the run's task, or "denoising" if it translates and the corpus is a text: an imported T5 does both."""
    if task == "translation" and corpus and open_corpus(corpus).sides == 1:
        return "denoising"
    return task


def check_nothing_is_translated(options: Any, task: str, evaluated: str) -> None:
    """Raises a `UserError` if a flag of translation is given, or no split or corpus."""
    corpus = options.split or options.corpus
    search_flags = (options.beam, options.alpha, options.extra_length, options.stopping, options.batch_tokens)
    searches = options.oracle_length or any(value is not None for value in search_flags)
    if corpus is None or options.output or searches:
        why = f"this run's task is {task}"
        if evaluated != task:
            why = f"{corpus} is a text, which is not translated"
        raise UserError(
            f"{why}: give --split or --corpus, and no file, --output, --beam, --alpha, --extra_length, --stopping, "
            "--batch_tokens or --oracle_length"
        )


def evaluate_other(options: Any, task: str, evaluated: str) -> None:
    """Evaluates a run on a split or a corpus that it does not translate."""
    corpus = options.split or options.corpus
    model_run = open_run(options.workdir, options.checkpoint, task=task)
    # The only translation model that also fills in texts is an imported T5; its kind of tokenizer tells.
    if evaluated != task and not isinstance(model_run.text, Unigram):
        raise UserError(f"--corpus={options.corpus}: it is monolingual; this run needs pairs, as in tsv:FILE")
    if task == "language_model":
        record = texts.evaluate(model_run, corpus, options.row_length)
    else:
        record = predictions.evaluate(model_run, corpus, evaluated)
    report(options, model_run, record, [], predictions.table)


def evaluate_translations(options: Any) -> None:
    """Translates a split, a corpus or a file, and scores the translations."""
    sentences = None
    # What does not depend on the model comes before it, so that a wrong file fails at once.
    if options.corpus is not None:
        sentences = open_sentences(options.corpus, options.corpus)
    elif options.split is None:
        sentences = open_files(options.source, options.reference)
    model_run, *others = open_runs(options.workdir, options.checkpoint)
    for member in (model_run, *others):
        check_finite(member)
    if sentences is None:
        sentences = open_split(model_run, options.split)
    if not sentences.language:  # the reference's file name gives none
        sentences = sentences._replace(language=target_language(model_run.config.data.train) or "de")
    record, hypotheses = translations.evaluate(
        model_run,
        sentences,
        decoding(options, model_run.config),
        others,
        has_oracle_length=options.oracle_length,
        batch_tokens=options.batch_tokens,
    )
    table = partial(translations.table, lowercase=model_run.config.data.lowercase)
    report(options, model_run, record, hypotheses, table)


if __name__ == "__main__":
    define_evaluation_flags("translations")
    define_batch_flag()
    flags.DEFINE_string("corpus", None, "corpus to read instead of a split, written as in data.test")
    flags.DEFINE_string("source", None, "file to translate instead of a split; plain text, or gzip if it ends in .gz")
    flags.DEFINE_string(
        "reference",
        None,
        "its references, line by line; x.de or x.de.gz names the language; else it is data.train's, or de",
    )
    flags.DEFINE_bool("oracle_length", False, "also print exact match of greedy search that is told each length")
    flags.DEFINE_integer("row_length", None, "tokens per row of text, for a language model; default: data.pack_length")
    start(main, hint="translate standard input with python -m infer.translate", check=check)
