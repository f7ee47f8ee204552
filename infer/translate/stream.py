"""Translates a stream of lines: chunks of them in, the output for each chunk out."""

import codecs
import math
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar, NamedTuple

from vaswani.data.lines import LONGEST_LINE, check_has_line_feeds, is_blank
from vaswani.errors import UserError
from vaswani.infer.translate.consensus import consensus
from vaswani.infer.translate.nbest import entry
from vaswani.infer.translate.required import Required
from vaswani.infer.translate.translator import (
    Translation,
    Translator,
    count_several,
    note_several,
    note_unknown,
)
from vaswani.numbers import pluralize
from vaswani.progress import Progress

_BLOCK = 1 << 16  # bytes
_PATIENCE = 0.5  # seconds: what writes without a pause is never cut short, so that it is translated in the same batches
EMPTY_NOTES = 5  # lines without a translation that are explained one by one


class Arriving:
    """The lines of a pipe, which may come slowly; it ends with one that is longer than `chunks` allows."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, True)  # whatever the program at the other end has made of it
        self._lines: deque[bytes] = deque()  # read, and not yet yielded

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        while block := os.read(self._descriptor, _BLOCK):
            *whole, rest = (rest + block).split(b"\n")
            self._lines.extend(line + b"\n" for line in whole)
            while self._lines:
                yield self._lines.popleft()
            if len(rest) > LONGEST_LINE:
                break
        if rest:
            yield rest

    def is_idle(self) -> bool:
        """Returns whether no further line comes for `_PATIENCE` seconds."""
        return not self._lines and not select.select([self._descriptor], [], [], _PATIENCE)[0]


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Returns the lines of a file; one that is longer than `chunks` allows comes in parts, to not fill the memory."""
    return iter(lambda: file.readline(LONGEST_LINE + 1), b"")


def chunks(source: Iterable[bytes], size: int, first: int | None = None) -> Iterator[list[str]]:
    """Yields lines of UTF-8 text without their line feeds, `size` at a time, or those that have come if no more do.

    `first` is the size of the first chunk, if it is another.

    Raises:
      UserError: a line is not UTF-8, or has more than `LONGEST_LINE` bytes; the lines before it are yielded first. Or
        the text has carriage returns and no line feed.
    """
    lines: list[str] = []
    wanted = first or size
    for number, line in enumerate(source, 1):
        text = line
        if number == 1:  # as `data.lines.read_lines`
            text = line.removeprefix(codecs.BOM_UTF8)
            check_has_line_feeds(text, "standard input")
        try:
            lines.append(_decoded(text.removesuffix(b"\n")))
        except UserError as error:
            if lines:
                yield lines
            raise UserError(f"standard input, line {number}: {error}") from error
        if len(lines) == wanted or (isinstance(source, Arriving) and source.is_idle()):
            yield lines
            lines = []
            wanted = size
    if lines:
        yield lines


def _decoded(line: bytes) -> str:
    if len(line) > LONGEST_LINE:
        raise UserError(f"longer than {LONGEST_LINE:,} bytes; is this text?")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 (byte 0x{line[error.start]:02x} at column {error.start + 1})") from error


def by_line(source: Iterable[bytes], answer: Callable[[str], str]) -> Iterator[bytes]:
    """Yields the answer to each line of `source`; a `UserError` that it raises also names the line."""
    for number, (line,) in enumerate(chunks(source, 1), 1):
        try:
            answered = answer(line.removesuffix("\r"))
            yield f"{answered}\n".encode()
        except UserError as error:
            raise UserError(f"standard input, line {number}: {error}") from error


def formatted(translation: Translation, line: int, nbest: int, scores: bool) -> str:
    """Returns the output for one line; see the top of infer/translate/__main__.py."""
    if nbest > 1:
        return "".join(f"{entry(line, one.text, one.score)}\n" for one in translation.hypotheses)
    best = translation.hypotheses[0]
    return f"{best.text}\t{best.score:.6f}\n" if scores else f"{best.text}\n"


class Chunk(NamedTuple):
    """Translated lines: the output, and of each text in them its line, from 1, and its translation."""

    output: str
    cells: list[tuple[int, str, Translation]]


@dataclass(frozen=True)
class Lines:
    """Translates whole lines.

    With `require`, a line is TEXT <tab> PREFIX ("prefix" or "characters") or TEXT <tab> PHRASE <tab> ... ("phrases").
    With `mbr`, a metric of `infer.translate.consensus`, a line's only output is the consensus of its translations, in
    `language`.
    """

    translator: Translator
    params: Any
    nbest: int
    scores: bool
    require: str = ""
    mbr: str = ""
    language: str = ""
    unit: ClassVar[str] = "texts"

    def translate(self, lines: list[str], first_line: int, report: Callable[[int], None]) -> Chunk:
        """Translates lines, the first of which has the number `first_line`; `report` gets how many are done."""
        texts, required = _with_required(lines, self.require)
        translations = self.translator.translate(
            self.params, texts, required=required, first_line=first_line, progress=report
        )
        nbest = self.nbest
        if self.mbr:
            translations = [agreed(translation, self.mbr, self.language) for translation in translations]
            nbest = 1
        numbers = range(first_line, first_line + len(lines))
        outputs = [
            formatted(translation, number - 1, nbest, self.scores)
            for number, translation in zip(numbers, translations, strict=True)
        ]
        return Chunk("".join(outputs), list(zip(numbers, texts, translations, strict=True)))


@dataclass(frozen=True)
class Columns:
    """Translates these columns, from 1, of tab-separated lines, and keeps the others."""

    translator: Translator
    params: Any
    columns: Sequence[int]
    unit: ClassVar[str] = "cells"

    def translate(self, lines: list[str], first_line: int, report: Callable[[int], None]) -> Chunk:
        """Translates lines as `Lines.translate` does, but reports nothing before all columns are done.

        Raises:
          UserError: a line has fewer columns.
        """
        rows = [line.split("\t") for line in lines]
        _check_columns(rows, max(self.columns), first_line)
        numbers = range(first_line, first_line + len(lines))
        cells: list[tuple[int, str, Translation]] = []
        for column in self.columns:
            texts = [row[column - 1].removesuffix("\r") for row in rows]
            translations = self.translator.translate(self.params, texts, first_line=first_line)
            cells += zip(numbers, texts, translations, strict=True)
            for row, translation in zip(rows, translations, strict=True):
                row[column - 1] = translation.text.replace("\t", " ")
        return Chunk("".join("\t".join(row) + "\n" for row in rows), cells)


def translate_stream(
    work: Lines | Columns,
    source: Iterable[bytes],
    *,
    chunk: int,
    first: int | None = None,
    total: int | None = None,
    interactive: bool = False,
) -> Iterator[bytes]:
    """Yields the output for each chunk of the lines of `source`, `total` if known; `interactive` shows no progress.

    `first` is the size of the first chunk, if it is another.
    Of a text whose translation is empty, a note on stderr says why; of many such texts, how many they are.

    Raises:
      UserError: a line is not UTF-8, is too long or cannot be translated; the lines before its chunk are yielded first.
    """
    done = 0
    empty = 0
    unknown = 0
    several = 0
    texts_read = 0

    def report(rows: int) -> None:
        progress.update(done + rows)

    with Progress("translating", "lines", total=total, enabled=not interactive) as progress:
        for lines in chunks(source, chunk, first):
            output, cells = work.translate(lines, done + 1, report)
            yield output.encode()
            texts = [text for _, text, _ in cells]
            texts_read += len(texts)
            unknown += work.translator.tokenizer.unknown(texts)
            if not work.translator.split_sentences:
                several += count_several(texts)
            empty = _note_empty(cells, empty)
            done += len(lines)
            progress.update(done)
        without = f", {pluralize(empty, work.unit)} without a translation" if empty else ""
        progress.finish(f"{pluralize(done, 'lines')}{without}")
    note_unknown(unknown)
    note_several(several, texts_read, "--split_sentences")


def _with_required(lines: list[str], require: str) -> tuple[list[str], list[Required]]:
    """Returns the texts of lines, and what is required of their translations; see `Lines`."""
    if not require:
        return [line.removesuffix("\r") for line in lines], []
    texts = []
    required = []
    for line in lines:
        text, *cells = line.removesuffix("\r").split("\t")
        texts.append(text)
        if require != "phrases":
            required.append(Required(prefix=" ".join(cells), may_go_on=require == "characters"))
        else:
            required.append(Required(phrases=tuple(filter(None, cells))))
    return texts, required


def _check_columns(rows: list[list[str]], last: int, first_line: int) -> None:
    """Raises a `UserError` unless each line has column `last`."""
    for line, row in enumerate(rows, first_line):
        if len(row) < last:
            raise UserError(f"standard input, line {line}: {pluralize(len(row), 'columns')}; --columns names {last}")


def _note_empty(cells: list[tuple[int, str, Translation]], empty: int) -> int:
    """Says on stderr why texts have no translation, of the first `EMPTY_NOTES` of them; returns how many there are.

    `empty` is how many there were before these.
    """
    for line, text, translation in cells:
        if not is_blank(text) and not translation.text:
            empty += 1
            if empty <= EMPTY_NOTES:
                print(f"note: line {line}: {why_empty(translation)}", file=sys.stderr)
    return empty


def agreed(translation: Translation, metric: str, language: str) -> Translation:
    """Returns only the consensus of the hypotheses, by a metric of `infer.translate.consensus`."""
    texts = [hypothesis.text for hypothesis in translation.hypotheses]
    return Translation((translation.hypotheses[consensus(texts, metric, language)],))


def why_empty(translation: Translation) -> str:
    """Explains why the translation of a line of text has none."""
    best = translation.hypotheses[0]
    if math.isinf(best.score):
        return "no translation: the parameters of this run are not finite, or the search allows no output"
    if best.tokens:
        return "the translation is empty: the model wrote only subwords without text, such as unknown ones"
    if best.log_prob == 0:
        return "the translation is empty: the tokenizer keeps nothing of this line"
    return (
        "the translation is empty: the model's best output is to end at once, as it may be for text unlike any that "
        "it was trained on; a plain search with --min_length=1 forbids that"
    )


def prompted(source: Any) -> Iterator[bytes]:
    """Yields the lines that are typed on a terminal, with a prompt on stderr before each, until Ctrl-D."""
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = source.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line


def write(outputs: Iterable[bytes]) -> None:
    """Writes each output to standard output at once."""
    for output in outputs:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()
