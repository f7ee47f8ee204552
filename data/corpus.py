"""A corpus, as every kind of specification opens it (`data.sources` lists them), and what opening one takes."""

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from vaswani.errors import UserError
from vaswani.files import local_path

Pairs = Iterator[tuple[str, ...]]  # source and target, or only a text
_BRACES = re.compile(r"\{([^{},]+),([^{},]+)\}")


class Corpus(NamedTuple):
    """A corpus, read afresh by each call of `pairs`; `fingerprint` changes with the text or the direction.

    Words that match `symbols` become one subword each, however rare they are. Monolingual text has no source language;
    with `characters` it is one sequence without an end, and its characters are the vocabulary. `size` returns the
    number of records, None if only reading them all would tell.
    """

    spec: str
    source_language: str
    target_language: str
    pairs: Callable[[], Pairs]
    fingerprint: str
    symbols: re.Pattern[str] | None = None
    characters: bool = False
    size: Callable[[], int | None] = lambda: None

    @property
    def sides(self) -> int:
        """The number of texts in a record: 2, source and target, or 1."""
        return 2 if self.source_language else 1


def languages_of(spec: str, text: str) -> tuple[str, str]:
    """Returns the two names in the braces of `text`, source first; `UserError` unless exactly one pair is given."""
    braces = _BRACES.findall(text)
    if len(braces) != 1 or braces[0][0] == braces[0][1]:
        raise UserError(
            f"corpus {spec!r}: name the two languages once, source first, as in {{en,de}} (quoted, in a shell)"
        )
    return braces[0]


def target_language(spec: str) -> str:
    """Returns the target language that a specification names in braces; "" if it names none."""
    braces = _BRACES.findall(spec)
    return braces[0][1] if braces else ""


def not_empty(spec: str, pairs: Pairs) -> Pairs:
    """Yields the pairs; raises a `UserError` if there is none."""
    first = next(pairs, None)
    if first is None:
        raise UserError(f"corpus {spec!r} is empty: it has no sentences")
    yield first
    yield from pairs


def digest(*parts: str) -> str:
    """Returns the SHA-256 of texts, in hexadecimal."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def file_named(spec: str, name: str) -> Path:
    """Returns the file of this name, or the compressed one in its place."""
    path = local_path(name, f"corpus {spec!r}")
    compressed = Path(f"{path}.gz")
    return compressed if compressed.is_file() and not path.exists() else path
