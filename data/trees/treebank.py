"""Reads constituency trees in Penn brackets, on one or several lines: `( (S (NP-SBJ-1 (DT the) (NN dog)) ...))`.

`parse` yields the trees unchanged; `read_trees` yields them as parsers are trained and scored: without traces and
function tags, and with `TOP` as the outermost label.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vaswani.data.trees.tree import Tree
from vaswani.errors import UserError

TOP = "TOP"
TRACE = "-NONE-"
DEEPEST = 100  # nested brackets; sentences have about thirty, and Python stops recursion at a thousand calls

_OUTERMOST = ("", TOP, "ROOT", "S1")
_TOKENS = re.compile(r"[()]|[^\s()]+")


class BracketError(ValueError):
    """The text is not in Penn brackets; `line` counts from 1."""

    def __init__(self, line: int, reason: str):
        super().__init__(reason)
        self.line = line


class _Open(NamedTuple):
    """A bracket that is being read: the line on which it opens, and what it holds so far."""

    line: int
    contents: list[str | Tree]

    def tree(self) -> Tree:
        """Returns the tree of the whole bracket: its label, if it has one, and one word, or brackets."""
        first = self.contents[0] if self.contents else None
        label = first if isinstance(first, str) else ""
        children = self.contents[1:] if isinstance(first, str) else self.contents
        trees = tuple(child for child in children if isinstance(child, Tree))
        if len(trees) == len(children):
            return Tree(label, trees)
        word = next(child for child in children if isinstance(child, str))
        if len(children) > 1:
            raise BracketError(self.line, f"{word!r} beside other content: a bracket holds one word, or brackets")
        return Tree(label, word)


def parse(lines: Iterable[str]) -> Iterator[tuple[int, Tree]]:
    """Yields every outermost bracket, unchanged, with the number of the line on which it opens.

    An unlabelled bracket has the label "", an empty one no children.

    Raises:
        BracketError: brackets are unmatched or nest deeper than `DEEPEST`, text is outside brackets, or a word is not
            alone in its bracket.
    """
    waiting: list[_Open] = []
    for number, line in enumerate(lines, 1):
        for token in _TOKENS.findall(line):
            closed = _read(waiting, token, number)
            if closed and not waiting:
                yield closed.line, closed.tree()
    if waiting:
        raise BracketError(waiting[0].line, "the bracket that opens here is never closed")


def _read(waiting: list[_Open], token: str, number: int) -> _Open | None:
    """Adds a token of line `number` to the innermost of the brackets that are open; returns the one that it closes."""
    if token == "(":
        waiting.append(_Open(number, []))
        if len(waiting) > DEEPEST:
            raise BracketError(number, f"more than {DEEPEST} nested brackets")
        return None
    if not waiting:
        raise BracketError(number, f"{token!r} outside any bracket")
    if token != ")":
        waiting[-1].contents.append(token)
        return None
    closed = waiting.pop()
    if waiting:
        waiting[-1].contents.append(closed.tree())
    return closed


def read_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
    """Yields the cleaned trees of a file's lines.

    Raises:
        UserError: the brackets are malformed, or a tree has no words; the message has the file `name` and the line.
    """
    try:
        for number, tree in parse(lines):
            cleaned_tree = cleaned(tree)
            if not cleaned_tree.children:
                raise BracketError(number, "a tree without words")
            yield cleaned_tree
    except BracketError as error:
        raise UserError(f"{name}, line {error.line}: {error}") from error


def cleaned(tree: Tree) -> Tree:
    """Returns the tree under a `TOP`, without traces, phrases left empty by them, function tags and indices.

    An outermost bracket without a label, or labelled TOP, ROOT or S1, becomes that TOP; any other is put under one.
    """
    if isinstance(tree.children, str) or tree.label not in _OUTERMOST:
        return Tree(TOP, tuple(_cleaned(tree)))
    return Tree(TOP, _cleaned_children(tree.children))


def bare(label: str) -> str:
    """Returns a phrase's label up to its first hyphen or equals sign: NP for NP-SBJ-1, but -LRB- for -LRB-."""
    if label.startswith("-"):
        return label
    after_first, *_ = re.split("[-=]", label[1:], maxsplit=1)
    return label[:1] + after_first


def _cleaned(tree: Tree) -> list[Tree]:
    """Returns what replaces `tree`: nothing, the cleaned tree, or the children of an unlabelled bracket."""
    if isinstance(tree.children, str):
        return [] if tree.label == TRACE else [tree]
    children = _cleaned_children(tree.children)
    label = bare(tree.label)
    if not children or label in ("", TOP):
        return list(children)
    return [Tree(label, children)]


def _cleaned_children(children: tuple[Tree, ...]) -> tuple[Tree, ...]:
    return tuple(kept for child in children for kept in _cleaned(child))
