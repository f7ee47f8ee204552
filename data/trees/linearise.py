"""Trees as lines of symbols, so that a translator can learn to parse (section 6.3), and back.

A phrase is an opening symbol, what is in it, and a closing symbol that names it too; a word is its part of speech and
nothing else, for the sentence has the words; the outermost `TOP` is left out:

    (TOP (S (NP (DT the) (NN dog)) (VP (VBZ sleeps)) (. .)))   ->   (S (NP DT NN NP) (VP VBZ VP) . S)

This is the form of tensor2tensor's parser, with brackets in its symbols so that no label is mistaken for a tag.

`restore` makes a tree of any line and exactly the given words. Where the line is not a tree of so many words:

- a symbol with brackets that neither opens nor closes a phrase (`()`, `(NP)`, `(TOP`), or would open one too deep, is
  left out;
- a closing symbol closes its phrase and those still open inside it; where no such phrase is open, it is left out;
- tags beyond the last word are left out; words beyond the last tag are tagged NN, in the innermost phrase that the
  line leaves open, or else in its last phrase;
- phrases without words are left out; those still open at the end are closed.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from data.trees.tree import Tree
from data.trees.treebank import DEEPEST, TOP

SYMBOL = re.compile(r"\([^\s()]+|[^\s()]+\)")  # opens or closes a phrase
MISSING_TAG = "NN"


def linearise(tree: Tree) -> str:
    """Returns the line of a tree; a `TOP` itself is left out."""
    if isinstance(tree.children, str):
        return tree.label
    inside = " ".join(map(linearise, tree.children))
    return inside if tree.label == TOP else f"({tree.label} {inside} {tree.label})"


class _Phrase(NamedTuple):
    label: str
    children: "list[Tree | _Phrase]"


def restore(line: str, words: Sequence[str]) -> tuple[Tree, bool]:
    """Returns the tree of a line, under a `TOP`, over exactly these words; and whether it had to be repaired.

    `restore(linearise(tree), tree.leaves()) == (tree, False)` for every `treebank.cleaned` tree that is not as
    deep as `treebank.DEEPEST`.
    """
    top = _Phrase(TOP, [])
    still_open, remaining = [top], list(reversed(words))
    for symbol in line.split():
        if SYMBOL.fullmatch(symbol):
            if symbol[0] == "(":
                _open(still_open, symbol[1:])
            else:
                _close(still_open, symbol[:-1])
        elif remaining and "(" not in symbol and ")" not in symbol:
            still_open[-1].children.append(Tree(symbol, remaining.pop()))
    last = still_open[-1]
    if last is top and top.children and isinstance(top.children[-1], _Phrase):
        last = top.children[-1]
    last.children.extend(Tree(MISSING_TAG, word) for word in reversed(remaining))
    tree = Tree(TOP, _trees(top))
    return tree, linearise(tree) != " ".join(line.split())


def _open(still_open: list[_Phrase], label: str) -> None:
    if label != TOP and len(still_open) < DEEPEST - 1:  # one for the word, so that the tree can be read from a file
        phrase = _Phrase(label, [])
        still_open[-1].children.append(phrase)
        still_open.append(phrase)


def _close(still_open: list[_Phrase], label: str) -> None:
    depths = [depth for depth, phrase in enumerate(still_open) if depth and phrase.label == label]
    if depths:
        del still_open[depths[-1] :]


def _trees(phrase: _Phrase) -> tuple[Tree, ...]:
    """Returns the children of a phrase, without those that have no words."""
    trees = []
    for child in phrase.children:
        if isinstance(child, Tree):
            trees.append(child)
        elif inside := _trees(child):
            trees.append(Tree(child.label, inside))
    return tuple(trees)
