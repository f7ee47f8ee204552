"""Classifies each line of standard input with a text classifier.

echo "The dogs sleep." | python -m infer.classify --workdir=runs/number

Line i of the output is the class of line i of the input, a tab, and the probability that the model gives it.
"""

import sys

from absl import flags

from infer.options import define_run_flags, start


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    from infer.classifying import classify_stream  # only now: a mistyped flag is answered without jax
    from infer.runs import open_run
    from infer.stream import write

    model_run = open_run(flags.FLAGS.workdir, flags.FLAGS.checkpoint, task="classification")
    write(classify_stream(model_run, sys.stdin.buffer))


if __name__ == "__main__":
    define_run_flags()
    start(main, stray="lines are read from standard input")
