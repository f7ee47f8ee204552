"""Scores given translations with a run, by teacher forcing: n-best lists of any system, or pairs of sentences.

python -m infer.rescore --workdir=runs/quickstart --source=in.txt --nbest=lists.txt > scored.txt
python -m infer.rescore --workdir=runs/quickstart --source=in.txt --target=out.txt > log_probs.txt

Lists are LINE ||| TEXT, with any further ||| FIELDS, as `infer.translate --nbest` and Moses write them: LINE counts
from 0, and &#124; in TEXT is a bar. Each comes back with ||| LOG-PROBABILITY added; for pairs, only that number is
printed. Logarithms are natural and include EOS, so that the number is the log p of beam search. A run with data.joiner
takes words with their marks.
"""

from typing import Any

from absl import flags

from base.command import imported
from base.errors import UserError
from infer.options import define_run_flags, start


def check(options: Any) -> None:
    """Raises a `UserError` unless there are either lists or targets."""
    if (options.nbest is None) == (options.target is None):
        raise UserError("give either --nbest=FILE or --target=FILE")


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("source", None, "the source sentences, one per line; plain text or .gz")
    flags.DEFINE_string("nbest", None, "n-best lists of their translations, LINE ||| TEXT")
    flags.DEFINE_string("target", None, "or one translation of each, line by line")
    flags.mark_flag_as_required("source")
    start(imported("infer.scores.given"), hint="files are given as --source=FILE --nbest=FILE", check=check)
