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
the hidden tokens; for a classifier, accuracy and nats per text or image.

With --oracle_length translations have one more score, oracle_match: exact match of greedy search that is told how long
each output is. It distinguishes a model that ends too early or too late from one that goes wrong before the end.

The result and the translations are also saved in the run, under evaluations/; those of an ensemble, in its first run.
The tables are made from these files. All devices share the work; on several hosts, start the same command on each, as
for training.
"""

from typing import Any

from absl import flags

from base.command import imported
from base.errors import UserError
from base.files import folder, folders
from infer.options import check_output, define_batch_flag, define_evaluation_flags, start
from run.config import read_config


def check(options: Any) -> None:
    """Raises a `UserError` unless the flags name one input that the run may have, and --output can be written."""
    inputs = (options.split, options.corpus, options.source)
    given = [one for one in inputs if one is not None]
    has_half_of_a_pair = (options.source is None) != (options.reference is None)
    if len(given) != 1 or has_half_of_a_pair:
        raise UserError("give one of --split=test, --corpus=SPEC, or both --source=FILE and --reference=FILE")
    check_output(options.output, source=options.source, reference=options.reference)
    first, *_ = folders("workdir", options.workdir)
    task = read_config(folder("workdir", first)).task
    if options.row_length is not None and task != "language_model":
        raise UserError("--row_length is for language models; this run's task is another")


if __name__ == "__main__":
    define_evaluation_flags("translations")
    define_batch_flag()
    flags.DEFINE_string("corpus", None, "corpus to read instead of a split, written as in data.test")
    flags.DEFINE_string("source", None, "file to translate instead of a split; plain text, or gzip if it ends in .gz")
    flags.DEFINE_string(
        "reference",
        None,
        "its references, line by line; x.de or x.de.gz names the language; else it is that of data.train, or de",
    )
    flags.DEFINE_bool("oracle_length", False, "also print exact match of greedy search that is told each length")
    flags.DEFINE_integer("row_length", None, "tokens per row of text, for a language model; default: data.pack_length")
    start(
        imported("infer.evaluate.command"), hint="translate standard input with python -m infer.translate", check=check
    )
