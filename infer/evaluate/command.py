"""What `python -m infer` does once its flags have been checked: evaluates a run by its task, and saves the record."""

from functools import partial
from typing import Any

from base.errors import UserError
from base.files import folder, folders
from data.corpus import target_language
from data.imported import Unigram
from data.sources import open_corpus
from infer.evaluate import predictions, texts, translations
from infer.evaluate.record import report
from infer.evaluate.sentences import open_files, open_sentences, open_split
from infer.options import decoding
from infer.runs import check_finite, open_run, open_runs
from infer.translate.options import FULL_BATCH
from run.config import read_config
from run.connect import connect
from tasks import TRANSLATION


def main(options: Any) -> None:
    """Connects to the other processes, then evaluates the run."""
    connect(options)
    evaluate(options)


def evaluate(options: Any) -> None:
    """Evaluates the run, or the ensemble, that the flags name on their input, and saves the record."""
    first, *others = folders("workdir", options.workdir)
    if others:
        _evaluate_translations(options)
        return
    task = read_config(folder("workdir", first)).task
    evaluated = _evaluated_task(task, options.corpus)
    if evaluated in TRANSLATION:
        _evaluate_translations(options)
    else:
        _check_nothing_is_translated(options, task, evaluated)
        _evaluate_other(options, task, evaluated)


def _evaluated_task(task: str, corpus: str | None) -> str:
    """Returns the run's task, or "denoising" if it translates and the corpus is a text: an imported T5 does both."""
    if task == "translation" and corpus and open_corpus(corpus).sides == 1:
        return "denoising"
    return task


def _check_nothing_is_translated(options: Any, task: str, evaluated: str) -> None:
    """Raises a `UserError` if a flag of translation is given, or no split or corpus."""
    corpus = options.split or options.corpus
    of_searches = (options.beam, options.alpha, options.extra_length, options.stopping, options.batch_tokens)
    searches = options.oracle_length or any(value is not None for value in of_searches)
    if corpus is None or options.output or searches:
        why = f"this run's task is {task}"
        if evaluated != task:
            why = f"{corpus} is a text, which is not translated"
        raise UserError(
            f"{why}: give --split or --corpus, and no file, --output, --beam, --alpha, --extra_length, --stopping, "
            "--batch_tokens or --oracle_length"
        )


def _evaluate_other(options: Any, task: str, evaluated: str) -> None:
    """Evaluates a run on a split or a corpus that it does not translate."""
    corpus = options.split or options.corpus
    model_run = open_run(options.workdir, options.checkpoint, task=task)
    if evaluated != task and not isinstance(model_run.text, Unigram):
        raise UserError(f"--corpus={options.corpus}: this is a text; this run translates pairs, as in tsv:FILE")
    if task == "language_model":
        record = texts.evaluate(model_run, corpus, options.row_length)
    else:
        record = predictions.evaluate(model_run, corpus, evaluated)
    report(options, model_run, record, [], predictions.table)


def _evaluate_translations(options: Any) -> None:
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
    if not sentences.language:  # the name of the reference's file has none
        sentences = sentences._replace(language=target_language(model_run.config.data.train) or "de")
    asked = decoding(options, model_run.config)
    record, hypotheses = translations.evaluate(
        model_run,
        sentences,
        asked,
        others,
        has_oracle_length=options.oracle_length,
        batch_tokens=options.batch_tokens or FULL_BATCH,
    )
    table = partial(translations.table, lowercase=model_run.config.data.lowercase)
    report(options, model_run, record, hypotheses, table)
