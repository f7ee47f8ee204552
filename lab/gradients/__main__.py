"""Measures how far gradients reach: the norm of d loss(t) / d x(s), x(s) the vector of token s, by the distance t - s.

    python -m infer --workdir=RUN --split=test
    python -m lab.gradients --workdir=RUN [--rows=16]

RUN is a language model whose rows are windows (`data.batching=window`). The first --rows rows of its test text are
read; the mean is over them, and over all positions t that have a token so far before them. The result is added to the
newest evaluation of the test split, so that a record of the run has both.
"""

from typing import Any

from absl import flags

from vaswani.infer.options import define_run_flags, start


def main(options: Any) -> None:
    from lab.gradients.command import main as measure

    measure(options)


if __name__ == "__main__":
    define_run_flags(several=True)
    flags.DEFINE_integer("rows", 16, "rows of the test text to read", lower_bound=1)
    start(main, hint="the run is given as --workdir=DIR")
