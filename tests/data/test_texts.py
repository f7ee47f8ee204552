"""Texts for language models: their corpora, the character vocabulary, and how they are cut into rows."""

import gzip
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from vaswani.configs.common import default
from vaswani.data import sources
from vaswani.data.batching import TextBatch
from vaswani.data.cache import prepare
from vaswani.data.from_config import prepare_all
from vaswani.data.imported import open_tokenizer
from vaswani.data.pipeline import ProcessShard, TrainingBatches, text_batches
from vaswani.data.plans import window_plan
from vaswani.data.prepared import Prepared
from vaswani.data.sources import open_corpus
from vaswani.data.symbols import Symbols
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, UNK

TEXT = "To be, or not to be:\n\n  that is — the question.\n" * 5 + "Whether"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    return path


def characters(file: Path, part: str = "") -> Prepared:
    """The text prepared in characters, a part of it or all."""
    tokenizer = Symbols.of([(TEXT,)], 0, "characters")
    limits = {"max_length": 3, "max_ratio": 1.0}
    return prepare(f"chars:{file}{part}", tokenizer, cache=file.parent / "cache", clean=True, **limits)


def settings(**keys: object):
    cfg = default().data
    cfg.update({"batching": "window", "pack_length": 8, "tokens_per_batch": 5 * 8, "max_length": 300, **keys})
    return cfg


def test_the_parts_of_a_text_are_its_first_nine_tenths_and_the_rest(file: Path) -> None:
    whole, train, valid = (list(open_corpus(f"chars:{file}{part}").pairs()) for part in ("", ":train", ":valid"))
    assert whole == [(TEXT,)]
    assert len(train) == len(valid) == 1 and train[0][0] + valid[0][0] == TEXT
    assert len(train[0][0]) == len(TEXT) * 9 // 10
    assert len({open_corpus(f"chars:{file}{part}").fingerprint for part in ("", ":train", ":valid")}) == 3


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_text_of_characters_is_not_longer_than_memory_allows(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"c{ending}"
    path.write_bytes(gzip.compress(b"abc\ndef\n") if ending else b"abc\ndef\n")
    monkeypatch.setattr(sources, "_LONGEST_TEXT", 7)
    assert list(open_corpus(f"chars:{path}").pairs()) == [("abc\ndef",)]
    monkeypatch.setattr(sources, "_LONGEST_TEXT", 6)
    with pytest.raises(UserError, match=rf"^{path}: more than 6 characters, too many for one text; split it$"):
        list(open_corpus(f"chars:{path}").pairs())


def test_a_line_is_a_sequence(file: Path) -> None:
    corpus = open_corpus(f"lines:{file}")
    assert list(corpus.pairs()) == [(line,) for line in TEXT.split("\n")]
    assert corpus.sides == 1
    pairs = list(open_corpus("grammar:test:20").pairs())
    english = [(english,) for english, _ in pairs]
    assert list(open_corpus("lines:grammar:test:20").pairs()) == english
    both = [(side,) for english, german in pairs for side in (german, english)]
    assert list(open_corpus("lines:grammar:test:20:{de,en}").pairs()) == both


@pytest.mark.parametrize("scheme", ["lines", "chars"])
def test_empty_and_missing_texts_are_named(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(UserError, match=f"^corpus '{scheme}:{tmp_path}/empty' is empty: it has no sentences$"):
        list(open_corpus(f"{scheme}:{tmp_path}/empty").pairs())
    with pytest.raises(UserError, match=f"^{tmp_path}/none: no such file$"):
        open_corpus(f"{scheme}:{tmp_path}/none")


def test_characters_there_and_back(file: Path) -> None:
    path = file.parent / "vocabulary.model"
    tokenizer = Symbols.of([(TEXT,), ("zyx",)], 0, "characters")
    tokenizer.save(path)
    assert tokenizer.vocab_size == 4 + len(set(TEXT + "zyx"))
    for text in (TEXT, "\n  \nz ", "", " "):
        ids = tokenizer.encode(text)
        assert len(ids) == len(text) and UNK not in ids
        assert tokenizer.decode(ids) == tokenizer.normalise(text) == text
    assert tokenizer.encode("eÄe")[1] == UNK
    again = open_tokenizer(path)
    assert (again.sha256, again.units, again.lowercase) == (tokenizer.sha256, "characters", False)
    with pytest.raises(UserError, match="the training text is empty"):
        Symbols.of([("",)], 0, "characters")


def test_the_characters_of_earlier_runs_are_read_as_before(file: Path) -> None:
    model, path = io.BytesIO(), file.parent / "earlier.model"
    special = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "hard_vocab_limit": False, "minloglevel": 2}
    exact = {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False}
    letters = sorted(set(TEXT) - {"\n"})
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(letters),
        model_writer=model,
        model_type="char",
        vocab_size=len(letters) + 5,
        user_defined_symbols=["\n"],
        character_coverage=1.0,
        **special,
        **exact,
    )
    path.write_bytes(model.getvalue())
    earlier = open_tokenizer(path)
    assert (earlier.units, earlier.vocab_size) == ("characters", 4 + len(set(TEXT)))
    assert earlier.decode(earlier.encode(TEXT)) == earlier.normalise(TEXT) == TEXT
    assert earlier.encode("eÄe")[1] == UNK


def test_a_text_in_characters_is_stored_whole_and_without_an_end(file: Path) -> None:
    prepared = characters(file)
    tokenizer = Symbols.of([(TEXT,)], 0, "characters")
    assert prepared.manifest["tokens"] == {"target": len(TEXT)} and prepared.lengths.tolist() == [[len(TEXT)]]
    assert prepared[0][0].tolist() == tokenizer.encode(TEXT)
    windows = prepared.windows([0, 7, len(TEXT) - 3], 10)
    assert [tokenizer.decode(ids) for (ids,) in windows] == [TEXT[:10], TEXT[7:17], TEXT[-3:]]
    assert prepared.windows([], 10) == []


def test_lines_are_stored_one_after_another_and_cleaned(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b\n\nabab abab abab abab\nb\n")
    tokenizer = Tokenizer.train(["a b"] * 3, 265, tmp_path / "model")
    limits = {"max_length": 5, "max_ratio": 9.0}
    kept, every = (
        prepare(f"lines:{tmp_path}/text", tokenizer, cache=tmp_path / "cache", clean=clean, **limits)
        for clean in (True, False)
    )
    assert [ids.tolist() for (ids,) in kept.records([0, 1])] == [[*tokenizer.encode(x), EOS] for x in ("a b", "b")]
    assert kept.manifest["pairs"] == {"read": 4, "kept": 2, "empty": 1, "too_long": 1, "ratio": 0}
    assert len(every) == 4 and every[1][0].tolist() == [EOS]


def test_an_epoch_of_windows_is_the_text_once() -> None:
    offsets = set()
    for epoch in range(30):
        plan = window_plan(103, tokens=40, length=8, seed=1, epoch=epoch)
        assert all(planned.rows_bc.shape == (5, 1) for planned in plan)
        rows = np.concatenate([planned.rows_bc[:, 0] for planned in plan])
        starts = np.sort(rows[rows >= 0])
        assert all(after - before == 8 for before, after in pairwise(starts))
        assert 0 <= starts[0] < 8 and 103 - 8 < starts[-1] + 8 <= 103
        assert not np.array_equal(rows[rows >= 0], starts)
        offsets.add(int(starts[0]))
        again = window_plan(103, tokens=40, length=8, seed=1, epoch=epoch)
        np.testing.assert_array_equal(rows, np.concatenate([planned.rows_bc[:, 0] for planned in again]))
    assert offsets == set(range(8))
    other = window_plan(103, tokens=40, length=8, seed=2, epoch=29)
    assert not np.array_equal(rows, np.concatenate([planned.rows_bc[:, 0] for planned in other]))
    assert window_plan(8, tokens=8, length=8)[0].rows_bc.tolist() == [[0]]
    with pytest.raises(UserError, match=r"^data\.pack_length is 8, and the text has 7 ids: too few"):
        window_plan(7, tokens=8, length=8)


def test_rows_begin_with_bos_and_predict_what_follows(file: Path) -> None:
    prepared = characters(file)
    ids = prepared[0][0]
    batches = TrainingBatches(prepared, settings(), seed=3)
    epoch = len(batches.plan(0))
    read: list[TextBatch] = [next(batches) for _ in range(epoch + 2)]
    for batch, planned in zip(read, [*batches.plan(0), *batches.plan(1)[:2]], strict=True):
        for row, start in enumerate(planned.rows_bc[:, 0]):
            expected = ids[start : start + 8] if start >= 0 else np.zeros(8)
            np.testing.assert_array_equal(batch.labels_bt[row], expected)
            assert batch.target.ids_bt[row].tolist() == ([BOS, *expected[:-1]] if start >= 0 else [0] * 8)
            assert batch.target.segments_bt[row].tolist() == [int(start >= 0)] * 8
    state = batches.get_state()
    assert state == {"epoch": 1, "batch": 2}
    following = next(batches)
    batches.set_state(state)
    for again, before in zip(next(batches), following, strict=True):
        np.testing.assert_array_equal(again, before)
    batches.close()


def test_processes_share_a_batch_of_windows(file: Path) -> None:
    prepared, halves = characters(file), []
    whole = TrainingBatches(prepared, settings(), seed=0, shard=ProcessShard(0, 1, 1, 2))
    for first in range(2):
        batches = TrainingBatches(prepared, settings(), seed=0, shard=ProcessShard(first, first + 1, 2, 2))
        halves.append(next(batches))
        batches.close()
    np.testing.assert_array_equal(np.concatenate([half.labels_bt for half in halves]), next(whole).labels_bt)
    whole.close()


@pytest.mark.parametrize("batching", ["window", "pack"])
def test_every_token_is_validated_once(file: Path, batching: str) -> None:
    if batching == "window":
        prepared = characters(file, ":valid")
    else:
        tokenizer = Tokenizer.train(TEXT.split("\n"), 300, file.parent / "model")
        limits = {"max_length": 3, "max_ratio": 1.0}
        prepared = prepare(f"lines:{file}", tokenizer, cache=file.parent / "cache", clean=False, **limits)
    batches = list(text_batches(prepared, settings(batching=batching, buckets=(16, 32))))
    read = np.concatenate([batch.labels_bt[batch.target.segments_bt != 0] for batch in batches])
    everything = np.concatenate([ids for (ids,) in prepared.records(range(len(prepared)))])
    np.testing.assert_array_equal(np.sort(read), np.sort(everything))
    if batching == "window":
        np.testing.assert_array_equal(read, everything)


@pytest.mark.parametrize(
    ("spec", "sides", "message"),
    [
        (
            "grammar:valid:5",
            1,
            r"^data\.train is grammar:valid:5, but this task needs a text: lines:FILE or",
        ),
        ("lines:grammar:valid:5", 2, r"^data\.train is lines:.*, but this task needs pairs: text:PREFIX\.{en,de} or"),
    ],
)
def test_a_corpus_of_the_wrong_kind_is_named(tmp_path: Path, spec: str, sides: int, message: str) -> None:
    cfg = settings(train=spec, valid=spec, cache=str(tmp_path), vocab_size=300)
    with pytest.raises(UserError, match=message):
        prepare_all(cfg, sides=sides)


def test_pairs_are_not_cut_anywhere(tmp_path: Path) -> None:
    cfg = settings(train="grammar:valid:50", valid="grammar:valid:5", cache=str(tmp_path), vocab_size=400)
    _, train, _ = prepare_all(cfg)
    with pytest.raises(UserError, match=r"^data\.batching is window, for monolingual text; data\.train has pairs"):
        TrainingBatches(train, cfg, seed=0)


@pytest.mark.parametrize("batching", ["bucket", "pack"])
def test_a_text_in_characters_is_to_be_cut_into_windows(file: Path, batching: str) -> None:
    cfg = settings(batching=batching, max_length=8, buckets=(8,))
    message = rf"^data\.batching is {batching}, and data\.train has a text of .*: take window"
    with pytest.raises(UserError, match=message):
        TrainingBatches(characters(file), cfg, seed=0)


def test_rows_are_no_longer_than_learned_positions(file: Path) -> None:
    tokenizer = Tokenizer.train(TEXT.split("\n"), 300, file.parent / "model")
    limits = {"max_length": 3, "max_ratio": 1.0}
    prepared = prepare(f"lines:{file}", tokenizer, cache=file.parent / "cache", clean=False, **limits)
    longest = int(prepared.lengths.max())
    cfg = settings(batching="pack", buckets=(longest - 1,))
    widths = [batch.labels_bt.shape[1] for batch in text_batches(prepared, cfg, limit=longest)]
    assert max(widths) == longest
