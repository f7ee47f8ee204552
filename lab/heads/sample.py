"""Which sentences heads are measured on: the first of a split of the grammar, and more with a rare relation."""

import itertools
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from lab.heads.roles import AnnotatedPair, annotate
from vaswani.data.grammar import sentences as grammar
from vaswani.progress import Progress

CASES = 400  # of a share that makes an interval of at most 5 points to either side
RARE = ("relative", "particle", "verb", "antecedent", "it")


class Sample(NamedTuple):
    """The first sentences of a split, with all their cases; and others, with only cases of rare relations."""

    first: list[AnnotatedPair]
    more: list[AnnotatedPair]

    def named(self, split: str) -> str:
        """Returns the split and number of sentences, for the record."""
        more = f", {len(self.more):,} more with rare relations" if self.more else ""
        return f"grammar:{split}:{len(self.first)}{more}"


@lru_cache(maxsize=4)
def sample(split: str, sentences: int, cases: int, reverse: bool) -> Sample:
    """Returns the first `sentences` of a split and, from those behind them, as many as rare relations need.

    A rare relation that the first sentences hold gets `cases` cases of each kind of attention, or a few more: sentences
    are read on until it has them, and of a later sentence only the relations that lack cases then are counted.
    """
    with Progress(f"reading grammar:{split}", "sentences") as progress:
        read = (annotate(grammar.pair(split, i), reverse) for i in progress.count(itertools.count()))
        first = list(itertools.islice(read, sentences))
        count: Counter[tuple[str, str]] = Counter()
        for pair in first:
            count.update({name: len(cases_of) for name, cases_of in pair.cases.items() if name[1] in RARE})
        lacking = {name for name in count if 0 < count[name] < cases}
        more: list[AnnotatedPair] = []
        while lacking:
            pair = next(read)
            needed = {name: cases_of for name, cases_of in pair.cases.items() if name in lacking and cases_of}
            if needed:
                more.append(pair._replace(cases=needed))
                count.update({name: len(cases_of) for name, cases_of in needed.items()})
                lacking = {name for name in lacking if count[name] < cases}
    return Sample(first, more)
