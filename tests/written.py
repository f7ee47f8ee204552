"""The commands that a page of the documentation tells readers to type, in their order, as words."""

import re
import shlex
from typing import NamedTuple

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL, YAML = "", "yaml"  # the languages of blocks with commands; in a YAML file they follow these keys:
YAML_COMMANDS = re.compile(r"^(?:setup|run): (.+)$", re.MULTILINE)
COMMAND_SPAN = re.compile(r"`((?:(?:\.venv/bin/)?python -m|make|vaswani|pip install|tensorboard|sbatch) [^`]+)`")
OPTIONAL = re.compile(r"\[(--[^\[\]]*)\]")  # [--flag=VALUE] is a flag that may be left out
COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
REDIRECTIONS = {"<", ">", ">>"}
NESTED = re.compile(r"--(?:command|wrap)=(.*)", re.DOTALL)  # an argument that is a command line itself


class Command(NamedTuple):
    """One command of a page.

    Attributes:
      line: as a shell would read it.
      place: where in the page, in characters.
      fenced: whether it stands in a block of its own, not within a sentence or a table.
      words: the program and its arguments, unquoted, without redirections.
      reads: files that are redirected to its standard input.
      writes: files that its standard output is redirected to.
    """

    line: str
    place: int
    fenced: bool
    words: list[str]
    reads: list[str]
    writes: list[str]


def commands(page: str) -> list[Command]:
    """Returns the commands of a page: of its blocks and of its code spans."""
    found: list[Command] = []
    for block in FENCE.finditer(page):
        if block[1] == SHELL:
            found += split(block[2], block.start(), fenced=True)
        elif block[1] == YAML:
            for line in YAML_COMMANDS.findall(block[2]):
                found += split(line, block.start(), fenced=True)
    prose = FENCE.sub(lambda block: " " * len(block[0]), page)
    for span in COMMAND_SPAN.finditer(prose):
        found += split(span[1].replace("\n", " "), span.start(), fenced=False)
    return sorted(found, key=lambda command: command.place)


def files(page: str) -> dict[str, str]:
    """Returns the Python files that a page tells readers to write: name and text."""
    pairs = re.findall(r"`(\w+\.py)`[^`]*:\n\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return dict(pairs)


def split(text: str, place: int, *, fenced: bool) -> list[Command]:
    """Returns the commands of a piece of shell, those included that are an argument of another.

    Raises:
      ValueError: a quotation is not closed.
    """
    plain = COMMENT.sub("", OPTIONAL.sub(r"\1", text.replace("\\\n", " ")))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="<>|&;\n")
    lexer.whitespace_split = True
    lexer.whitespace = " \t"
    lexer.commenters = ""
    found: list[Command] = []
    words: list[str] = []
    redirected: dict[str, list[str]] = {"<": [], ">": []}
    before = ""
    for token in [*lexer, "\n"]:
        if before in REDIRECTIONS:
            redirected[before[0]].append(token)
        elif token not in REDIRECTIONS and token.strip("|&;\n"):
            words.append(token)
        elif token not in REDIRECTIONS and words:
            found.append(Command(shlex.join(words), place, fenced, words, redirected["<"], redirected[">"]))
            words, redirected = [], {"<": [], ">": []}
        before = token
    nested = [match[1] for command in found for word in command.words if (match := NESTED.fullmatch(word))]
    return [*found, *(inner for line in nested for inner in split(line.replace("\n", " "), place, fenced=fenced))]
