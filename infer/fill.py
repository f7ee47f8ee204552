"""Fills the blanks in each line of standard input with a masked language model.

echo "The ___ reads a ___." | python -m infer.fill --workdir=runs/masked_lm

A blank is three underscores; each gets one subword. If a line has several, the one that the model is surest of is
filled first, and the others are then predicted again. Line i of the output is line i of the input, its blanks filled.
"""

import sys
from typing import Any

from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import open_run
from vaswani.infer.texts.blanks import fill_stream
from vaswani.infer.translate.stream import lines_of, write


def main(options: Any) -> None:
    """Fills the blanks in each line of standard input."""
    model_run = open_run(options.workdir, options.checkpoint, task="masked_lm")
    write(fill_stream(model_run, lines_of(sys.stdin.buffer)))


if __name__ == "__main__":
    define_run_flags()
    start(main, hint="lines are read from standard input")
