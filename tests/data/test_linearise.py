"""Linearising and restoring trees: exact for any tree, the right words from any line, one subword per symbol."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaswani.data.sources import open_corpus
from vaswani.data.tokenizer import Tokenizer
from vaswani.data.trees.linearise import SYMBOL, linearise, restore
from vaswani.data.trees.tree import Tree
from vaswani.data.trees.treebank import TOP, read_trees

LABELS = st.sampled_from(["S", "NP", "VP", "X", "NN"])
TAGS = st.sampled_from(["NN", "S", ".", "``", "''", ":", "PRP$", "-LRB-", "$", "#"])
WORDS = st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters="()"), min_size=1, max_size=3)
LEAVES = st.builds(Tree, TAGS, WORDS)
NODES = st.recursive(
    LEAVES, lambda inner: st.builds(Tree, LABELS, st.lists(inner, min_size=1, max_size=4).map(tuple)), max_leaves=20
)
TREES = st.builds(Tree, st.just(TOP), st.lists(NODES, min_size=1, max_size=3).map(tuple))
GOOD, BAD = ["(S", "(NP", "(VP", "S)", "NP)", "VP)", "NN", "."], ["(", ")", "()", "(NP)", "((", "a(b", "(TOP", "TOP)"]
SYMBOLS = st.sampled_from(GOOD + BAD)


def repaired(line: str, words: str) -> str:
    tree, was_repaired = restore(line, words.split())
    assert was_repaired == (linearise(tree) != line)
    return tree.bracketed().removeprefix("(TOP ").removesuffix(")")


def test_the_form_is_that_of_tensor2tensor_with_brackets() -> None:
    (tree,) = read_trees(["(TOP (S (NP (DT the) (NN dog)) (VP (VBZ sleeps)) (. .)))"], "x")
    assert linearise(tree) == "(S (NP DT NN NP) (VP VBZ VP) . S)"


@given(TREES)
def test_the_round_trip_is_exact(tree: Tree) -> None:
    assert restore(linearise(tree), tree.leaves()) == (tree, False)


@given(st.lists(SYMBOLS, max_size=40).map(" ".join), st.lists(WORDS, max_size=8))
def test_any_line_becomes_a_tree_of_the_words(line: str, words: list[str]) -> None:
    tree, was_repaired = restore(line, words)
    assert tree.leaves() == words and tree.label == TOP
    assert was_repaired == (linearise(tree) != line)
    assert restore(linearise(tree), words) == (tree, False)
    if words:
        assert list(read_trees([tree.bracketed()], "x")) == [tree]  # it has no empty phrase


@pytest.mark.parametrize(
    ("line", "tree"),
    [
        ("(S (NP DT NN NP) S)", "(S (NP (DT a) (NN b)))"),
        ("(S (NP DT NN", "(S (NP (DT a) (NN b)))"),  # cut off
        ("(S (NP DT", "(S (NP (DT a) (NN b)))"),  # cut off before the last word
        ("(S (NP DT NP) S)", "(S (NP (DT a)) (NN b))"),  # a tag too few
        ("(S DT NN VB JJ S)", "(S (DT a) (NN b))"),  # tags too many
        ("(S (NP DT NN S)", "(S (NP (DT a) (NN b)))"),  # a phrase closed with the one around it
        ("(S DT VP) NN S)", "(S (DT a) (NN b))"),  # nothing of that name to close
        ("(S (VP VP) DT NN S)", "(S (DT a) (NN b))"),  # no words inside
        ("(S (NP) DT () NN ) S)", "(S (DT a) (NN b))"),  # neither opens nor closes
        ("(TOP (S DT TOP) NN S) TOP)", "(S (DT a) (NN b))"),  # what is never written
        ("", "(NN a) (NN b)"),
        ("DT", "(DT a) (NN b)"),
    ],
)
def test_repairs_follow_the_rules(line: str, tree: str) -> None:
    assert repaired(line, "a b") == tree


def test_endless_opening_is_cut() -> None:
    tree, was_repaired = restore("(S " * 5000 + "NN", ["a"])
    assert was_repaired and tree.leaves() == ["a"]
    assert list(read_trees([tree.bracketed()], "x")) == [tree]


def test_every_bracket_is_one_subword_and_lines_survive(tmp_path: Path) -> None:
    corpus = open_corpus("trees:grammar:train:400")
    rare = "(UCP (QP CD QP) -LRB- PRP$ `` '' : $ # UCP)"
    lines = [text for pair in corpus.pairs() for text in pair]
    tokenizer = Tokenizer.train([*lines, rare], 600, tmp_path / "x.model", symbols=corpus.symbols)
    for line in (*lines[1::2], rare):
        ids = tokenizer.encode(line)
        assert tokenizer.decode(ids) == line
        pieces = tokenizer.pieces(ids)
        assert [piece for piece in pieces if SYMBOL.search(piece)] == [f"▁{symbol}" for symbol in SYMBOL.findall(line)]
    symbols = [len(line.split()) for line in lines[1::2]]
    assert sum(len(tokenizer.encode(line)) for line in lines[1::2]) < 1.05 * sum(symbols)
