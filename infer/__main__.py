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

from absl import flags

from base.errors import UserError
from base.files import folder, output_file
from infer.options import decoding, define_evaluation_flags, start
from run.config import read_config
from run.connect import connect


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    options = flags.FLAGS
    files = (options.source, options.reference)
    wanted = [options.split, options.corpus, None if files == (None, None) else files]
    if sum(one is not None for one in wanted) != 1 or (wanted[2] and None in files):
        raise UserError("give one of --split=test, --corpus=SPEC, or both --source=FILE and --reference=FILE")
    if options.output is not None:
        output_file("output", options.output)
    from data.imported import Unigram
    from data.sources import open_corpus
    from infer import language_model, restoring, translation, vision
    from infer.evaluation import deliver, open_sentences, open_split
    from infer.runs import TRANSLATION, open_run

    task = read_config(folder("workdir", options.workdir)).task
    if options.row_length and task != "language_model":
        raise UserError("--row_length is for language models; this run's task is another")
    chosen = options.split or options.corpus
    of_search = (options.beam, options.alpha, options.extra_length)
    restored = task
    if task == "translation" and options.corpus and open_corpus(options.corpus).sides == 1:
        restored = "denoising"  # a T5 from elsewhere does both
    if restored not in TRANSLATION and (chosen is None or options.output or of_search != (None, None, None)):
        why = f"this run's task is {task}" if restored == task else f"{chosen} is a text, which is not translated"
        raise UserError(f"{why}: give --split or --corpus, and no file, --output, --beam, --alpha or --extra_length")
    if task == "vision":
        classifier = vision.open_vision(options.workdir, options.checkpoint)
        deliver(classifier, vision.evaluate(classifier, chosen), [], vision.table)
        return
    if restored not in TRANSLATION:
        model_run = open_run(options.workdir, options.checkpoint, task=task)
        if restored != task and not isinstance(model_run.tokenizer, Unigram):
            raise UserError(f"--corpus={options.corpus}: this is a text; this run translates pairs, as of tsv:FILE")
        if task == "language_model":
            record = language_model.evaluate(model_run, chosen, options.row_length)
        else:
            record = restoring.evaluate(model_run, chosen, restored)
        deliver(model_run, record, [], language_model.table)
        return
    read = None  # what does not depend on the model comes before it, so that a wrong file fails at once
    if options.split is None:
        corpus = options.corpus
        read = translation.open_files(*files) if corpus is None else open_sentences(corpus, corpus)
    model_run = open_run(options.workdir, options.checkpoint, TRANSLATION)
    sentences = read or open_split(model_run, options.split)
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
