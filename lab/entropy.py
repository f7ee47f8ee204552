"""Bounds the entropy of the grammar's English from above: the loss of a perfect language model is at most this much.

    python -m lab.entropy [--sentences=1000] [--tokenizer=RUN/tokenizer.model]

A draft of a sentence is a row of digits, each of which is one of equally likely values. A digit is free as far as other
values of it spell the same English: those that only the German shows, those on the same side of a threshold, and words
of several meanings. A sentence has at least the probability that its digits take values which spell it, so its
information, -log p, is at most the sum of log(values / free values). The mean over sentences of the test split bounds
their entropy from above: the loss of a perfect model that reads whole sentences is at most this much. With a tokenizer
it is given per subword, EOS counted, as a language model's loss is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from vaswani.command import run
from vaswani.data.grammar.rules import RULES
from vaswani.data.grammar.sentences import pair, written
from vaswani.data.grammar.syntax import Draft
from vaswani.data.imported import open_tokenizer
from vaswani.files import folder
from vaswani.progress import Progress

SPLIT = "test"


class Digit(NamedTuple):
    """One choice of a draft: `value`, of `values` that are equally likely."""

    values: int
    value: int


class OtherDigitsError(Exception):
    """A draft asked for another digit than the one that it was given."""


class Recorded(Draft):
    """A draft that records its digits, and takes them from `given`, if there are any."""

    def __init__(self, key: str, given: Sequence[Digit] = ()) -> None:
        super().__init__(key)
        self.digits: list[Digit] = []
        self._given = given

    def below(self, n: int) -> int:
        """Returns the next digit; raises `OtherDigitsError` if the given one is of another number of values."""
        if not self._given:
            value = super().below(n)
        elif len(self.digits) < len(self._given) and self._given[len(self.digits)].values == n:
            value = self._given[len(self.digits)].value
        else:
            raise OtherDigitsError
        self.digits.append(Digit(n, value))
        return value


def digits_of(index: int, split: str = SPLIT) -> tuple[str, list[Digit]]:
    """Returns the English of pair number `index`, and the digits of its draft, without those of rejected ones."""
    wanted = pair(split, index).english
    d = Recorded(f"0/{split}/{index}")
    while True:
        before = len(d.digits)
        if _english(d) == wanted:
            return wanted, d.digits[before:]


def spelled(digits: Sequence[Digit]) -> str | None:
    """Returns the English of a draft with just these digits; None if there is no such draft."""
    d = Recorded("", digits)
    try:
        english = _english(d)
    except OtherDigitsError:
        return None
    return english if len(d.digits) == len(digits) else None


def _english(d: Draft) -> str:
    tree, _ = d.pick(RULES)(d)
    return written(tree.capitalised().leaves())


def free_values(english: str, digits: Sequence[Digit], place: int) -> list[int]:
    """Returns the values of the digit at `place` that spell the same English, the others being as they are."""
    values, chosen = digits[place]
    free = []
    for value in range(values):
        changed = [*digits[:place], Digit(values, value), *digits[place + 1 :]]
        if value == chosen or spelled(changed) == english:
            free.append(value)
    return free


def most_nats(english: str, digits: Sequence[Digit]) -> float:
    """Returns the most information, -log p, that an English sentence can have which these digits spell."""
    return sum(math.log(digit.values / len(free_values(english, digits, place))) for place, digit in enumerate(digits))


def main(argv: list[str]) -> None:
    """Prints the mean over the first sentences of the test split, with its standard error."""
    options = flags.FLAGS
    tokenizer = open_tokenizer(folder("tokenizer", options.tokenizer)) if options.tokenizer else None
    nats = []
    subwords = 0
    with Progress("counting choices", "sentences", total=options.sentences) as progress:
        for index in progress.count(range(options.sentences)):
            english, digits = digits_of(index)
            nats.append(most_nats(english, digits))
            if tokenizer is not None:
                subwords += len(tokenizer.encode(english)) + 1
    error = np.std(nats, ddof=1) / math.sqrt(len(nats))
    print(
        f"{len(nats):,} sentences of grammar:{SPLIT}, English: at most {np.mean(nats):.2f} nats a sentence, "
        f"with a standard error of {error:.2f}"
    )
    if tokenizer is not None:
        each = subwords / len(nats)
        print(
            f"{each:.2f} subwords a sentence: at most {np.mean(nats) / each:.3f} nats a subword, "
            f"with a standard error of {error / each:.3f}"
        )


if __name__ == "__main__":
    about = "sentences to measure; a thousand take about two minutes"
    flags.DEFINE_integer("sentences", 1_000, about, lower_bound=2, upper_bound=1_000_000)
    flags.DEFINE_string("tokenizer", "", "the tokenizer.model of a run, for the same per subword")
    run(main, hint="the options are --sentences=N and --tokenizer=FILE")
