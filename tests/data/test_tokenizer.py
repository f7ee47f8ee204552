import io
import random
import re
import unicodedata
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import tiny
from vaswani.data import tokenizer as module
from vaswani.data.imported import open_tokenizer
from vaswani.data.multilingual import Multilingual
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, PAD, UNK

WORDS = [
    "the",
    "a",
    "dog",
    "cat",
    "tree",
    "walks",
    "sees",
    "quickly",
    "der",
    "die",
    "Hund",
    "Katze",
    "Haus",
    "läuft",
    "größer",
]


def corpus(lines: int = 400) -> list[str]:
    choice = random.Random(0)
    return [" ".join(choice.choices(WORDS, k=choice.randint(3, 12))).capitalize() + "." for _ in range(lines)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "folder" / "tokenizer.model"
    Tokenizer.train(corpus(), 360, path)
    return path


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return open_tokenizer(path)


@pytest.fixture(scope="module")
def as_it_is(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.train(corpus(), 360, tmp_path_factory.mktemp("as_it_is") / "t.model", normalisation="none")


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("🙂👩‍👩‍👧 漢字 ﬁ ½ e\u0301 \x00\x07\x1b\x7f\u200b\u2028\x85\ufeff▁▁ </s> <unk> <0x41>")
@example("\r\n")
@settings(deadline=None, max_examples=300)
def test_nothing_is_lost_after_normalising(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    normal = tokenizer.normalise(text)
    assert tokenizer.decode(ids) == normal
    assert not {PAD, BOS, EOS, UNK} & set(ids)
    assert "\n" not in normal and "  " not in normal


@given(st.text(st.characters(codec="latin-1", categories=["L", "N", "P", "Zs"])))
def test_normalising_is_nfkc_and_single_spaces(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.normalise(text) == " ".join(unicodedata.normalize("NFKC", text).split())


def test_ordinary_text_comes_back_as_it_was(tokenizer: Tokenizer) -> None:
    for text in ["Der Hund läuft.", "größer!", "a - b", "emoji 🙂 here", "", "x"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_empty_and_very_long_texts(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == tokenizer.encode(" \t ") == []
    assert tokenizer.decode([]) == ""
    long = " ".join(random.Random(1).choices(WORDS, k=10_000))
    assert tokenizer.decode(tokenizer.encode(long)) == long


def test_unpaired_surrogates_do_not_stop_a_run(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a \ud800 b")) == tokenizer.normalise("a \ud800 b") == "a ? b"


def test_decoding_stops_at_eos_drops_specials_and_stays_on_one_line(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("der Hund")
    assert tokenizer.decode([BOS, PAD, *ids, UNK, EOS, *ids]) == "der Hund"
    feed = 4 + ord("\n")  # the pieces of single bytes follow the special symbols
    assert tokenizer.decode([*ids, feed, *ids]) == "der Hund  der Hund"


def test_batches_encode_alike(tokenizer: Tokenizer) -> None:
    texts = [*corpus(50), "", "🙂"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_training_is_deterministic_and_the_file_is_all(tokenizer: Tokenizer, path: Path, tmp_path: Path) -> None:
    again = Tokenizer.train(iter(corpus()), 360, tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == path.read_bytes()
    tokenizer.save(tmp_path / "saved.model")
    saved = open_tokenizer(tmp_path / "saved.model")
    assert saved.sha256 == again.sha256 == tokenizer.sha256
    assert saved.vocab_size == tokenizer.vocab_size == 360
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.model", "saved.model"]


def test_lower_case_is_part_of_the_model(tokenizer: Tokenizer, tmp_path: Path) -> None:
    lower = Tokenizer.train(corpus(), 340, tmp_path / "lower.model", lowercase=True)
    assert (tokenizer.lowercase, lower.lowercase) == (False, True)
    assert lower.decode(lower.encode("Der GROSSE Ärger")) == "der grosse ärger"
    assert open_tokenizer(tmp_path / "lower.model").lowercase


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("，Ａ 🙂👩‍👩‍👧 漢字 ﬁ ½ e\u0301 \x00\x07\x1b\x7f\u200b\u2028\x85\ufeff▁▁ </s> <unk> <0x41>")
@example("▁ ▁")
@example(" a\tb  \u3000c \r\n")
@settings(deadline=None, max_examples=300)
def test_without_nfkc_only_spaces_change(as_it_is: Tokenizer, text: str) -> None:
    assert as_it_is.decode(as_it_is.encode(text)) == as_it_is.normalise(text)
    if not set("▁\r\n") & set(text):  # sentencepiece's own sign for a space, and what would end a line
        assert as_it_is.normalise(text) == re.sub(" +", " ", text.strip(" "))


def test_how_text_is_normalised_is_part_of_the_model(tokenizer: Tokenizer, as_it_is: Tokenizer, tmp_path: Path) -> None:
    assert (tokenizer.normalisation, as_it_is.normalisation) == ("nfkc", "none")
    plain = Tokenizer.train(corpus(), 340, tmp_path / "plain", normalisation="plain_nfkc", lowercase=True)
    assert (plain.normalisation, plain.lowercase) == ("plain_nfkc", True)
    assert plain.decode(plain.encode("A\u200cＢ")) == "a\u200cb"
    for normalisation, lowercase in [("none", True), ("NFC", False)]:
        line = f"^data.normalisation is {normalisation} and data.lowercase {lowercase}: take nfkc, plain_nfkc, or none"
        with pytest.raises(UserError, match=line):
            Tokenizer.train(corpus(), 340, tmp_path / "x", normalisation=normalisation, lowercase=lowercase)


def test_a_large_corpus_is_sampled_the_same_every_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [f"line {i}" for i in range(1_000)]
    first, second = (module._sample(iter(lines), 100) for _ in range(2))
    assert first == second and len(set(first)) == 100 and set(first) <= set(lines)
    assert any(int(line.split()[1]) > 900 for line in first)
    assert module._sample(iter(lines), 1_000) == lines


def test_every_line_is_as_likely_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    one = random.Random(1)  # which goes on from sample to sample
    monkeypatch.setattr(module, "random", SimpleNamespace(Random=lambda seed: one))
    counts = Counter(line for _ in range(4_000) for line in module._sample(["a", "b", "c", "d"], 2))
    for line in "abcd":
        assert abs(counts[line] - 2_000) < 5 * 32, f"{line}: five standard deviations of a binomial"


def test_the_rarest_characters_are_spelled_in_bytes(tmp_path: Path) -> None:
    """Of 20,000 characters, or 40,000 with spaces, the last is beyond a share of 0.9999, the four before it are not."""
    lines = ["a b c d e f"] * 3_333 + ["щ щ щ щ", "ж"]
    tokenizer = Tokenizer.train(lines, 270, tmp_path / "t.model")
    assert "щ" in tokenizer.pieces(tokenizer.encode("щ"))
    assert tokenizer.pieces(tokenizer.encode("ж")) == ["▁", "<0xD0>", "<0xB6>"]


def test_errors_say_what_would_do(tmp_path: Path) -> None:
    target = tmp_path / "x.model"
    with pytest.raises(UserError, match=r"vocab_size is 5000, .* the largest that would do is \d+$") as too_many:
        Tokenizer.train(corpus(), 5_000, target)
    largest = int(str(too_many.value).rpartition(" ")[2])
    with pytest.raises(UserError, match=r"vocab_size is 100, .* the smallest that would do is \d+$") as too_few:
        Tokenizer.train(corpus(), 100, target)
    smallest = int(str(too_few.value).rpartition(" ")[2])
    assert not target.exists()
    for vocab_size in (3, -1):
        with pytest.raises(UserError, match=rf"vocab_size is {vocab_size}, fewer than the bytes and characters of the"):
            Tokenizer.train(corpus(), vocab_size, target)
    for vocab_size in (smallest, largest):
        assert Tokenizer.train(corpus(), vocab_size, target).vocab_size == vocab_size
    for nothing in ([], ["", "  "]):
        with pytest.raises(UserError, match="training text is empty"):
            Tokenizer.train(nothing, 300, target)


def test_faulty_files_are_named(tmp_path: Path, path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.model: cannot be read"):
        open_tokenizer(tmp_path / "none.model")
    for content in (b"no model", path.read_bytes()[:1000], b""):
        (tmp_path / "bad.model").write_bytes(content)
        with pytest.raises(UserError, match=r"bad\.model: "):
            open_tokenizer(tmp_path / "bad.model")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"x\.model: cannot be written"):
        open_tokenizer(path).save(tmp_path / "file" / "x.model")


def test_a_text_of_long_lines_is_not_called_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^the training text has no line of up to 16,384 bytes"):
        Tokenizer.train(["a b " * 5_000] * 3, 265, tmp_path / "x.model")
    with pytest.raises(UserError, match=r"^the training text is empty"):
        Tokenizer.train(["", " "], 265, tmp_path / "x.model")


def test_what_a_model_without_pieces_of_bytes_lacks_is_counted() -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, model_type="unigram", vocab_size=40, minloglevel=2,
        hard_vocab_limit=False, pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=UNK,
    )  # fmt: skip
    assert Tokenizer(model.getvalue()).unknown(["the 你好 dog", "the dog"]) == 1


def test_subwords_that_keep_white_space_are_no_characters() -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["The dog sees the cat.", "A tree walks.", "der Hund läuft"] * 20),
        model_writer=model,
        model_type="bpe",
        vocab_size=300,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
        unk_id=UNK,
    )
    theirs = Tokenizer(model.getvalue())
    assert theirs.units == "subwords"
    assert theirs.decode(theirs.encode("the dog，你\nthe  cat")) == "the dog，你 the  cat", "always a single line"


def test_a_multilingual_normalisation_leaves_the_language_out() -> None:
    inner = tiny.tokenizer()
    languages = inner.pieces([300, 301])  # any pieces will do
    tokenizer = Multilingual(inner, *languages, languages)
    text = f"{languages[1]}  Der\u00a0Hund  schläft."
    assert tokenizer.normalise(text) == inner.normalise("Der Hund schläft.") != inner.normalise(text)
