"""Corpora: one specification string names any parallel corpus, or a text for a language model.

| specification | corpus |
|---|---|
| `grammar:SPLIT[:COUNT][:{en,de}]` | the built-in grammar; SPLIT is train, valid, test, a harder one, rich:train, ... |
| `grammar:SPLIT[:COUNT]:{en,PROPERTY}` | its sentences, and the tense, number or clause of each (`data.properties`) |
| `text:PREFIX.{en,de}[.gz]` | two files, one sentence per line; line i of one translates line i of the other |
| `tsv:FILE[:{en,de}]` | lines of source, tab, target (more columns are ignored); the braces name columns 1, 2 |
| `tfds:NAME[:SPLIT]:{en,de}` | a translation data set of tensorflow-datasets, or a folder that it prepared |
| `trees:FILE`, `trees:FILE.gz` | a treebank in Penn brackets: sentences, and their linearised trees (`data.trees`) |
| `trees:grammar:SPLIT[:COUNT]` | the English side of the built-in grammar and its trees |
| `lines:FILE`, `lines:FILE.gz` | a text, each of whose lines is a sequence |
| `lines:grammar:SPLIT[:COUNT]` | the English side of the built-in grammar; with `:{en,de}` both sides, in turn |
| `scan:SPLIT:PART` | SCAN (`data/scan.py`); SPLIT is simple, length, length-N or around-right, PART train or test |
| `chars:FILE[.gz][:PART]` | a text as one sequence of characters; PART is train, its first nine tenths, or valid |

Without COUNT there are 100,000 sentences of a training split and 1,000 of any other.

The source language comes first, so `{de,en}` reverses the direction of `grammar:`, `text:` and `tfds:`. Only a line
feed ends a line (a carriage return before it is dropped): other separators, such as U+2028 or U+0085, are part of a
sentence. A line has at most 16 MiB. FILE.gz is read where there is no FILE.
"""

import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from base.errors import UserError
from base.files import expanded
from base.numbers import whole
from data import scan
from data.lines import count_lines, file_digest, read_lines
from data.properties import PROPERTIES
from data.trees.linearise import SYMBOL, linearise
from data.trees.tree import Tree
from data.trees.treebank import cleaned, read_trees

Pairs = Iterator[tuple[str, ...]]  # source and target, or a text alone
_SIZES = {  # sentences of the grammar's splits
    "train": 100_000,
    "valid": 1_000,
    "test": 1_000,
    "train_seen": 100_000,
    "deeper": 1_000,
    "longer": 1_000,
    "unseen": 1_000,
    "rich:valid": 1_000,
    "rich:test": 1_000,
    "rich:train": 100_000,
}
_MOST = 100_000_000  # sentences of the grammar: days of work
_GRAMMAR_FILES = ("grammar/*.py", "grammar/words/*.tsv")
_GRAMMAR_SPLITS = ", ".join(_SIZES)
_BRACES = re.compile(r"\{([^{},]+),([^{},]+)\}")


class Corpus(NamedTuple):
    """A corpus, read afresh by each call of `pairs`; `fingerprint` changes with the text or the direction.

    Words that match `symbols` become one subword each, however rare they are. A text alone has no source language; with
    `characters` it is one sequence without an end, and its characters are the vocabulary. `size` returns the number
    of records, None where only reading them all would tell.
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


def open_corpus(spec: str) -> Corpus:
    """Opens the corpus that `spec` names; `UserError` if there is none. Its `pairs` raises errors in the text."""
    scheme, colon, rest = spec.partition(":")
    if not colon or scheme not in _SCHEMES:
        similar = difflib.get_close_matches(scheme, _SCHEMES, n=1) if colon else []
        hint = f"; did you mean {similar[0]}:?" if similar else ""
        known = ", ".join(f"{name}:" for name in _SCHEMES)
        raise UserError(f"corpus {spec!r}: unknown scheme; the known ones are {known}{hint}")
    return _SCHEMES[scheme](spec, rest)


def _languages(spec: str, text: str) -> tuple[str, str]:
    braces = _BRACES.findall(text)
    if len(braces) != 1 or braces[0][0] == braces[0][1]:
        raise UserError(
            f"corpus {spec!r}: name the two languages once, source first, as in {{en,de}} (quoted, in a shell)"
        )
    return braces[0]


def _not_empty(spec: str, pairs: Pairs) -> Pairs:
    first = next(pairs, None)
    if first is None:
        raise UserError(f"corpus {spec!r} is empty: it has no sentences")
    yield first
    yield from pairs


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# Files


def _file(spec: str, name: str) -> Path:
    """Returns the file of this name, or the compressed one in its place."""
    path = expanded(name, f"corpus {spec!r}")
    compressed = Path(f"{path}.gz")
    return compressed if compressed.is_file() and not path.exists() else path


def _text(spec: str, rest: str) -> Corpus:
    source, target = _languages(spec, rest)
    before, after = rest.split(f"{{{source},{target}}}")
    source_path = _file(spec, before + source + after)
    target_path = _file(spec, before + target + after)

    def pairs() -> Pairs:
        sources = read_lines(source_path)
        targets = read_lines(target_path)
        for number, (left, right) in enumerate(itertools.zip_longest(sources, targets), 1):
            if left is None or right is None:
                source_count = number - 1 if left is None else number + _count_left(sources)
                target_count = number - 1 if right is None else number + _count_left(targets)
                raise UserError(
                    f"unequal line counts: {source_path} has {source_count} lines, {target_path} has {target_count};"
                    " line i of one must translate line i of the other"
                )
            yield left, right

    fingerprint = _digest("text", file_digest(source_path), file_digest(target_path))
    return Corpus(
        spec,
        source,
        target,
        lambda: _not_empty(spec, pairs()),
        fingerprint,
        size=lambda: count_lines(source_path),
    )


def _count_left(lines: Iterator[str]) -> int:
    return sum(1 for _ in lines)


def _tsv(spec: str, rest: str) -> Corpus:
    before, colon, after = rest.rpartition(":")
    if colon and after.startswith("{"):
        source, target = _languages(spec, after)
        path = _file(spec, before)
    else:
        source, target = ("en", "de")
        path = _file(spec, rest)

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
        lambda: _not_empty(spec, pairs()),
        _digest("tsv", file_digest(path)),
        size=lambda: count_lines(path),
    )


# The built-in grammar


def _grammar(spec: str, rest: str) -> Corpus:
    from data.grammar import sentences as grammar

    match = re.fullmatch(r"((?:rich:)?\w+)(?::(\d+))?(?::(\{.*\}))?", rest)
    split = match[1] if match else ""
    if not match or split not in _SIZES:
        raise UserError(f"corpus {spec!r}: write grammar:SPLIT[:COUNT][:{{en,de}}], SPLIT one of {_GRAMMAR_SPLITS}")
    count = _count(spec, split, match[2])
    source, target = _languages(spec, match[3] or "{en,de}")
    if source not in ("en", "de") or target not in ("en", "de", *PROPERTIES):
        raise UserError(f"corpus {spec!r}: the grammar knows {{en,de}} and {{de,en}} only, and {{en,tense}} and so on")

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
    fingerprint = _digest("grammar", *parts)
    return Corpus(spec, source, target, lambda: _not_empty(spec, pairs()), fingerprint, size=lambda: count)


def _count(spec: str, split: str, given: str | None) -> int:
    """Returns the number of sentences, by default that of the split."""
    count = whole(given) if given else _SIZES[split]
    if count is None or count > _MOST:
        raise UserError(f"corpus {spec!r}: the grammar makes up to {_MOST:,} sentences")
    return count


def _code_digest(*patterns: str) -> str:
    """Returns a digest of the files in this folder that generate a corpus's text: code, and tables of words."""
    package = Path(__file__).parent
    paths = [path for pattern in patterns for path in sorted(package.glob(pattern))]
    return _digest(*map(file_digest, paths))


# Treebanks


def _trees(spec: str, rest: str) -> Corpus:
    match = re.fullmatch(r"grammar:((?:rich:)?\w+)(?::(\d+))?", rest)
    if match and match[1] in _SIZES:
        split = match[1]
        count = _count(spec, split, match[2])
        fingerprint = _digest("trees grammar", _code_digest(*_GRAMMAR_FILES, "trees/*.py"), split, str(count))
        return _treebank(spec, lambda: _grammar_trees(split, count), fingerprint)
    if rest.startswith("grammar:") or not rest:
        raise UserError(
            f"corpus {spec!r}: write trees:FILE or trees:grammar:SPLIT[:COUNT], SPLIT one of {_GRAMMAR_SPLITS}"
        )
    path = _file(spec, rest)
    fingerprint = _digest("trees", _code_digest("trees/*.py"), file_digest(path))
    return _treebank(spec, lambda: read_trees(read_lines(path), str(path)), fingerprint)


def _treebank(spec: str, trees: Callable[[], Iterator[Tree]], fingerprint: str) -> Corpus:
    def pairs() -> Pairs:
        for tree in trees():
            yield " ".join(tree.leaves()), linearise(tree)

    return Corpus(spec, "en", "trees", lambda: _not_empty(spec, pairs()), fingerprint, SYMBOL)


def _grammar_trees(split: str, count: int) -> Iterator[Tree]:
    from data.grammar import sentences as grammar

    for index in range(count):
        yield cleaned(grammar.pair(split, index).tree)


# SCAN


def _scan(spec: str, rest: str) -> Corpus:
    split, _, part = rest.partition(":")
    if not scan.is_split(split) or part not in ("train", "test"):
        splits = ", ".join(scan.SPLITS)
        raise UserError(f"corpus {spec!r}: write scan:SPLIT:train or scan:SPLIT:test, SPLIT one of {splits}, length-N")
    fingerprint = _digest("scan", _code_digest("scan.py"), rest)
    return Corpus(spec, "en", "en", lambda: scan.pairs(split, part), fingerprint, re.compile(scan.WORDS))


# Texts for language models


def _lines(spec: str, rest: str) -> Corpus:
    if rest.startswith("grammar:"):
        return _grammar_lines(spec, rest.removeprefix("grammar:"), both_sides=rest.endswith("}"))
    path = _file(spec, rest)

    def lines() -> Pairs:
        return ((line,) for line in read_lines(path))

    return Corpus(
        spec,
        "",
        "",
        lambda: _not_empty(spec, lines()),
        _digest("lines", file_digest(path)),
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
    return Corpus(spec, "", "en", lines, _digest(*marks, grammar.fingerprint), size=lambda: count)


def _chars(spec: str, rest: str) -> Corpus:
    part = ""
    if rest.endswith((":train", ":valid")):
        rest, _, part = rest.rpartition(":")
    path = _file(spec, rest)

    def text() -> Pairs:
        characters = "\n".join(read_lines(path))
        nine_tenths = len(characters) * 9 // 10
        if part == "train":
            characters = characters[:nine_tenths]
        elif part == "valid":
            characters = characters[nine_tenths:]
        if characters:
            yield (characters,)

    fingerprint = _digest("chars", part, file_digest(path))
    return Corpus(spec, "", "", lambda: _not_empty(spec, text()), fingerprint, characters=True)


# tensorflow-datasets: the one place that imports it; TensorFlow itself at most in `download`


def _tfds(spec: str, rest: str) -> Corpus:
    name, split, source, target = _tfds_parts(spec, rest)
    builder = _tfds_prepared(spec, name)
    try:
        info = builder.info.splits[split]
    except (KeyError, ValueError) as error:
        known = ", ".join(builder.info.splits)
        raise UserError(f"corpus {spec!r}: no split {split!r}; the splits of {name} are {known}") from error
    missing = [language for language in (source, target) if language not in builder.info.features]
    if missing:
        known = ", ".join(builder.info.features)
        raise UserError(f"corpus {spec!r}: no language {missing[0]!r}; the languages of {name} are {known}")

    stored = builder.info.file_format.value
    if stored != "array_record":
        raise UserError(f"corpus {spec!r} is stored as {stored}: prepare it with file_format='array_record'")

    def pairs() -> Pairs:
        for example in builder.as_data_source(split):
            yield _one_line(example[source]), _one_line(example[target])

    fingerprint = _digest(
        "tfds", builder.info.full_name, str(split), str(info.num_examples), str(info.num_bytes), source, target
    )
    return Corpus(spec, source, target, lambda: _not_empty(spec, pairs()), fingerprint)


def _one_line(text: bytes) -> str:
    """Decodes a sentence; a line feed inside it would become two lines in every file written from it."""
    return text.decode("utf-8", "replace").replace("\n", " ")


def _tfds_parts(spec: str, rest: str) -> tuple[str, str, str, str]:
    """Returns name, split, source and target. The direction is required: tfds names list languages in any order."""
    match = re.fullmatch(r"([^:{}]+)(?::([^{}]+?))?(?::(\{.*\}))?", rest)
    if not match:
        raise UserError(f"corpus {spec!r}: write tfds:NAME[:SPLIT]:{{en,de}}")
    return match[1], match[2] or "train", *_languages(spec, match[3] or "")


def _import_tfds(spec: str) -> Any:
    try:
        return importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise UserError(f"corpus {spec!r} needs tensorflow-datasets: pip install -e '.[prep]'") from error


def _tfds_prepared(spec: str, name: str) -> Any:
    tfds = _import_tfds(spec)
    try:
        folder = _file(spec, name)
        if folder.is_dir():
            return tfds.builder_from_directory(folder)
        return tfds.core.read_only_builder.builder_from_files(name)
    except (OSError, ValueError) as error:  # tfds's not-found errors are subclasses of these
        raise UserError(
            f"corpus {spec!r} is not on this machine: python -m data.prepare downloads it"
            " (first: pip install -e '.[prep]')"
        ) from error


def download(spec: str) -> None:
    """Downloads and prepares a `tfds:` corpus if it is not on this machine; does nothing for other corpora.

    The builders of tensorflow-datasets may import TensorFlow, so only `python -m data.prepare` calls this.
    """
    scheme, _, rest = spec.partition(":")
    if scheme != "tfds":
        return
    name, *_ = _tfds_parts(spec, rest)
    tfds = _import_tfds(spec)
    with contextlib.suppress(UserError):
        _tfds_prepared(spec, name)
        return
    try:
        # Without TensorFlow, tfds knows a builder only once its module is imported.
        module = name.split("/")[0].removesuffix("_translate")
        with contextlib.suppress(ImportError):
            importlib.import_module(f"tensorflow_datasets.translate.{module}")
        tfds.builder(name, file_format="array_record").download_and_prepare()
    except Exception as error:  # anything that network, archives or missing imports may raise
        _refuse(spec, name, error)


def _refuse(spec: str, name: str, error: Exception) -> NoReturn:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, ImportError) or importlib.util.find_spec("tensorflow") is None:
        message = f"corpus {spec!r} cannot be prepared with what is installed: pip install -e '.[prep]' ({reason})"
    else:
        message = f"corpus {spec!r}: tensorflow-datasets could not prepare {name} ({reason})"
    raise UserError(message) from error


_SCHEMES: dict[str, Callable[[str, str], Corpus]] = {
    "lines": _lines,
    "chars": _chars,
    "grammar": _grammar,
    "text": _text,
    "tsv": _tsv,
    "tfds": _tfds,
    "trees": _trees,
    "scan": _scan,
}
