"""Training texts that studies make of a corpus, written once for all seeds."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from vaswani.data.sources import open_corpus
from vaswani.files import write_text

TEXTS = "runs/texts"  # a folder for each text
Pairs = list[tuple[str, ...]]


def lowered(pairs: Pairs) -> Pairs:
    """Returns pairs lower-cased."""
    return [(source.lower(), target.lower()) for source, target in pairs]


def part(pairs: Pairs, count: int) -> Pairs:
    """Returns the first `count` pairs of a random order that is the same for every count."""
    order_n = np.random.default_rng(0).permutation(len(pairs))
    return [pairs[number] for number in order_n[:count]]


def files_of(name: str) -> list[Path]:
    """Returns the files of the text `name`: English, and German."""
    return [Path(TEXTS) / name / f"train.{language}" for language in ("en", "de")]


def is_written(name: str) -> bool:
    """Returns whether the text `name` is there, whole."""
    return all(file.exists() for file in files_of(name))


def write(name: str, pairs: Pairs) -> None:
    """Writes pairs as the text `name`, English to German."""
    for file, side in zip(files_of(name), zip(*pairs, strict=True), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, as_lines(side))


def read(spec: str) -> Pairs:
    """Returns the pairs of a corpus."""
    return list(open_corpus(spec).pairs())


def as_lines(texts: Iterable[str]) -> str:
    """Returns texts as the lines of a file."""
    return "".join(f"{text}\n" for text in texts)
