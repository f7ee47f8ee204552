"""Text files, line by line."""

import codecs
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from vaswani.data.corpora import advice
from vaswani.errors import UserError
from vaswani.files import local_path, open_regular, sha256

_BLOCK = 1 << 20  # bytes
LONGEST_LINE = 1 << 24  # bytes; a file without line feeds must not fill the memory

# White space, control characters, and Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt).
_SHOWS_NOTHING = re.compile(
    r"[\s\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*"
)
_STREAM = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/\d+")  # the latter is what a shell makes of <(COMMAND)


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a plain or gzip file, of standard input (/dev/stdin) or a command's output (<(COMMAND)).

    Raises:
        UserError: naming the file and the line: it cannot be read or unpacked, is a device or a named pipe, is not
            UTF-8, has a line of more than `LONGEST_LINE` bytes, or carriage returns and no line feed.
    """
    path = local_path(path, str(path))
    number = 0
    try:
        with _open(path) as file:
            lines = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            while line := lines.readline(LONGEST_LINE + 1):
                number += 1
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)  # as Windows' editors write it
                    check_has_line_feeds(line, str(path))
                if len(line) - line.endswith(b"\n") > LONGEST_LINE:
                    raise UserError(f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes; is this a text file?")
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        bad = f"byte 0x{error.object[error.start]:02x} at position {error.start + 1}"
        raise UserError(f"{path}, line {number}: not valid UTF-8 ({bad}); convert the file to UTF-8") from error
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:  # the last two are what a damaged .gz raises
        where = f", after line {number}" if number else ""
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}{where}: cannot be read ({reason})") from error


def check_has_line_feeds(first_line: bytes, name: str) -> None:
    """Raises `UserError` if the first line of a text is all of it, with several lines that carriage returns end."""
    if not first_line.endswith(b"\n") and b"\r" in first_line[:-1]:
        raise UserError(
            f"{name}: its lines end in bare carriage returns; write line feeds instead, as with tr '\\r' '\\n'"
        )


def is_blank(line: str) -> bool:
    """Returns whether a line shows nothing: white space, control and ignorable characters, such as soft hyphens."""
    return _SHOWS_NOTHING.fullmatch(line) is not None


def count_lines(path: Path) -> int | None:
    """Returns the number of lines of a plain file; None for any other, which would take as long to count as to read."""
    path = local_path(path, str(path))
    if path.suffix == ".gz" or not path.is_file():
        return None
    with path.open("rb") as file:
        return lines_left(file.fileno())


def lines_left(descriptor: int) -> int | None:
    """Returns how many lines of an open file are still to be read, and reads none; None of a pipe or a terminal."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    count = 0
    last = b"\n"
    while block := os.pread(descriptor, _BLOCK, place):
        count += block.count(b"\n")
        place += len(block)
        last = block[-1:]
    return count if last == b"\n" else count + 1


def _open(path: Path) -> io.BufferedReader:
    return path.open("rb") if _STREAM.fullmatch(str(path)) else open_regular(path)


def file_digest(path: Path) -> str:
    """Returns the SHA-256 of a file; `UserError` if it cannot be read."""
    path = local_path(path, str(path))
    try:
        return sha256(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file{advice(path)}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
