"""What a run was trained on, for the page: its languages, sentences to try, and which words it has never read."""

import re
import unicodedata
from itertools import islice

from ml_collections import ConfigDict

from vaswani.data.corpus import Corpus
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError

EXAMPLES = 5
SHORT = 80  # characters of an example
MOST = 1_000_000  # pairs whose words are collected: seconds of work
# One that would be downloaded is not opened.
_LOCAL = ("grammar:", "text:", "tsv:", "parquet:")
_UNSPACED = "\u3005-\u3007\u3040-\u30ff\u3400-\u9fff"  # Chinese and Japanese characters, each a word
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’-][^\W{_UNSPACED}]+)*")


def languages(config: ConfigDict) -> str:
    """Returns the language pair, as "en → de"; "" if the training corpus is not here to tell it."""
    try:
        corpus = open_local(config.data.train)
    except UserError:
        return ""
    return f"{corpus.source_language} → {corpus.target_language}"


def examples(config: ConfigDict) -> list[str]:
    """Returns up to five short sources of the test or the validation corpus, whichever is here."""
    for split in ("test", "valid"):
        try:
            pairs = open_local(config.data[split]).pairs()
            short = (pair[0] for pair in pairs if 0 < len(pair[0].strip()) <= SHORT)
            return list(islice(short, EXAMPLES))
        except UserError:
            continue
    return []


def training_words(config: ConfigDict) -> frozenset[str]:
    """Returns every word of the training sources, in small letters.

    Raises:
      UserError: the corpus is not here, or has more than `MOST` pairs.
    """
    found: set[str] = set()
    for number, pair in enumerate(open_local(config.data.train).pairs(), start=1):
        if number > MOST:
            raise UserError(f"the training corpus has more than {MOST:,} pairs")
        found.update(map(_folded, _WORD.findall(pair[0])))
    return frozenset(found)


def marked(text: str, known: frozenset[str]) -> list[tuple[str, bool]]:
    """Returns a text in parts, with True for the words that are not known."""
    parts: list[tuple[str, bool]] = []
    end = 0
    for match in _WORD.finditer(text):
        if _folded(match[0]) not in known:
            parts += [(text[end : match.start()], False), (match[0], True)]
            end = match.end()
    return [*parts, (text[end:], False)]


def open_local(spec: str) -> Corpus:
    """Opens a corpus; `UserError` if it is not on this machine."""
    if not spec.startswith(_LOCAL):
        raise UserError(f"the training corpus {spec!r} is not on this machine" if spec else "no corpus is named")
    return open_corpus(spec)


def _folded(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()
