"""Fills the blanks in each line of standard input with a masked language model.

echo "The ___ reads a ___." | python -m infer.fill --workdir=runs/masked_lm

A blank is three underscores; each gets one subword. If a line has several, the one that the model is surest of is
filled first, and the others are then predicted again. Line i of the output is line i of the input, its blanks filled.
"""

from base.command import imported
from infer.options import define_run_flags, start

if __name__ == "__main__":
    define_run_flags()
    start(imported("infer.texts.blanks"), hint="lines are read from standard input")
