"""SCAN: the published counts and examples, and what each split holds out."""

from pathlib import Path

import pytest

from lab.corpora import corpus
from lab.scan import CUTOFF, LONGEST, SPLITS, commands, pairs
from vaswani.data.sources import open_corpus
from vaswani.data.symbols import Symbols
from vaswani.errors import UserError


def test_every_command_is_there_once() -> None:
    every = [command for command, _ in commands()]
    assert len(every) == len(set(every)) == 20_910
    assert {word for command in every for word in command.split()} == {
        *("walk", "look", "run", "jump", "turn", "left", "right"),
        *("opposite", "around", "twice", "thrice", "and", "after"),
    }


@pytest.mark.parametrize(
    ("command", "actions"),
    [  # those of the paper's Figure 1
        ("jump", "I_JUMP"),
        ("jump left", "I_TURN_LEFT I_JUMP"),
        ("jump around right", "I_TURN_RIGHT I_JUMP " * 4),
        ("turn left twice", "I_TURN_LEFT I_TURN_LEFT"),
        ("jump thrice", "I_JUMP I_JUMP I_JUMP"),
        ("jump opposite left and walk thrice", "I_TURN_LEFT I_TURN_LEFT I_JUMP I_WALK I_WALK I_WALK"),
        (
            "jump opposite left after walk around left",
            "I_TURN_LEFT I_WALK " * 4 + "I_TURN_LEFT I_TURN_LEFT I_JUMP",
        ),
    ],
)
def test_a_command_means_what_the_paper_says(command: str, actions: str) -> None:
    assert dict(commands())[command] == actions.split()


@pytest.mark.parametrize(
    ("split", "train", "test"),
    [
        ("simple", 16_728, 4_182),
        ("length", 16_990, 3_920),
        ("length-22", 16_990, 3_920),
        ("length-26", 18_286, 2_624),
        ("around-right", 15_225, 4_476),
    ],
)
def test_the_splits_have_the_published_sizes_and_share_nothing(split: str, train: int, test: int) -> None:
    parts = [dict(pairs(split, part)) for part in ("train", "test")]
    assert [len(part) for part in parts] == [train, test]
    assert not parts[0].keys() & parts[1].keys()
    if split == "length":
        assert max(len(actions.split()) for actions in parts[0].values()) == CUTOFF
        assert {len(actions.split()) for actions in parts[1].values()} <= set(range(24, LONGEST + 1))
    if split == "length-26":
        assert max(len(actions.split()) for actions in parts[0].values()) <= 26
        assert min(len(actions.split()) for actions in parts[1].values()) > 26
        assert max(len(actions.split()) for actions in parts[1].values()) == LONGEST
    if split == "around-right":
        assert not any("around right" in command for command in parts[0])
        assert all("around right" in command and "turn around right" not in command for command in parts[1])
        assert {"walk right", "jump around left", "run opposite right"} <= parts[0].keys()


def test_a_file_of_it_is_a_corpus_whose_words_are_symbols(tmp_path: Path) -> None:
    path = tmp_path / "scan.tsv"
    path.write_text("".join(f"{command}\t{actions}\n" for command, actions in corpus("scan:length:train")))
    read = list(open_corpus(f"tsv:{path}").pairs())
    assert read == list(pairs("length", "train"))
    symbols = Symbols.of(read, 0, "words")
    text = "jump around left twice after turn right I_TURN_LEFT"
    assert len(symbols.encode(text)) == len(text.split())


@pytest.mark.parametrize(
    "spec",
    [
        "scan:jump:train",
        "scan:length",
        "scan:length:valid",
        "scan:length-48:test",
        "scan:length-026:test",
        "scan:length-٢٦:test",
        "rich:train",
        "rich:deeper:9",
    ],
)
def test_a_split_that_is_not_there_is_said(spec: str) -> None:
    with pytest.raises(UserError, match=f"scan:SPLIT:train or :test, SPLIT one of {', '.join(SPLITS)}, length-N$"):
        corpus(spec)
