"""The information of a sentence: of a grammar that can be counted by hand, and of the real one."""

import math
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import entropy
from tests import tiny
from tests.commands import run
from vaswani.data.grammar.sentences import pair
from vaswani.data.grammar.syntax import Draft, leaf
from vaswani.data.trees.tree import Tree


def spells_cats(d: Draft) -> tuple[Tree, list]:
    """Spells one of three subjects, two of which are the same word, and an adverb in 25 of 100 sentences."""
    words = [leaf("NN", d.pick(("cat", "cat", "dog")))]
    d.pick(("only", "German", "shows", "this"))
    if d.chance(25):
        words.append(leaf("RB", d.pick(("often", "never"))))
    return Tree("S", tuple(words)), []


@pytest.mark.parametrize(
    ("english", "probability"), [("Cat", 2 / 3 * 3 / 4), ("Dog", 1 / 3 * 3 / 4), ("Cat never", 2 / 3 * 1 / 4 * 1 / 2)]
)
def test_the_information_is_that_of_a_grammar_that_can_be_counted(
    english: str, probability: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(entropy, "RULES", (spells_cats,))
    for number in range(1_000):
        d = entropy.Recorded(str(number))
        if entropy._english(d) == english:
            break
    assert entropy.most_nats(english, d.digits) == pytest.approx(-math.log(probability))


def test_a_draft_is_spelled_again_from_its_digits():
    for index in range(30):
        english, digits = entropy.digits_of(index)
        assert english == pair("test", index).english == entropy.spelled(digits)
        assert entropy.spelled(digits[:-1]) is None and entropy.spelled([*digits, digits[-1]]) is None


@pytest.mark.parametrize("indices", [range(2), pytest.param(range(2, 20), marks=pytest.mark.slow)], ids=["few", "many"])
def test_free_values_may_all_change_at_once(indices: range):
    """The bound multiplies what each digit leaves free, as if the others were as they are."""
    draws = random.Random(0)
    changed = 0
    for index in indices:
        english, digits = entropy.digits_of(index)
        free = [entropy.free_values(english, digits, place) for place in range(len(digits))]
        for _ in range(10):
            others = [
                entropy.Digit(digit.values, draws.choice(values)) for digit, values in zip(digits, free, strict=True)
            ]
            changed += others != digits
            assert entropy.spelled(others) == english
    assert changed > 9 * len(indices)


def test_the_mean_of_a_sentence_is_shared_among_its_subwords_and_eos(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    nats = {"a": 1.0, "bb": 2.0, "cccc": 6.0}  # sentences whose letters are subwords
    monkeypatch.setattr(entropy, "flags", SimpleNamespace(FLAGS=SimpleNamespace(sentences=3, tokenizer="x")))
    monkeypatch.setattr(entropy, "open_tokenizer", lambda path: SimpleNamespace(encode=list))
    monkeypatch.setattr(entropy, "digits_of", lambda index: ([*nats][index], []))
    monkeypatch.setattr(entropy, "most_nats", lambda english, digits: nats[english])
    entropy.main([])
    assert capsys.readouterr().out == (
        "3 sentences of grammar:test, English: at most 3.00 nats a sentence, with a standard error of 1.53\n"
        "3.33 subwords a sentence: at most 0.900 nats a subword, with a standard error of 0.458\n"
    )


@pytest.mark.slow
def test_the_command_says_what_a_sentence_and_what_a_subword_has(tmp_path: Path):
    tiny.tokenizer().save(tmp_path / "tokenizer.model")
    printed = run("lab.entropy", "--sentences=3", f"--tokenizer={tmp_path}/tokenizer.model")
    assert "3 sentences of grammar:test, English: at most" in printed.stdout
    assert "subwords a sentence: at most" in printed.stdout


def test_more_sentences_than_anyone_waits_for_are_refused() -> None:
    done = run("lab.entropy", "--workdir=x", "--sentences=9000000000000000000")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "is not an integer in the range [2, 1000000]; --help lists the flags" in done.stderr
