"""Corpora: one specification string names any parallel corpus, or a text for a language model.

| specification | corpus |
|---|---|
| `grammar:SPLIT[:COUNT][:{en,de}]` | the built-in grammar; SPLIT is train, valid, test or a harder one |
| `grammar:SPLIT[:COUNT]:{en,PROPERTY}` | its sentences, and the tense, number or clause of each (`data.properties`) |
| `text:PREFIX.{en,de}[.gz]` | two files, one sentence per line; line i of one translates line i of the other |
| `tsv:FILE[:{en,de}]` | lines of source, tab, target (more columns are ignored); the braces name columns 1, 2 |
| `parquet:FILE:{en,de}` | two columns of a Parquet file, or fields of its column `translation`; `*` in the name |
| `tfds:NAME[:SPLIT]:{en,de}` | a translation data set of tensorflow-datasets, or a folder that it prepared |
| `trees:FILE`, `trees:FILE.gz` | a treebank in Penn brackets: sentences, and their linearised trees (`data.trees`) |
| `trees:grammar:SPLIT[:COUNT]` | the English side of the built-in grammar and its trees |
| `lines:FILE`, `lines:FILE.gz` | a text, each of whose lines is a sequence |
| `lines:grammar:SPLIT[:COUNT]` | the English side of the built-in grammar; with `:{en,de}` both sides, in turn |
| `chars:FILE[.gz][:PART]` | a text as one sequence of characters; PART is train, its first nine tenths, or valid |

Without COUNT there are 100,000 sentences of a training split and 1,000 of any other.

The source language comes first, so `{de,en}` reverses the direction of `grammar:`, `text:`, `parquet:` and `tfds:`.
Only a line feed ends a line (a carriage return before it is dropped): other separators, such as U+2028 or U+0085, are
part of a sentence. A file with carriage returns and no line feed is refused. A line has at most 16 MiB, a text of
`chars:` 2^30 characters. A byte order mark at the beginning is dropped. FILE.gz is read where there is no FILE.
"""

import difflib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from vaswani.data.corpus import Corpus, Pairs, digest, file_named, languages_of, not_empty
from vaswani.data.grammar import sentences as grammar
from vaswani.data.lines import count_lines, file_digest, read_lines
from vaswani.data.parquet import open_parquet
from vaswani.data.properties import PROPERTIES
from vaswani.data.tfds import open_tfds
from vaswani.data.trees.linearise import SYMBOL, linearise
from vaswani.data.trees.tree import Tree
from vaswani.data.trees.treebank import cleaned, read_trees
from vaswani.errors import UserError
from vaswani.numbers import pluralize, whole

_SIZES = {  # sentences of the grammar's splits
    "train": 100_000,
    "valid": 1_000,
    "test": 1_000,
    "deeper": 1_000,
    "longer": 1_000,
}
_MOST = 100_000_000  # sentences of the grammar: days of work
_LONGEST_TEXT = 1 << 30  # characters of `chars:`, which is one sequence in memory: a small .gz may be far larger
_GRAMMAR_FILES = ("grammar/*.py", "grammar/words/*.tsv")
_GRAMMAR_SPLITS = ", ".join(_SIZES)


def open_corpus(spec: str) -> Corpus:
    """Opens the corpus that `spec` names; `UserError` if there is none. Its `pairs` raises errors in the text."""
    scheme, colon, rest = spec.partition(":")
    if not colon or scheme not in _SCHEMES:
        similar = difflib.get_close_matches(scheme, _SCHEMES, n=1) if colon else []
        hint = f"; did you mean {similar[0]}:?" if similar else ""
        known = ", ".join(f"{name}:" for name in _SCHEMES)
        raise UserError(f"corpus {spec!r}: unknown scheme; the known ones are {known}{hint}")
    return _SCHEMES[scheme](spec, rest)


# Files


def _text(spec: str, rest: str) -> Corpus:
    source, target = languages_of(spec, rest)
    before, after = rest.split(f"{{{source},{target}}}")
    source_path = file_named(spec, before + source + after)
    target_path = file_named(spec, before + target + after)

    def pairs() -> Pairs:
        sources = read_lines(source_path)
        targets = read_lines(target_path)
        for number, (left, right) in enumerate(itertools.zip_longest(sources, targets), 1):
            if left is None or right is None:
                source_count = number - 1 if left is None else number + _count_left(sources)
                target_count = number - 1 if right is None else number + _count_left(targets)
                raise UserError(
                    f"unequal line counts: {source_path} has {pluralize(source_count, 'lines')}, {target_path} has"
                    f" {target_count:,};"
                    " line i of one must translate line i of the other"
                )
            yield left, right

    fingerprint = digest("text", file_digest(source_path), file_digest(target_path))
    return Corpus(
        spec,
        source,
        target,
        lambda: not_empty(spec, pairs()),
        fingerprint,
        size=lambda: count_lines(source_path),
    )


def _count_left(lines: Iterator[str]) -> int:
    return sum(1 for _ in lines)


def _tsv(spec: str, rest: str) -> Corpus:
    before, colon, after = rest.rpartition(":")
    if colon and after.startswith("{"):
        source, target = languages_of(spec, after)
        path = file_named(spec, before)
    else:
        source, target = ("en", "de")
        path = file_named(spec, rest)

    def pairs() -> Pairs:
        for number, line in enumerate(read_lines(path), 1):
            columns = line.split("\t")
            if len(columns) < 2:
                raise UserError(f"{path}, line {number}: no tab; a line must be source, tab, target")
            yield columns[0], columns[1]

    return Corpus(
        spec,
        source,
        target,
        lambda: not_empty(spec, pairs()),
        digest("tsv", file_digest(path)),
        size=lambda: count_lines(path),
    )


# The built-in grammar


def _grammar(spec: str, rest: str) -> Corpus:
    match = re.fullmatch(r"(\w+)(?::(\d+))?(?::(\{.*\}))?", rest)
    split = match[1] if match else ""
    if not match or split not in _SIZES:
        raise UserError(f"corpus {spec!r}: write grammar:SPLIT[:COUNT][:{{en,de}}], SPLIT one of {_GRAMMAR_SPLITS}")
    count = _count(spec, split, match[2])
    source, target = languages_of(spec, match[3] or "{en,de}")
    if source not in ("en", "de") or target not in ("en", "de", *PROPERTIES):
        raise UserError(
            f"corpus {spec!r}: write {{en,de}}, {{de,en}} or {{en,PROPERTY}}, PROPERTY one of {', '.join(PROPERTIES)}"
        )

    def pairs() -> Pairs:
        for index in range(count):
            example = grammar.pair(split, index)
            sides = {"en": example.english, "de": example.german}
            if target in PROPERTIES:
                sides[target] = PROPERTIES[target](example.tree)
            yield sides[source], sides[target]

    parts = [_code_digest(*_GRAMMAR_FILES, "trees/tree.py"), split, str(count), source]
    if target in PROPERTIES:
        parts += [target, _code_digest("properties.py")]
    fingerprint = digest("grammar", *parts)
    return Corpus(spec, source, target, lambda: not_empty(spec, pairs()), fingerprint, size=lambda: count)


def _count(spec: str, split: str, given: str | None) -> int:
    """Returns the number of sentences, by default the split's."""
    count = whole(given) if given else _SIZES[split]
    if count is None or count > _MOST:
        raise UserError(f"corpus {spec!r}: the grammar makes up to {_MOST:,} sentences")
    return count


def _code_digest(*patterns: str) -> str:
    """Returns a digest of the files in this folder that generate a corpus's text: code, and tables of words."""
    package = Path(__file__).parent
    paths = [path for pattern in patterns for path in sorted(package.glob(pattern))]
    return digest(*map(file_digest, paths))


# Treebanks


def _trees(spec: str, rest: str) -> Corpus:
    match = re.fullmatch(r"grammar:(\w+)(?::(\d+))?", rest)
    if match and match[1] in _SIZES:
        split = match[1]
        count = _count(spec, split, match[2])
        fingerprint = digest("trees grammar", _code_digest(*_GRAMMAR_FILES, "trees/*.py"), split, str(count))
        return _treebank(spec, lambda: _grammar_trees(split, count), fingerprint)
    if rest.startswith("grammar:") or not rest:
        raise UserError(
            f"corpus {spec!r}: write trees:FILE or trees:grammar:SPLIT[:COUNT], SPLIT one of {_GRAMMAR_SPLITS}"
        )
    path = file_named(spec, rest)
    fingerprint = digest("trees", _code_digest("trees/*.py"), file_digest(path))
    return _treebank(spec, lambda: read_trees(read_lines(path), str(path)), fingerprint)


def _treebank(spec: str, trees: Callable[[], Iterator[Tree]], fingerprint: str) -> Corpus:
    def pairs() -> Pairs:
        for tree in trees():
            yield " ".join(tree.leaves()), linearise(tree)

    return Corpus(spec, "en", "trees", lambda: not_empty(spec, pairs()), fingerprint, SYMBOL)


def _grammar_trees(split: str, count: int) -> Iterator[Tree]:
    for index in range(count):
        yield cleaned(grammar.pair(split, index).tree)


# Texts for language models


def _lines(spec: str, rest: str) -> Corpus:
    if rest.startswith("grammar:"):
        return _grammar_lines(spec, rest.removeprefix("grammar:"), both_sides=rest.endswith("}"))
    path = file_named(spec, rest)

    def lines() -> Pairs:
        return ((line,) for line in read_lines(path))

    return Corpus(
        spec,
        "",
        "",
        lambda: not_empty(spec, lines()),
        digest("lines", file_digest(path)),
        size=lambda: count_lines(path),
    )


def _grammar_lines(spec: str, rest: str, both_sides: bool) -> Corpus:
    grammar = _grammar(spec, rest)
    sides = 2 if both_sides else 1

    def lines() -> Pairs:
        for pair in grammar.pairs():
            for text in pair[:sides]:
                yield (text,)

    marks = ("lines", "both") if both_sides else ("lines",)
    count = sides * (grammar.size() or 0)
    return Corpus(spec, "", "en", lines, digest(*marks, grammar.fingerprint), size=lambda: count)


def _chars(spec: str, rest: str) -> Corpus:
    part = ""
    if rest.endswith((":train", ":valid")):
        rest, _, part = rest.rpartition(":")
    path = file_named(spec, rest)

    def lines() -> Iterator[str]:
        length = -1  # the last line feed is not counted
        for line in read_lines(path):
            length += len(line) + 1
            if length > _LONGEST_TEXT:
                raise UserError(f"{path}: more than {_LONGEST_TEXT:,} characters, too many for one text; split it")
            yield line

    def text() -> Pairs:
        characters = "\n".join(lines())
        nine_tenths = len(characters) * 9 // 10
        if part == "train":
            characters = characters[:nine_tenths]
        elif part == "valid":
            characters = characters[nine_tenths:]
        if characters:
            yield (characters,)

    fingerprint = digest("chars", part, file_digest(path))
    return Corpus(spec, "", "", lambda: not_empty(spec, text()), fingerprint, characters=True)


_SCHEMES: dict[str, Callable[[str, str], Corpus]] = {
    "lines": _lines,
    "chars": _chars,
    "grammar": _grammar,
    "text": _text,
    "tsv": _tsv,
    "parquet": open_parquet,
    "tfds": open_tfds,
    "trees": _trees,
}
