"""Fills the blanks in each line of standard input with a masked language model.

echo "The ___ reads a ___." | python -m infer.fill --workdir=runs/masked_lm

A blank is three underscores; each gets one subword. If a line has several, the one that the model is surest of is
filled first, and the others are then predicted again. Line i of the output is line i of the input, its blanks filled.
"""

import sys

from absl import flags

from infer.options import define_run_flags, start


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    from infer.filling import fill_stream  # only now: a mistyped flag is answered without jax
    from infer.runs import open_run
    from infer.stream import write

    model_run = open_run(flags.FLAGS.workdir, flags.FLAGS.checkpoint, task="masked_lm")
    write(fill_stream(model_run, sys.stdin.buffer))


if __name__ == "__main__":
    define_run_flags()
    start(main, stray="lines are read from standard input")
