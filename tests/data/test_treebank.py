"""Penn brackets: the layouts of treebanks, what cleaning removes, and a one-line error for every kind of damage."""

from pathlib import Path

import pytest

from tests.data.test_sources import write
from vaswani.data.grammar.sentences import pair
from vaswani.data.sources import open_corpus
from vaswani.data.trees.tree import Tree
from vaswani.data.trees.treebank import DEEPEST, bare, parse, read_trees
from vaswani.errors import UserError

WSJ = """
( (S
    (NP-SBJ-1 (NNP Mr.) (NNP Vinken) )
    (VP (VBZ is)
      (VP (VBN said)
        (S
          (NP-SBJ (-NONE- *-1) )
          (VP (TO to)
            (VP (VB be)
              (ADJP-PRD=2 (JJ rich) )))
          (-LRB- -LRB-) (PRN (`` ``) (NP (NN stocks) )) (-RRB- -RRB-) )))
    (. .) ))
"""
CLEAN = (
    "(TOP (S (NP (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (VP (VBN said) (S (VP (TO to) (VP (VB be) (ADJP (JJ rich))))"
    " (-LRB- -LRB-) (PRN (`` ``) (NP (NN stocks))) (-RRB- -RRB-)))) (. .)))"
)


def trees(text: str) -> list[str]:
    return [tree.bracketed() for tree in read_trees(text.split("\n"), "x.mrg")]


def error(text: str) -> str:
    with pytest.raises(UserError) as caught:
        list(read_trees(text.split("\n"), "x.mrg"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_tree_of_many_lines_loses_traces_tags_and_the_phrases_left_empty() -> None:
    assert trees(WSJ) == [CLEAN]
    assert trees(" ".join(WSJ.split())) == [CLEAN]
    assert trees(CLEAN) == [CLEAN]


@pytest.mark.parametrize(
    "text",
    [
        *("( (S (NN a)))", "((S(NN a)))", "(TOP (S (NN a)))", "(ROOT (S (NN a)))", "(S1 (S (NN a)))", "(S (NN a))"),
        *("(S-TPC ( (NN a)))", "(TOP (TOP (S (NN a))))"),
    ],
)
def test_the_outermost_bracket_is_always_top(text: str) -> None:
    assert trees(text) == ["(TOP (S (NN a)))"]


def test_many_trees_on_a_line_and_several_under_one_top() -> None:
    assert trees("(S (NN a)) (TOP (NN b) (. .))\n\n(NN c)") == [
        "(TOP (S (NN a)))",
        "(TOP (NN b) (. .))",
        "(TOP (NN c))",
    ]


def test_parse_gives_trees_as_they_stand_and_their_lines() -> None:
    assert list(parse(["", "( (NP-SBJ", " (-NONE- *)))", "()"])) == [
        (2, Tree("", (Tree("NP-SBJ", (Tree("-NONE-", "*"),)),))),
        (4, Tree("", ())),
    ]


def test_a_label_is_cut_at_its_function_but_not_when_it_begins_with_a_hyphen() -> None:
    cut = {"NP-SBJ-1": "NP", "NP=2": "NP", "WHNP": "WHNP", "-LRB-": "-LRB-", "": "", "PP-LOC=1-2": "PP"}
    assert {label: bare(label) for label in cut} == cut


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN a))\n(S\n(NN b)", "x.mrg, line 2: the bracket that opens here is never closed"),
        ("(S (NN a)))", "x.mrg, line 1: ')' outside any bracket"),
        ("(S (NN a))\nrubbish", "x.mrg, line 2: 'rubbish' outside any bracket"),
        ("(S (NN a b))", "x.mrg, line 1: 'a' beside other content"),
        ("(S (NN a (B b)))", "x.mrg, line 1: 'a' beside other content"),
        ("(S (NN a) b)", "x.mrg, line 1: 'b' beside other content"),
        ("\n(S (NP (-NONE- *)))", "x.mrg, line 2: a tree without words"),
        ("(())", "x.mrg, line 1: a tree without words"),
        ("\n" + "(S " * 5000, f"x.mrg, line 2: more than {DEEPEST} nested brackets"),
    ],
)
def test_damage_is_one_line_with_its_place(text: str, message: str) -> None:
    assert error(text).startswith(message)


def test_a_tree_as_deep_as_is_allowed_is_read() -> None:
    text = "(S " * (DEEPEST - 1) + "(NN a)" + ")" * (DEEPEST - 1)
    assert trees(text) == [f"(TOP {text})"]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_bracket_file_is_a_corpus_of_sentences_and_lines(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"x.mrg{ending}", WSJ + "(S (NN a))\n")
    corpus = open_corpus(f"trees:{path}")
    assert list(corpus.pairs()) == list(corpus.pairs())
    assert list(corpus.pairs())[1] == ("a", "(S NN S)")
    assert next(corpus.pairs())[0] == "Mr. Vinken is said to be rich -LRB- `` stocks -RRB- ."
    assert (corpus.source_language, corpus.target_language) == ("en", "trees")
    write(path, "(S (NN b))\n")
    assert open_corpus(f"trees:{path}").fingerprint != corpus.fingerprint


def test_faulty_treebanks_are_named(tmp_path: Path) -> None:
    def fault(content: str | bytes) -> str:
        path = write(tmp_path / "x.mrg", content)
        with pytest.raises(UserError) as caught:
            list(open_corpus(f"trees:{path}").pairs())
        return str(caught.value)

    assert "x.mrg' is empty" in fault("") and "x.mrg' is empty" in fault("\n\n")
    assert "x.mrg, line 2: not valid UTF-8 (byte 0xff at position 4)" in fault(b"(NN a)\n(NN\xff a)")
    assert "x.mrg, line 1: the bracket that opens here" in fault("(NN a")
    for spec in ("trees:", "trees:grammar:dev", "trees:grammar:train:x"):
        with pytest.raises(UserError, match="write trees:FILE or trees:grammar:SPLIT"):
            open_corpus(spec)
    with pytest.raises(UserError, match=r"none\.mrg: no such file"):
        open_corpus("trees:none.mrg")


def test_the_grammar_is_a_treebank() -> None:
    pairs = list(open_corpus("trees:grammar:test:20").pairs())
    examples = [pair("test", index) for index in range(20)]
    assert [source for source, _ in pairs] == [" ".join(example.tree.leaves()) for example in examples]
    assert all(
        target.startswith(f"({example.tree.label} ") for (_, target), example in zip(pairs, examples, strict=True)
    )
    prints = {open_corpus(f"trees:grammar:{rest}").fingerprint for rest in ("test:20", "test:21", "valid:20", "test")}
    assert len(prints) == 4
