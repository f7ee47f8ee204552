"""Parses sentences with a run trained on trees, and scores the trees as EVALB does (section 6.3, Table 4).

python -m infer.parse --workdir=runs/parsing --split=test [--checkpoint=average:5] [--json] [--output=parsed.mrg]
python -m infer.parse --workdir=runs/parsing --trees=wsj/23.mrg

Output that is not a tree over the sentence's words is repaired by the rules of `data.trees.linearise`; how many lines
were repaired is part of the result. Every sentence counts, since the gold tree decides which words are punctuation.
EVALB itself drops sentences whose punctuation is tagged wrongly, which gives higher figures; they are in the record
too. The record is saved in the run, under evaluations/, with the trees, one per line.
"""

from absl import flags

from base.errors import UserError
from base.files import output_file
from infer.options import decoding, define_evaluation_flags, start
from infer.scores.brackets import COLLINS, read_parameters
from run.connect import connect


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    options = flags.FLAGS
    if (options.split is None) == (options.trees is None):
        raise UserError("give either --split=test or --trees=FILE")
    if options.output is not None:
        output_file("output", options.output)
    from infer.evaluation import deliver
    from infer.parsing import evaluate, open_parsed_split, open_trees, table
    from infer.runs import open_run

    parameters = read_parameters(options.parameters) if options.parameters is not None else COLLINS
    read = open_trees(options.trees) if options.trees else None  # before the model, so that a bad file fails at once
    model_run = open_run(options.workdir, options.checkpoint)
    sentences = read or open_parsed_split(model_run, options.split)
    record, trees = evaluate(model_run, sentences, parameters, decoding(model_run.config))
    deliver(model_run, record, [tree.bracketed() for tree in trees], table, kind="parse")


def connected(argv: list[str]) -> None:
    """Connects to the other processes, then runs `main`."""
    connect()
    main(argv)


if __name__ == "__main__":
    define_evaluation_flags("trees")
    flags.DEFINE_string("trees", None, "bracket file whose sentences to parse instead of a split; may be .gz")
    flags.DEFINE_string("parameters", None, "EVALB parameter file; default: as in COLLINS.prm")
    start(connected, stray="a bracket file is given as --trees=FILE")
