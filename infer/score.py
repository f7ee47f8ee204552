"""Scores a file of translations against a file of references, one sentence per line, plain or .gz.

python -m infer.score --hypothesis=out.de --reference=newstest2014.de.gz [--json]

Prints every variant of BLEU, chrF and exact match, each with its signature; see infer/scores/bleu.py.
"""

import json

from absl import flags

from base.errors import run
from infer.scores import bleu
from infer.scores.pairs import language_of, read_pair


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    options = flags.FLAGS
    hypotheses, references = read_pair(options.hypothesis, options.reference)
    scores = bleu.all_scores(hypotheses, references, options.language or language_of(options.reference))
    print(json.dumps(scores, indent=2) if options.json else bleu.as_text(scores))


if __name__ == "__main__":
    flags.DEFINE_string("hypothesis", None, "translations, one per line; plain text, or gzip if the name ends in .gz")
    flags.DEFINE_string("reference", None, "references, line by line")
    flags.DEFINE_string("language", None, "target language for the Moses tokeniser; default: from --reference, or de")
    flags.DEFINE_bool("json", False, "print JSON instead of a table")
    flags.mark_flags_as_required(["hypothesis", "reference"])
    run(main, stray="files are given as --hypothesis=FILE --reference=FILE")
