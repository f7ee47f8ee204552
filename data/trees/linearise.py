"""Linearises trees, so that a translation model can learn to parse (section 6.3), and restores them.

A phrase becomes an opening symbol, its contents, and a closing symbol that repeats its label; a word becomes its
part-of-speech tag alone, since the sentence has the words; the outermost `TOP` is omitted:

    (TOP (S (NP (DT the) (NN dog)) (VP (VBZ sleeps)) (. .)))   ->   (S (NP DT NN NP) (VP VBZ VP) . S)

This is the form of tensor2tensor's parser, with brackets in the symbols so that no label is mistaken for a tag.

`restore` makes a tree from any line and exactly the given words. If the line is not a tree over that many words:

- a symbol with brackets that neither opens nor closes a phrase (`()`, `(NP)`, `(TOP`), or nests too deeply, is dropped;
- a closing symbol closes its phrase and those still open inside it; if no such phrase is open, it is dropped;
- surplus tags are dropped; words beyond the last tag are tagged NN, in the innermost phrase that the line leaves open,
  or else in its last phrase;
- phrases without words are dropped; those still open at the end are closed.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from vaswani.data.trees.tree import Tree
from vaswani.data.trees.treebank import DEEPEST, TOP

SYMBOL = re.compile(r"\([^\s()]+|[^\s()]+\)")  # opens or closes a phrase
MISSING_TAG = "NN"


def linearise(tree: Tree) -> str:
    """Returns the linearised tree, without its `TOP`."""
    if isinstance(tree.children, str):
        return tree.label
    inside = " ".join(map(linearise, tree.children))
    return inside if tree.label == TOP else f"({tree.label} {inside} {tree.label})"


class _Phrase(NamedTuple):
    label: str
    children: "list[Tree | _Phrase]"


def restore(line: str, words: Sequence[str]) -> tuple[Tree, bool]:
    """Returns the tree of a line, under a `TOP`, over exactly these words, and whether it had to be repaired.

    `restore(linearise(tree), tree.leaves()) == (tree, False)` for every `treebank.cleaned` tree less deep than
    `treebank.DEEPEST`.
    """
    top = _Phrase(TOP, [])
    still_open = [top]
    remaining = list(reversed(words))
    for symbol in line.split():
        if SYMBOL.fullmatch(symbol):
            if symbol[0] == "(":
                _open(still_open, symbol[1:])
            else:
                _close(still_open, symbol[:-1])
        elif remaining and "(" not in symbol and ")" not in symbol:
            still_open[-1].children.append(Tree(symbol, remaining.pop()))
    innermost = still_open[-1]
    if innermost is top and top.children and isinstance(top.children[-1], _Phrase):
        innermost = top.children[-1]
    innermost.children.extend(Tree(MISSING_TAG, word) for word in reversed(remaining))
    tree = Tree(TOP, _trees(top))
    return tree, linearise(tree) != " ".join(line.split())


def _open(still_open: list[_Phrase], label: str) -> None:
    if label != TOP and len(still_open) < DEEPEST - 1:  # one level for the word, so that `parse` accepts the tree
        phrase = _Phrase(label, [])
        still_open[-1].children.append(phrase)
        still_open.append(phrase)


def _close(still_open: list[_Phrase], label: str) -> None:
    depths = [depth for depth, phrase in enumerate(still_open) if depth and phrase.label == label]
    if depths:
        del still_open[depths[-1] :]


def _trees(phrase: _Phrase) -> tuple[Tree, ...]:
    """Returns the children of a phrase that have words."""
    trees = []
    for child in phrase.children:
        if isinstance(child, Tree):
            trees.append(child)
        elif inside := _trees(child):
            trees.append(Tree(child.label, inside))
    return tuple(trees)
