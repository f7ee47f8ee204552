"""Measures on minimal pairs of the grammar whether a translator knows its rules, near and far.

    python -m infer --workdir=RUN --split=test
    python -m lab.contrast --workdir=RUN [--sentences=24000] [--cases=300]

In each pair one German sentence is correct, and the other has one wrong word: the mistake is in the number of a verb,
the particle of a separable verb, or the gender of a pronoun. The accuracy is how often the correct sentence is more
probable, given the English one. It is shown by the distance, in words and punctuation, to the word that decides what is
correct: subject, verb or antecedent.

The first --sentences sentences of the grammar's split that the run is tested on are read, and up to --cases pairs are
taken of each kind and distance. The result is added to the newest evaluation of the test split, so that a record of the
run has both.
"""

from typing import Any

from absl import flags

from vaswani.infer.options import define_run_flags, start


def main(options: Any) -> None:
    from lab.contrast.command import main as measure

    measure(options)


if __name__ == "__main__":
    define_run_flags(several=True)
    flags.DEFINE_integer("sentences", 24_000, "sentences of the test split to read", lower_bound=1)
    flags.DEFINE_integer("cases", 300, "pairs of each kind and distance", lower_bound=1)
    start(main, hint="the run is given as --workdir=DIR")
