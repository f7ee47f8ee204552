"""Pairs of sentences in Parquet files, the form in which Hugging Face has data sets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vaswani.data.corpus import Corpus, Pairs, digest, languages_of, not_empty
from vaswani.data.lines import file_digest
from vaswani.errors import UserError
from vaswani.files import local_path

_NESTED = "translation"  # the column with a field for each language in Hugging Face's data sets of pairs
_ROWS = 4096  # in memory at a time


def open_parquet(spec: str, rest: str) -> Corpus:
    """Returns the corpus of `parquet:REST`, which names two columns, or two fields of the column `translation`.

    Raises:
        UserError: there is no such file or column, or the column is no text. `pairs` raises it of a row that lacks a
            text, and of a damaged file.
    """
    source, target = languages_of(spec, rest)
    name, _, braces = rest.rpartition(":")
    if braces != f"{{{source},{target}}}":
        raise UserError(f"corpus {spec!r}: write parquet:FILE:{{en,de}}")
    paths = _paths(spec, name)
    fingerprint = digest("parquet", *map(file_digest, paths), source, target)
    size = 0
    for path in paths:
        with _open(path) as file:
            for language in (source, target):
                _column(path, file, language)
            size += file.metadata.num_rows

    def pairs() -> Pairs:
        for path in paths:
            yield from _read(path, source, target)

    return Corpus(spec, source, target, lambda: not_empty(spec, pairs()), fingerprint, size=lambda: size)


def _paths(spec: str, name: str) -> list[Path]:
    """Returns the file of this name; of a name with `*`, all files that it matches, in the order of their names."""
    path = local_path(name, f"corpus {spec!r}")
    if "*" not in path.name:
        return [path]
    paths = sorted(path.parent.glob(path.name))
    if not paths:
        raise UserError(f"{path}: no such file")
    return paths


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Opens a file for the body of the `with`, whose errors in reading it name it."""
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (OSError, ValueError, ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a Parquet file, or a damaged one ({reason})") from error


def _column(path: Path, file: Any, language: str) -> str:
    """Returns the name of a language's column; `translation.LANGUAGE` if that is one of the fields there."""
    from pyarrow import types

    columns = {field.name: field.type for field in file.schema_arrow}
    nested = columns.get(_NESTED)
    if nested is not None and types.is_struct(nested):
        del columns[_NESTED]
        columns |= {f"{_NESTED}.{field.name}": field.type for field in nested}
    column = next((name for name in (language, f"{_NESTED}.{language}") if name in columns), None)
    if column is None:
        raise UserError(f"{path}: no column {language!r}; its columns are {', '.join(columns)}")
    kind = columns[column]
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise UserError(f"{path}: column {column} is no text, but {kind}")
    return column


def _read(path: Path, source: str, target: str) -> Pairs:
    with _open(path) as file:
        columns = [_column(path, file, language) for language in (source, target)]
        number = 0
        for batch in file.iter_batches(_ROWS, columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield tuple(_text(f"{path}, row {number:,}", row, column) for column in columns)


def _text(place: str, row: dict[str, Any], column: str) -> str:
    """Returns a row's text as one line; a line feed inside it would become two lines in every file written from it."""
    if column in row:
        text = row[column]
    else:
        text = (row[_NESTED] or {}).get(column.removeprefix(f"{_NESTED}."))
    if text is None:
        raise UserError(f"{place}: no text in column {column}")
    return text.replace("\n", " ")
