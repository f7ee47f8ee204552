"""Runs on the grammar: which token a subword belongs to, and which direction a run translates in."""

from pathlib import Path

import pytest

from tests import tiny
from vaswani.data.grammar.sentences import pair
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.infer.runs import Run, open_run
from vaswani.paper.grammar_runs import direction, owners


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(tiny.write_grammar_run(tmp_path_factory.mktemp("grammar") / "run"), "latest")


@pytest.mark.parametrize("german", [False, True])
def test_subwords_of_a_token_spell_it(run: Run, german: bool):
    for example in (pair("test", i) for i in range(10)):
        text = example.german if german else example.english
        tokens = example.german_tokens if german else example.tree.leaves()
        found = owners(run.tokenizer, tokens, text)
        ids = run.tokenizer.encode(text)
        assert found == sorted(found)
        for number, token in enumerate(tokens):
            own = [piece for piece, owner in zip(ids, found, strict=True) if owner == number]
            assert run.tokenizer.decode(own).strip() == token


def test_bytes_and_spaces_that_are_subwords_find_their_token(run: Run):
    pieces = run.tokenizer.pieces(run.tokenizer.encode("dog é\u4e00 ñandu"))
    assert sum(piece.startswith("<0x") for piece in pieces) >= 5 and "▁" in pieces
    found = owners(run.tokenizer, ("dog", "é\u4e00", "ñandu"), "dog é\u4e00 ñandu")
    assert [piece for piece, owner in zip(pieces, found, strict=True) if owner == 1] == [
        "▁",
        *(f"<0x{byte:02X}>" for byte in "é\u4e00".encode()),
    ]


def test_a_space_before_a_sentence_belongs_to_its_first_token(run: Run):
    assert run.tokenizer.pieces(run.tokenizer.encode("\u4e00"))[0] == "▁"
    assert owners(run.tokenizer, ("\u4e00",), "\u4e00") == [0] * 4


def test_lower_cased_subwords_find_their_token(tmp_path: Path):
    tokenizer = Tokenizer.train(tiny.LINES, 310, tmp_path / "t.model", lowercase=True)
    tokens = pair("test", 24).german_tokens
    found = owners(tokenizer, tokens, pair("test", 24).german)
    assert sorted(set(found)) == list(range(len(tokens)))


def test_tokens_of_another_sentence_are_refused(run: Run):
    with pytest.raises(ValueError, match=r"'cat' is not token 1 of 'The dog sleeps\."):
        owners(run.tokenizer, ("The", "cat", "sleeps", "."), "The dog sleeps.")
    with pytest.raises(ValueError, match="'sleeps' is not token 1"):
        owners(run.tokenizer, ("The", "sleeps", "."), "The dog sleeps.")


def test_the_direction_is_that_of_the_training_corpus(run: Run):
    def trained_on(spec: str) -> Run:
        config = run.config.copy_and_resolve_references()
        config.data.train = spec
        return run._replace(config=config)

    assert [direction(trained_on(f"grammar:train:9{end}")) for end in ("", ":{en,de}", ":{de,en}")] == [0, 0, 1]
    for spec in ("text:a.{en,fr}", "trees:grammar:train"):
        with pytest.raises(UserError, match=f"trained on {spec}".replace("{", r"\{")):
            direction(trained_on(spec))
