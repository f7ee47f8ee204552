"""Scores given translations with a run, by teacher forcing: n-best lists of any system, or pairs of sentences.

python -m infer.rescore --workdir=runs/quickstart --source=in.txt --nbest=lists.txt > scored.txt
python -m infer.rescore --workdir=runs/quickstart --source=in.txt --target=out.txt > log_probs.txt

Lists are LINE ||| TEXT, with any further ||| FIELDS of numbers, as `infer.translate --nbest` and Moses write them:
LINE counts from 0, and &#124; in TEXT is a bar. Each comes back with ||| LOG-PROBABILITY added; for pairs, only that
number is printed. Logarithms are natural and include EOS, so that the number is the log p of beam search. A run with
data.joiner takes words with their marks.
"""

import re
import sys
from pathlib import Path
from typing import Any

from absl import flags

from vaswani.data.lines import read_lines
from vaswani.errors import UserError, format_value
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import check_finite, open_run
from vaswani.infer.scores.forced import check_lengths
from vaswani.infer.scores.pairs import read_pair
from vaswani.infer.scores.perplexity import line_log_probs
from vaswani.infer.translate.nbest import SEPARATOR, text_of
from vaswani.infer.translate.translator import note_unknown
from vaswani.numbers import whole
from vaswani.tasks import TRANSLATION

# A number, the name before some, as in Moses' `LM0= -1.5`, or the link of an alignment: `0-1`.
_NUMBERS = re.compile(r"(\S+=)?([-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(inf|nan))?|\d+[-=]\d+", re.IGNORECASE)


def check(options: Any) -> None:
    """Raises a `UserError` unless there are either lists or targets."""
    if (options.nbest is None) == (options.target is None):
        raise UserError("give either --nbest=FILE or --target=FILE")


def parse_lists(path: str, lines: list[str], count: int) -> tuple[list[int], list[str]]:
    """Returns the source line, from 0, and the text of each entry of n-best lists of `count` sources.

    Raises:
      UserError: an entry is not LINE ||| TEXT, there is no such line, or a further field is of text.
    """
    numbers = []
    texts = []
    for place, line in enumerate(lines, 1):
        number_text, *fields = line.split(SEPARATOR)
        number = whole(number_text.strip())
        if not fields or number is None or number >= count:
            raise UserError(f"{path}, line {place}: it must be LINE ||| TEXT, with LINE from 0 to {count - 1}")
        for field in fields[1:]:
            if not all(map(_NUMBERS.fullmatch, field.split())):
                raise UserError(
                    f"{path}, line {place}: the field {format_value(field)} has no numbers, as scores have; a ||| "
                    "within a text is written &#124;&#124;&#124;"
                )
        numbers.append(number)
        texts.append(text_of(fields[0]))
    return numbers, texts


def main(options: Any) -> None:
    """Prints the log-probability of each translation."""
    if options.target is not None:
        sources, targets = read_pair(options.source, options.target)
        entries = [""] * len(sources)
    else:
        lines = list(read_lines(Path(options.source)))
        entries = list(read_lines(Path(options.nbest)))
        numbers, targets = parse_lists(options.nbest, entries, len(lines))
        sources = [lines[number] for number in numbers]
    model_run = open_run(options.workdir, options.checkpoint, TRANSLATION)
    check_finite(model_run)
    # Checked first: the longest are scored last, and the error would not name the line.
    check_lengths([model_run.model_config], model_run.tokenizer, sources, targets)
    log_probs = line_log_probs(model_run.model_config, model_run.params, model_run.tokenizer, sources, targets)
    tokenizer = model_run.tokenizer
    note_unknown(tokenizer.unknown(sources) + tokenizer.target.unknown(targets))
    if tokenizer.joiner and not any(tokenizer.joiner in target for target in targets):
        print(
            f"note: no translation has the marks ({tokenizer.joiner}) of this run's words; infer.translate joins words,"
            " so its output is scored as other words",
            file=sys.stderr,
        )
    separator = SEPARATOR if options.nbest else ""
    for entry, log_prob in zip(entries, log_probs, strict=True):
        print(f"{entry}{separator}{log_prob:.6f}")


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("source", None, "the source sentences, one per line; plain text or .gz")
    flags.DEFINE_string("nbest", None, "n-best lists of their translations, LINE ||| TEXT")
    flags.DEFINE_string("target", None, "or one translation of each, line by line")
    flags.mark_flag_as_required("source")
    start(main, hint="files are given as --source=FILE --nbest=FILE", check=check)
