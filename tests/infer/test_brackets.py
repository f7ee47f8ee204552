"""EVALB's figures: those it ships with its sample, and cases small enough to count by hand."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from vaswani.errors import UserError
from vaswani.infer.scores import brackets
from vaswani.infer.scores.brackets import (
    COLLINS,
    ERROR,
    SKIPPED,
    VALID,
    Parameters,
    SentenceScore,
    read_parameters,
    score_lines,
    score_sentence,
)

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT.parent / "shared/fixtures/evalb"
here = pytest.mark.skipif(not SAMPLE.exists(), reason="EVALB's sample is not on this machine")
PLAIN = Parameters()
GOLD = "(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT the) (NN cat)) (PP (IN with) (NP (NNS eyes)))) (. .)))"


def one(gold: str, parsed: str, parameters: Parameters = COLLINS) -> SentenceScore:
    (sentence,) = score_lines([gold], [parsed], parameters)
    return sentence


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infer.brackets", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def files(folder: Path, gold: str, parsed: str) -> list[str]:
    (folder / "g.mrg").write_text(gold)
    (folder / "p.mrg").write_text(parsed)
    return [f"--gold={folder / 'g.mrg'}", f"--parsed={folder / 'p.mrg'}"]


@here
def test_the_sample_equals_the_published_result(tmp_path: Path) -> None:
    """In every sentence and every figure; EVALB's line of totals, which has no heading, and our F are not compared."""
    parameters = tmp_path / "debug.prm"
    parameters.write_text((SAMPLE / "sample.prm").read_text() + "DEBUG 1\n")
    done = run(f"--gold={SAMPLE / 'sample.gld'}", f"--parsed={SAMPLE / 'sample.tst'}", f"--parameters={parameters}")
    published = (SAMPLE / "sample.rsl").read_text().splitlines()
    totals = [line for line in published if line.startswith("      ")]
    assert done.returncode == 0 and len(totals) == 1
    ours = [line for line in done.stdout.splitlines() if "FMeasure" not in line]
    assert ours == [line for line in published if line not in totals]


@here
def test_the_sample_has_its_f() -> None:
    lines = [(SAMPLE / f"sample.{ending}").read_text().splitlines() for ending in ("gld", "tst")]
    parameters = read_parameters(SAMPLE / "sample.prm")
    blocks = brackets.summaries(score_lines(*lines, parameters), parameters)
    assert {name: round(figures["f1"], 2) for name, figures in blocks.items()} == {"All": 89.12, "len<=40": 83.20}


@here
def test_the_defaults_are_collins_prm() -> None:
    assert read_parameters(SAMPLE / "COLLINS.prm") == COLLINS


def test_a_wrong_attachment_by_hand() -> None:
    """Gold: S, NP, VP, NP, PP, NP. The parse has an NP around cat and the PP instead of none, and loses nothing."""
    nested = "(NP (NP (DT the) (NN cat)) (PP (IN with) (NP (NNS eyes))))"
    parsed = f"(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) {nested}) (. .)))"
    assert one(GOLD, parsed) == SentenceScore(8, 7, VALID, matched=6, gold=6, parsed=7, crossing=0, tags=7)


def test_crossing_brackets_are_those_of_the_parse() -> None:
    gold, parsed = "(S (A (X a) (X b)) (B (X c) (X d)))", "(S (X a) (A (X b) (X c)) (X d))"
    assert one(gold, parsed, PLAIN) == SentenceScore(4, 4, VALID, matched=1, gold=3, parsed=2, crossing=1, tags=4)
    assert one(gold, "(S (C (X a) (A (X b) (X c))) (X d))", PLAIN).crossing == 2
    left, right = "(S (A (X a) (X b)) (X c))", "(S (X a) (A (X b) (X c)))"
    assert one(left, right, PLAIN).crossing == one(right, left, PLAIN).crossing == 1


def test_equal_brackets_are_paired_one_to_one() -> None:
    once, thrice = "(NP (NN a))", "(NP (NP (NP (NN a))))"
    assert one(once, thrice)[3:6] == (1, 1, 3)
    assert one(thrice, once)[3:6] == (1, 3, 1)
    chained = PLAIN._replace(eq_labels=(("A", "B"), ("B", "C")))
    assert one("(B (A (X a)))", "(A (C (X a)))", chained).matched == 1  # in the order in which they open


def test_labels_count_unless_unlabelled_and_lose_their_functions() -> None:
    assert one("(NP-SBJ-1 (NN a))", "(NP=2 (NN a))").matched == 1
    assert one("(NP (NN a))", "(VP (NN a))").matched == 0
    assert one("(NP (NN a))", "(VP (NN a))", COLLINS._replace(labeled=0)).matched == 1
    assert one("(PRT (RP up))", "(ADVP (RB up))")[3:] == (1, 1, 1, 0, 0)


def test_deleted_words_and_brackets_leave_no_trace() -> None:
    gold = "(TOP (S (NP (-NONE- *)) (NP (NN a)) (, ,) (VP (VB b)) (. .)))"
    assert one(gold, "(S (NP (NN a)) (, ,) (VP (VB b) (. .)))") == SentenceScore(4, 2, VALID, 3, 3, 3, 0, 2)
    assert one("(S (NN a) (PRN (: --)))", "(S (NN a) (: --))")[3:6] == (1, 1, 1)


def test_words_must_agree() -> None:
    assert one("(S (NN a) (NN b))", "(S (NN a))") == SentenceScore(2, 2, ERROR)
    assert one("(S (NN a) (NN b))", "(S (NN a) (NN c))") == SentenceScore(2, 2, ERROR)
    for equal in (("b", "c"), ("c", "b")):
        assert one("(S (NN a) (NN b))", "(S (NN a) (NN c))", COLLINS._replace(eq_words=(equal,))).status == VALID
    assert one("(S (NN a) (NN b))", "") == SentenceScore(2, 2, SKIPPED)
    assert one("(S (NN a) (NN b))", "(S (. a))") == SentenceScore(2, 2, SKIPPED)
    assert one("(S (NN a) (NN b))", "(S (NN a) (NN b)").status == ERROR
    assert one("(S (NN a) (, ,))", "(S (NN a) (NN ,))").status == ERROR  # a tag decides what is punctuation


def test_a_wrong_tag_deletes_nothing_where_the_words_are_known_to_be_the_same() -> None:
    gold, parsed = "(S (NN a) (, ,))", "(S (. a) (NN ,))"
    assert score_sentence(gold, parsed, COLLINS, same_words=True) == SentenceScore(2, 1, VALID, 1, 1, 1, 0, 0)
    assert score_sentence(gold, parsed, COLLINS).status == ERROR


def test_the_summary_counts_valid_sentences_only_and_cuts_by_length() -> None:
    long = "(S " + "(NN a) " * 41 + ")"
    gold = ["(S (NP (NN a)) (NN b))", "(S (NN a))", "(S (NN a))", long]
    parsed = ["(S (NN a) (NN b))", "", "(S (NN b))", long]
    blocks = brackets.summaries(score_lines(gold, parsed, COLLINS), COLLINS)
    assert blocks["All"] == {
        "sentences": 4, "errors": 1, "skipped": 1, "valid": 2, "recall": pytest.approx(200 / 3), "precision": 100,
        "f1": pytest.approx(80), "complete_match": 50, "average_crossing": 0, "no_crossing": 100,
        "crossing_2_or_less": 100, "tagging_accuracy": 100,
    }  # fmt: skip
    short = blocks["len<=40"]
    assert (short["sentences"], short["valid"], short["recall"], short["complete_match"]) == (3, 1, 50, 0)
    at_most_1 = brackets.summaries(score_lines(gold, parsed, COLLINS), COLLINS._replace(cutoff_len=1))["len<=1"]
    assert at_most_1["sentences"] == 2
    assert set(brackets.summary([]).values()) == {0}


def test_crossings_are_averaged_and_counted() -> None:
    sentences = [SentenceScore(9, 9, VALID, 1, 4, 4, crossing) for crossing in (0, 1, 2, 3)]
    figures = brackets.summary(sentences)
    assert (figures["average_crossing"], figures["no_crossing"], figures["crossing_2_or_less"]) == (1.5, 25, 75)


def test_parameter_files(tmp_path: Path) -> None:
    path = tmp_path / "x.prm"
    path.write_text(
        "# a comment\n\nDEBUG 1\nMAX_ERROR 3\nCUTOFF_LEN 20\nLABELED 0   \nDELETE_LABEL .\nDELETE_LABEL TOP\n"
        "DELETE_LABEL_FOR_LENGTH :\nEQ_LABEL A B\nEQ_WORD x y\n"
    )
    expected = Parameters(1, 20, 0, (".", "TOP"), (":",), (("A", "B"),), (("x", "y"),))
    assert read_parameters(path) == expected
    assert len({p.signature() for p in (PLAIN, COLLINS, expected, PLAIN._replace(eq_words=(("x", "y"),)))}) == 4
    for line, message in {
        "DELET_LABEL X": "x.prm, line 2: DELET_LABEL is not an EVALB parameter; did you mean DELETE_LABEL?",
        "EQ_LABEL A": "line 2: EQ_LABEL has 'A'; it must have 2 words",
        "LABELED yes": "line 2: LABELED has 'yes'; it must have a whole number",
        "DELETE_LABEL": "line 2: DELETE_LABEL has 'no value'; it must have 1 word",
        "QUOTE_LABEL ``": "line 2: QUOTE_LABEL is not an EVALB parameter; did you mean EQ_LABEL?",
    }.items():
        path.write_text(f"#\n{line}\n")
        with pytest.raises(UserError) as caught:
            read_parameters(path)
        assert message in str(caught.value)


def test_the_command_prints_the_summary_or_json(tmp_path: Path) -> None:
    arguments = files(tmp_path, f"{GOLD}\n", f"{GOLD}\n")
    printed = run(*arguments).stdout
    assert "Bracketing FMeasure       = 100.00" in printed and "-- len<=40 --" in printed
    record = json.loads(run(*arguments, "--json").stdout)
    assert record["All"]["f1"] == 100 and record["signature"] == COLLINS.signature()


def test_unequal_files_are_one_line(tmp_path: Path) -> None:
    assert "unequal line counts" in run(*files(tmp_path, f"{GOLD}\n", f"{GOLD}\n" * 2)).stderr


def test_lines_that_do_not_pair_are_as_in_evalb() -> None:
    """Such a line has its gold length, and is skipped rather than an error if it has no word."""
    gold = "(S (NN a) (NN b))"
    assert one(gold, "(S (NN a) (NN b)") == SentenceScore(2, 2, ERROR)
    assert one(gold, "(S (NN a) (NN b)))") == SentenceScore(2, 2, ERROR)
    assert one(gold, "(S (NN a)") == SentenceScore(2, 2, ERROR)
    assert one(gold, "(S (NP") == SentenceScore(2, 2, SKIPPED)
    assert one(gold, "a b") == SentenceScore(2, 2, SKIPPED)
    assert one("(S (NN a) (NN b)", gold) == SentenceScore(2, 2, ERROR)
    long = "(S " + "(NN a) " * 41
    blocks = brackets.summaries(score_lines([long, gold], [f"{long})", gold], COLLINS), COLLINS)
    assert [(block["sentences"], block["errors"]) for block in blocks.values()] == [(2, 1), (1, 0)]


def test_only_ascii_white_space_separates() -> None:
    assert one("(S (NN a\u00a0b) (NN \u2028))", "(S (NN a\u00a0b) (NN \u2028))")[:3] == (2, 2, VALID)
    assert one("(S (NN a)\t(NN\x0bb))", "(S\f(NN a) (NN b))").status == VALID


def test_a_label_and_a_space_are_an_empty_word() -> None:
    assert one("(S (NN a))", "(S (NN a) (NP ))") == SentenceScore(1, 1, ERROR)
    assert one("(S (NN a) (NP ))", "(S (NN a) (NP ))") == SentenceScore(2, 2, VALID, 1, 1, 1, 0, 2)
    assert one("(S (NN a))", "(S (NN a) (NP))") == one("(S (NN a))", "(S (NN a) (. ))")
    assert one("(S (NN a))", "(S (NN a) (NP))") == SentenceScore(1, 1, VALID, 1, 1, 1, 0, 1)


@pytest.mark.parametrize("labeled", [0, 1])
def test_matches_and_crossings_of_random_trees_equal_their_definition(labeled: int) -> None:
    """Pairs of brackets compared one by one, as EVALB does; labels A and B are equal, and so are B and C."""
    rng = random.Random(labeled)
    parameters = PLAIN._replace(eq_labels=(("A", "B"), ("B", "C")), labeled=labeled)

    def tree(words: list[str]) -> str:
        if len(words) == 1 and rng.random() < 0.7:
            return f"(X {words[0]})"
        middle = rng.randrange(1, len(words)) if len(words) > 1 else 1
        parts = [part for part in (words[:middle], words[middle:]) if part]
        return f"({rng.choice('ABCD')} {' '.join(map(tree, parts))})"

    for _ in range(200):
        words = [f"w{i}" for i in range(rng.randrange(2, 12))]
        lines = tree(words), tree(words)
        gold, parsed = (brackets._Side(line, parameters).spans(parameters) for line in lines)
        free, matched = list(parsed), 0
        for start, end, label in gold:
            for place, (first, last, name) in enumerate(free):
                if (start, end) == (first, last) and (not labeled or parameters.same_label(label, name)):
                    del free[place]
                    matched += 1
                    break
        crossing = sum(any(a < s < b < e or s < a < e < b for a, b, _ in gold) for s, e, _ in parsed)
        score = one(*lines, parameters)
        assert (score.matched, score.crossing) == (matched, crossing)


def test_a_tree_may_have_any_number_of_brackets_in_each_other() -> None:
    chain = "(A " * 10_000 + "(X a)" + ")" * 10_000
    nested = "".join(f"(A (X w{i}) " for i in range(10_000)) + ")" * 10_000
    for line in (chain, nested):
        score = one(line, line, PLAIN)
        assert (score.matched, score.gold, score.crossing) == (10_000, 10_000, 0)
