"""Scores parse trees as EVALB does (Sekine and Collins 1997): labelled brackets.

python -m infer.brackets --gold=wsj23.mrg --parsed=parsed.mrg [--parameters=COLLINS.prm] [--json]

Both files have one sentence per line. Prints EVALB's summary, preceded by a line for each sentence if the parameter
file sets DEBUG 1. The default parameters are COLLINS.prm's, the usual choice for the Wall Street Journal: punctuation,
traces and TOP do not count, and ADVP equals PRT.
"""

import json

from absl import flags

from vaswani.command import run
from vaswani.infer.scores.brackets import COLLINS, read_parameters, report, rows, score_lines, summaries
from vaswani.infer.scores.pairs import read_pair


def main(argv: list[str]) -> None:
    """Prints EVALB's summary of two files of trees."""
    options = flags.FLAGS
    parameters = read_parameters(options.parameters) if options.parameters is not None else COLLINS
    gold, parsed = read_pair(options.gold, options.parsed)
    sentences = score_lines(gold, parsed, parameters)
    blocks = summaries(sentences, parameters)
    if options.json:
        print(json.dumps({**blocks, "signature": parameters.signature()}, indent=2))
        return
    if parameters.debug:
        print(rows(sentences))
    print(report(blocks))


if __name__ == "__main__":
    flags.DEFINE_string("gold", None, "the gold trees, one per line; plain text, or gzip if the name ends in .gz")
    flags.DEFINE_string("parsed", None, "the trees to score, line by line; an empty line is a sentence not parsed")
    flags.DEFINE_string("parameters", None, "EVALB parameter file; default: as in COLLINS.prm")
    flags.DEFINE_bool("json", False, "print JSON instead of a summary")
    flags.mark_flags_as_required(["gold", "parsed"])
    run(main, hint="files are given as --gold=FILE --parsed=FILE")
