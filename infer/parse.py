"""Parses sentences with a run trained on trees, and scores the trees as EVALB does (section 6.3, Table 4).

python -m infer.parse --workdir=runs/parsing --split=test [--checkpoint=average:5] [--json] [--output=parsed.mrg]
python -m infer.parse --workdir=runs/parsing --trees=wsj/23.mrg

Output that is not a tree over the sentence's words is repaired by the rules of `data.trees.linearise`; how many lines
were repaired is part of the result. Every sentence counts, since the gold tree decides which words are punctuation.
EVALB itself drops sentences whose punctuation is tagged wrongly, which gives higher figures; they are in the record
too. The record is saved in the run, under evaluations/, with the trees, one per line.
"""

from typing import Any

from absl import flags

from vaswani.errors import UserError
from vaswani.infer.evaluate import trees
from vaswani.infer.evaluate.record import report, short_hash
from vaswani.infer.options import check_output, decoding, define_evaluation_flags, start
from vaswani.infer.runs import open_run
from vaswani.infer.scores.brackets import COLLINS, read_parameters
from vaswani.run.connect import connect
from vaswani.tasks import TRANSLATION


def check(options: Any) -> None:
    """Raises a `UserError` unless there is one input, and --output can be written."""
    if (options.split is None) == (options.trees is None):
        raise UserError("give either --split=test or --trees=FILE")
    check_output(options.output, trees=options.trees)


def main(options: Any) -> None:
    """Connects to the other processes, parses the sentences, scores the trees, and saves the record."""
    connect(options)
    parameters = read_parameters(options.parameters) if options.parameters is not None else COLLINS
    # A file is opened before the model, so that a bad one fails at once.
    sentences = None if options.trees is None else trees.open_trees(options.trees)
    model_run = open_run(options.workdir, options.checkpoint, TRANSLATION)
    if sentences is None:
        sentences = trees.open_parsed_split(model_run, options.split)
    record, parsed = trees.evaluate(model_run, sentences, parameters, decoding(options, model_run.config))
    lines = [tree.bracketed() for tree in parsed]
    kind = "parse"
    if parameters.signature() != COLLINS.signature():
        kind = f"parse-{short_hash(parameters.signature())}"
    report(options, model_run, record, lines, trees.table, kind)


if __name__ == "__main__":
    define_evaluation_flags("trees")
    flags.DEFINE_string("trees", None, "bracket file whose sentences to parse instead of a split; may be .gz")
    flags.DEFINE_string("parameters", None, "EVALB parameter file; default: as in COLLINS.prm")
    start(main, hint="a bracket file is given as --trees=FILE", check=check)
