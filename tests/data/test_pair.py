"""Vocabularies of their own: two tokenizers in one file, which knows the side of every text, and what is refused."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from tests.trainings import refusal_of_config
from vaswani.configs.common import default
from vaswani.data.from_config import prepare_all
from vaswani.data.imported import open_tokenizer
from vaswani.data.pair import Pair
from vaswani.data.symbols import SPECIALS, Symbols
from vaswani.errors import UserError
from vaswani.ids import EOS, UNK

SOURCES = ["the old cat", "the cat", "the dog"]
TARGETS = ["die alte katze", "die katze", "der hund"]


def config(folder: Path, **changes: object) -> ConfigDict:
    """Returns a config of words, with vocabularies of their own, whose corpora are written into `folder`."""
    for split in ("train", "valid"):
        for language, lines in (("en", SOURCES), ("de", TARGETS)):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    cfg = default()
    cfg.data.train, cfg.data.valid = (f"text:{folder}/{split}.{{en,de}}" for split in ("train", "valid"))
    cfg.data.update({"cache": str(folder / "cache"), "units": "words", "vocab_size": 0, "share_vocabulary": False})
    cfg.data.update(changes)
    return cfg


def test_each_side_has_the_words_of_its_own_texts_and_ids_of_its_own(tmp_path: Path) -> None:
    tokenizer, train, _ = prepare_all(config(tmp_path).data, tmp_path / "tokenizer.model")
    assert tokenizer.pieces(range(8)) == [*SPECIALS, "the", "cat", "dog", "old"]
    assert tokenizer.target.pieces(range(9)) == [*SPECIALS, "die", "katze", "alte", "der", "hund"]
    assert (tokenizer.source_vocab_size, tokenizer.vocab_size) == (8, 9)
    assert tokenizer.encode("the katze") == [4, UNK] and tokenizer.target.encode("the katze") == [UNK, 5]
    assert tokenizer.decode([4, 5, EOS]) == "die katze"
    assert tokenizer.unknown(["the katze"]) == tokenizer.target.unknown(["die cat"]) == 1
    source, target = train[0]
    np.testing.assert_array_equal(source, [4, 7, 5, EOS])
    np.testing.assert_array_equal(target, [4, 6, 5, EOS])


def test_its_file_is_read_again_and_has_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    tokenizer, _, _ = prepare_all(config(tmp_path).data, path)
    again = open_tokenizer(path)
    assert isinstance(again, Pair) and again.sha256 == tokenizer.sha256
    assert again.content == path.read_bytes() and again.decode([4]) == "die"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"target": "%"}))
    with pytest.raises(UserError, match=r"tokenizer.model: damaged: target is no file in base64$"):
        open_tokenizer(path)
    path.write_text(json.dumps(fields | {"target": base64.b64encode(b"{}").decode()}))
    with pytest.raises(UserError, match=r"tokenizer.model"):
        open_tokenizer(path)


def test_subwords_are_learned_of_each_side_alone(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.data.share_vocabulary = False
    tokenizer, _, _ = prepare_all(cfg.data)
    assert "▁old" in tokenizer.pieces(range(300)) and "▁dlo" not in tokenizer.pieces(range(300))
    assert "▁dlo" in tokenizer.target.pieces(range(300)) and "▁old" not in tokenizer.target.pieces(range(300))


def test_rare_words_are_unknown(tmp_path: Path) -> None:
    tokenizer, _, _ = prepare_all(config(tmp_path, min_frequency=2).data)
    assert tokenizer.pieces(range(6)) == [*SPECIALS, "the", "cat"]
    assert tokenizer.target.pieces(range(6)) == [*SPECIALS, "die", "katze"]
    shared = Symbols.of(zip(SOURCES, TARGETS, strict=True), 0, "words", min_frequency=3)
    assert shared.pieces(range(5)) == [*SPECIALS, "the"]
    with pytest.raises(UserError, match=r"^data.min_frequency is 9, and no symbol of the training text is so frequent"):
        prepare_all(config(tmp_path, min_frequency=9).data)
    with pytest.raises(UserError, match=r"at most 6: all symbols of the training text with data.min_frequency=2 and"):
        prepare_all(config(tmp_path, min_frequency=2, vocab_size=7).data)


def test_a_given_tokenizer_must_be_of_the_kind_that_the_config_names(tmp_path: Path) -> None:
    prepare_all(config(tmp_path).data, tmp_path / "two.model")
    prepare_all(config(tmp_path, share_vocabulary=True).data, tmp_path / "one.model")
    for shares, name in ((False, "one"), (True, "two")):
        cfg = config(tmp_path, share_vocabulary=shares, tokenizer=str(tmp_path / f"{name}.model"))
        with pytest.raises(
            UserError, match=rf"^data.share_vocabulary is {shares}, but the tokenizer's is {not shares}"
        ):
            prepare_all(cfg.data)
    cfg = config(tmp_path, vocab_size=9, tokenizer=str(tmp_path / "two.model"))
    with pytest.raises(UserError, match=r"^data.vocab_size is 9, but the tokenizer's source has 8: .* set it to 0"):
        prepare_all(cfg.data)
    assert prepare_all(config(tmp_path, tokenizer=str(tmp_path / "two.model")).data)[0].vocab_size == 9


@pytest.mark.parametrize("task", ["language_model", "masked_lm", "prefix_lm", "denoising", "classification", "vision"])
def test_a_task_without_two_sides_of_its_own_is_refused_by_the_keys_name(task: str) -> None:
    cfg = default()
    cfg.task = task
    cfg.data.classes = "a,b" if task == "classification" else ""
    cfg.data.share_vocabulary = False
    said = refusal_of_config(cfg)
    right = "translation or recurrent_translation"
    assert said.startswith(f"config: data.share_vocabulary=False needs task to be {right}; it is {task!r}: ")


def test_a_frequency_that_would_count_nothing_is_refused() -> None:
    for changes in ({"units": "subwords"}, {"units": "words", "tokenizer": "given.model"}):
        cfg = default()
        cfg.data.update(changes | {"min_frequency": 2})
        assert "data.min_frequency=2 needs data." in refusal_of_config(cfg)
