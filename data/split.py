"""Splits a parallel corpus so that no sentence, of either language, is in two of training, validation and test.

    python -m data.split --corpus='tsv:all.tsv:{en,de}' --seed=1 --output=corpus

Writes corpus/{train,valid,test}.{en,de}, for --config.data.train='text:corpus/train.{en,de}' and so on, and prints
their numbers of pairs. A sentence that is translated in several ways would otherwise be in training and in test, and
BLEU would measure memory. So pairs that share a sentence, directly or through other pairs, stay together; sentences are
the same if they differ only in case, in blanks or in Unicode's compatible forms. Pairs that occur twice, or have an
empty side, are written once or not at all. The same seed and corpus give the same files.
"""

import random
import sys
import unicodedata
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from absl import flags

from vaswani import command
from vaswani.data.corpus import Corpus
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.files import output_folder, write_text, writing

Pair = tuple[str, ...]


class Split(NamedTuple):
    """The pairs of each part, in the order of the corpus."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def split(pairs: list[Pair], seed: int, valid: int, test: int) -> Split:
    """Returns the pairs in three parts, of which `valid` and `test` have about as many as their numbers say.

    A part is filled with whole groups of pairs that share sentences, in the order that the seed draws, while they fit;
    it lacks fewer pairs than the smallest group that was left has.

    Raises:
      UserError: fewer pairs would be left for training than are held out.
    """
    distinct = list(dict.fromkeys(pair for pair in pairs if all(side.strip() for side in pair)))
    if len(distinct) < 2 * (valid + test):
        raise UserError(
            f"there are {len(distinct):,} distinct pairs; --valid={valid} and --test={test} would leave fewer for "
            "training than they hold out"
        )
    group_of = _groups(distinct)
    numbers_of = defaultdict(list)
    for number, group in enumerate(group_of):
        numbers_of[group].append(number)
    groups = list(numbers_of.values())
    random.Random(seed).shuffle(groups)

    held_out: set[int] = set()
    parts = []
    for size in (test, valid):
        part: list[int] = []
        for numbers in groups:
            is_free = numbers[0] not in held_out
            if is_free and len(part) + len(numbers) <= size:
                part += numbers
                held_out.update(numbers)
        parts.append([distinct[number] for number in sorted(part)])
    test_pairs, valid_pairs = parts
    train_pairs = [pair for number, pair in enumerate(distinct) if number not in held_out]
    return Split(train_pairs, valid_pairs, test_pairs)


def same(sentence: str) -> str:
    """Returns a sentence in normal form: equal for sentences that differ only in case, blanks or Unicode's forms."""
    return " ".join(unicodedata.normalize("NFKC", sentence).casefold().split())


def _groups(pairs: list[Pair]) -> list[int]:
    """Returns the group of each pair: its first pair's number. Pairs that share a sentence are in one (union-find)."""
    parent = list(range(len(pairs)))

    def first(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    seen: dict[tuple[int, str], int] = {}  # (side, sentence) -> a pair that has it
    for number, pair in enumerate(pairs):
        for side, sentence in enumerate(pair):
            other = seen.setdefault((side, same(sentence)), number)
            older, younger = sorted((first(other), first(number)))
            parent[younger] = older
    return [first(number) for number in range(len(pairs))]


def _write(corpus: Corpus, parts: Split, output: Path) -> None:
    languages = (corpus.source_language, corpus.target_language)
    output.mkdir(parents=True, exist_ok=True)
    for name, pairs in parts._asdict().items():
        for side, language in enumerate(languages):
            lines = [pair[side].replace("\n", " ") for pair in pairs]  # a Parquet cell may have several lines
            write_text(output / f"{name}.{language}", "".join(f"{line}\n" for line in lines))


def main(argv: list[str]) -> None:
    """Reads the corpus, splits it, writes six files and prints the numbers of pairs."""
    options = flags.FLAGS
    output = output_folder("output", options.output)
    if output.is_dir() and any(output.iterdir()):
        raise UserError(f"--output={output}: this folder already contains files; name a new one")
    corpus = open_corpus(options.corpus)
    if corpus.sides != 2:
        raise UserError(f"--corpus={corpus.spec}: this is monolingual; give pairs, as in 'tsv:FILE:{{en,de}}'")
    pairs = list(corpus.pairs())
    parts = split(pairs, options.seed, options.valid, options.test)
    with writing(f"--output={output}"):
        _write(corpus, parts, output)
    left_out = len(pairs) - sum(map(len, parts))
    if left_out:
        print(f"left out, since they occur twice or have an empty side: {left_out:,}", file=sys.stderr)
    for name, part in parts._asdict().items():
        print(f"{name} {len(part)}")


if __name__ == "__main__":
    flags.DEFINE_string("corpus", None, "the corpus, such as tsv:FILE:{en,de}; data/sources.py lists the kinds")
    flags.DEFINE_string("output", None, "a new folder")
    flags.DEFINE_integer("seed", 0, "draws the parts", lower_bound=0)
    flags.DEFINE_integer("valid", 2_000, "pairs for validation, at most", lower_bound=1)
    flags.DEFINE_integer("test", 2_000, "pairs for the test, at most", lower_bound=1)
    flags.mark_flags_as_required(["corpus", "output"])
    command.run(main)
