"""Classifies each line of standard input with a text classifier.

echo "The dogs sleep." | python -m infer.classify --workdir=runs/number

Line i of the output is the class of line i of the input, a tab, and the probability that the model gives it.
"""

import sys
from typing import Any

from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import open_run
from vaswani.infer.texts.classes import classify_stream
from vaswani.infer.translate.stream import lines_of, write


def main(options: Any) -> None:
    """Classifies each line of standard input."""
    model_run = open_run(options.workdir, options.checkpoint, task="classification")
    write(classify_stream(model_run, lines_of(sys.stdin.buffer)))


if __name__ == "__main__":
    define_run_flags()
    start(main, hint="lines are read from standard input")
