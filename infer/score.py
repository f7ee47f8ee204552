"""Scores a file of translations against a file of references, one sentence a line, plain or .gz.

python -m infer.score --hypothesis=out.de --reference=newstest2014.de.gz [--json]

Prints BLEU in every reading, chrF and exact match, each with its signature; see infer/scores/bleu.py.
"""

import json
import re
from pathlib import Path
from typing import Any

from absl import flags

from base.errors import UserError, run
from data.sources import read_lines
from infer.scores import bleu


def read_pair(left: str | Path, right: str | Path) -> tuple[list[str], list[str]]:
    """Lines of two files that must correspond line by line; `UserError` if they are empty or of unequal length."""
    first, second = list(read_lines(Path(left))), list(read_lines(Path(right)))
    if len(first) != len(second):
        raise UserError(
            f"unequal line counts: {left} has {len(first)} lines, {right} has {len(second)}; line i of one must "
            "correspond to line i of the other"
        )
    if not first:
        raise UserError(f"{left} and {right} are empty: there is nothing to score")
    return first, second


def language_of(path: str | Path) -> str:
    """The language that a file name ends in (`x.fr`, `x.fr.gz`), as text corpora are named; else "de"."""
    match = re.search(r"\.([a-z]{2})$", str(path).removesuffix(".gz"))
    return match[1] if match else "de"


def report(record: dict[str, Any]) -> str:
    """The scores of `record`, a line each: name, percent, signature."""
    rows = [(name, record[name], record["signatures"][name]) for name in bleu.READINGS if name in record]
    return "\n".join(f"{name:<12} {value:6.2f}   {signature}" for name, value, signature in rows)


def main(argv: list[str]) -> None:
    """Entry point; flags below."""
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}; files are given as --hypothesis=FILE --reference=FILE")
    options = flags.FLAGS
    hypotheses, references = read_pair(options.hypothesis, options.reference)
    scores = bleu.all_scores(hypotheses, references, options.language or language_of(options.reference))
    print(json.dumps(scores, indent=2) if options.json else report(scores))


if __name__ == "__main__":
    flags.DEFINE_string("hypothesis", None, "translations, one a line; plain text, or gzip if the name ends in .gz")
    flags.DEFINE_string("reference", None, "references, line for line")
    flags.DEFINE_string("language", None, "target language for the Moses tokeniser; default: from --reference, or de")
    flags.DEFINE_bool("json", False, "print JSON rather than a table")
    flags.mark_flags_as_required(["hypothesis", "reference"])
    run(main)
