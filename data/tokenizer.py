"""Subwords: byte-pair encoding shared by source and target (section 5.1), with sentencepiece.

Text is normalised first, by default with sentencepiece's `nmt_nfkc`: Unicode's NFKC, in which most ASCII control
characters vanish, tabs, line breaks and the invisible U+200B, U+200C, U+200E, U+200F and U+FEFF become spaces, and `～`
stays. Other choices are plain NFKC and nothing. Then runs of spaces become one, none is left at either end, and the
text is lower-cased if the tokenizer was trained so, which needs NFKC of either kind. After that nothing is lost:
`decode(encode(text)) == normalise(text)`, for characters outside the vocabulary are spelled in bytes. The model file is
the whole tokenizer; training it twice gives the same file.

Other kinds are in `data.symbols` (words, characters) and `data.imported`. Runs of earlier versions have a sentencepiece
model of characters: nothing is normalised, line feeds are characters, and those outside the vocabulary are unknown.
"""

import hashlib
import io
import itertools
import operator
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import SupportsIndex

import sentencepiece

from vaswani.data.lines import is_blank
from vaswani.errors import UserError
from vaswani.files import as_path, write_bytes
from vaswani.ids import BOS, EOS, PAD, UNK
from vaswani.machine import cpus

NORMALISATIONS = ("nfkc", "plain_nfkc", "none")
# Sentencepiece's name of a normalisation without and with lower-casing, which is part of NFKC there. "nfkc" is what it
# is in runs of earlier versions, the only one that they had.
_RULES = {
    ("nfkc", False): "nmt_nfkc",
    ("nfkc", True): "nmt_nfkc_cf",
    ("plain_nfkc", False): "nfkc",
    ("plain_nfkc", True): "nfkc_cf",
    ("none", False): "identity",
}
TRAINING_LINES = 2_000_000  # subwords of a larger corpus are learned from a fixed random sample
_LONGEST_TRAINING_LINE = 16_384  # bytes; subwords are not learned from longer lines
_BYTES = 256  # each of which is a piece
# Bytes that UTF-8 never has. No text is spelled with their pieces, so that span denoising can use them as sentinels.
_NOT_IN_UTF8 = (0xC0, 0xC1, *range(0xF5, 0x100))
_FULL_WIDTH = "\uff0c"  # a comma, which NFKC makes ASCII
_WITH_NON_JOINER = "a\u200cb"  # an invisible character that `nmt_nfkc` makes a space
STAND_IN = "\ue000"  # a private-use character, of which no subword is learned: it is spelled in bytes, or unknown
_NEWLINES = {ord("\n"): " ", ord("\r"): " "}


class Tokenizer:
    """Converts text to ids and back. Ids 0 to 3 are padding, BOS, EOS and unknown (never produced)."""

    mask = ""  # what `encode` turns into the id of a masked token, if anything
    units = "subwords"  # as `config.data` has it; so is `joiner`
    joiner = ""
    begin: tuple[int, ...] = ()  # what each text of this side begins with: a language, of a multilingual model
    source_end: tuple[int, ...] = (EOS,)  # what ends a source as the model reads it; nothing in some imported models
    source_vocab_size: int | None = None  # if the source has a separate vocabulary; `vocab_size` is then the target's

    _spells_bytes = False

    def __init__(self, model: bytes, name: str = "tokenizer"):
        self._model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise UserError(f"{name}: not a sentencepiece model, or damaged") from error
        specials = [getattr(self._processor, f"{special}_id")() for special in ("pad", "bos", "eos", "unk")]
        if specials != [PAD, BOS, EOS, UNK]:
            raise UserError(f"{name}: its ids of pad, bos, eos, unk are {specials}; they must be 0, 1, 2, 3")
        self.vocab_size: int = self._processor.get_piece_size()
        self.sha256: str = hashlib.sha256(model).hexdigest()
        keeps_white_space = self._processor.normalize(" ") != ""  # so do some models of subwords
        if keeps_white_space and all(len(piece) == 1 for piece in self.pieces(range(UNK + 1, self.vocab_size))):
            self.units = "characters"
        self.lowercase: bool = self.normalise("A") == "a"
        self.normalisation = normalisation_of(self)
        free = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in _NOT_IN_UTF8]
        # A model of characters has none.
        self.sentinels: tuple[int, ...] = tuple(piece for piece in free if piece != UNK)
        self._spells_bytes = bool(self.sentinels)

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        path: str | Path,
        *,
        normalisation: str = "nfkc",
        lowercase: bool = False,
        symbols: re.Pattern[str] | None = None,
    ) -> "Tokenizer":
        """Learns `vocab_size` subwords from `lines` and writes the model to `path`.

        What matches `symbols` at the start of a word becomes a single subword, however rare it is.

        Raises:
            UserError: `vocab_size` is larger or smaller than the text allows (the message gives the limit), or the
                normalisation is none of `NORMALISATIONS`, or "none" with `lowercase`.
        """
        if (normalisation, lowercase) not in _RULES:
            raise UserError(
                f"data.normalisation is {normalisation} and data.lowercase {lowercase}: take nfkc, plain_nfkc, or none"
                " without lower-casing"
            )
        sample = _sample(lines, TRAINING_LINES)
        whole_words = set()
        if symbols:
            whole_words = {f"▁{word}" for line in sample for word in symbols.findall(line)}
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sample),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                user_defined_symbols=sorted(whole_words),
                byte_fallback=True,
                character_coverage=0.9999,  # the rarest characters fall back to bytes instead of getting an id each
                normalization_rule_name=_RULES[normalisation, lowercase],
                max_sentence_length=_LONGEST_TRAINING_LINE,
                pad_id=PAD,
                bos_id=BOS,
                eos_id=EOS,
                unk_id=UNK,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise UserError(_explain(str(error), vocab_size, sample)) from error
        tokenizer = cls(model.getvalue())
        tokenizer.save(path)
        return tokenizer

    @property
    def content(self) -> bytes:
        """The bytes of its file."""
        return self._model

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer of target sides: another one of a `Pair`, and of some others, with the same vocabulary."""
        return self

    def save(self, path: str | Path) -> None:
        """Writes the model file atomically."""
        path = as_path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, self._model)
        except OSError as error:
            raise UserError(f"tokenizer {path}: cannot be written ({error.strerror})") from error

    def normalise(self, text: str) -> str:
        """Returns the string that `decode(encode(text))` gives; of characters, if all are in the vocabulary."""
        normalised = self._processor.normalize(encodable(text)).replace("▁", " ")
        return normalised if self.units == "characters" else normalised.strip(" ").translate(_NEWLINES)

    def joined(self, text: str) -> str:
        """Returns a text of the target's side as it is written, if the corpus has marks in it that `decode` removes."""
        return text

    def marked(self, ids: Iterable[SupportsIndex]) -> str:
        """Returns a text of the target's side that is encoded as these ids, with the marks that `decode` removes."""
        return self.decode(ids)

    def unknown(self, texts: Iterable[str]) -> int:
        """Returns how many symbols of `texts` the vocabulary lacks: none if it can spell them in bytes."""
        if self._spells_bytes:
            return 0
        return sum(self.encode(text).count(UNK) for text in texts)

    def leading(self, text: str) -> str:
        """Returns the beginning of a source that each part of it needs: the target's language, or T5's task."""
        return ""

    def word_starts(self, ids: Sequence[int]) -> list[bool]:
        """Returns whether a word begins with each subword; not every model puts a space before the first."""
        return [place == 0 or piece.startswith("▁") for place, piece in enumerate(self.pieces(ids))]

    def encode(self, text: str) -> list[int]:
        """Returns the subword ids of `text`, without special symbols; [] for an empty text."""
        return self._processor.encode(encodable(text))

    def is_blank(self, text: str) -> bool:
        """Returns whether nothing in a source is to be translated: it is white space and invisible characters."""
        return is_blank(text)

    def source_ids(self, text: str) -> list[int]:
        """Returns the ids of a source as the model reads it: the subwords of `text`, and EOS (see `source_end`)."""
        return [*self.encode(text), *self.source_end]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns `encode` of every text, computed on all CPUs."""
        return self._processor.encode([encodable(text) for text in texts], num_threads=cpus())

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns each id's piece as text, special symbols included, for labels; `▁` marks the start of a word."""
        return [self._processor.id_to_piece(int(piece)) for piece in ids]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Returns the text of `ids` up to the first EOS, without special symbols; of subwords, always a single line."""
        text = self._processor.decode([piece for piece in until_end(ids) if piece > UNK])
        # A model can spell a line feed in bytes; line i of the input must stay line i of the output.
        return text if self.units == "characters" else text.translate(_NEWLINES)


def normalisation_of(tokenizer: Tokenizer) -> str:
    """Returns one of `NORMALISATIONS`, by what becomes of a full-width comma and a zero-width non-joiner."""
    if tokenizer.normalise(_FULL_WIDTH) == _FULL_WIDTH:
        return "none"
    return "plain_nfkc" if tokenizer.normalise(_WITH_NON_JOINER) == _WITH_NON_JOINER else "nfkc"


def encodable(text: str) -> str:
    """Replaces unpaired surrogates, which a Python string can hold but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def until_end(ids: Iterable[SupportsIndex]) -> Iterable[int]:
    """Returns the ids before the first EOS."""
    return itertools.takewhile(lambda number: number != EOS, map(operator.index, ids))


def _sample(lines: Iterable[str], count: int) -> list[str]:
    """Returns all lines, or of more than `count` a uniform random sample, which is the same for the same lines."""
    sample: list[str] = []
    choice = random.Random(0)
    for index, line in enumerate(lines):
        if index < count:
            sample.append(line)
            continue
        place = choice.randrange(index + 1)
        if place < count:
            sample[place] = line
    return sample


def _explain(error: str, vocab_size: int, sample: Sequence[str]) -> str:
    if largest := re.search(r"value <= (\d+)", error):
        return (
            f"data.vocab_size is {vocab_size}, more than the training text supports: the largest that would do is"
            f" {largest[1]}"
        )
    if smallest := re.search(r"(\d+) vs (\d+)", error):
        return (
            f"data.vocab_size is {vocab_size}, fewer than the bytes and characters of the training text: the"
            f" smallest that would do is {smallest[2]}"
        )
    if "sentences_.empty()" in error or "all_chars_count" in error:
        if any(len(encodable(line).encode()) > _LONGEST_TRAINING_LINE for line in sample):
            return (
                f"the training text has no line of up to {_LONGEST_TRAINING_LINE:,} bytes, and subwords are not learned"
                " from longer ones: break its lines"
            )
        return "the training text is empty: there is nothing to learn subwords from"
    if vocab_size <= _BYTES:
        return f"data.vocab_size is {vocab_size}, fewer than the bytes and characters of the training text"
    return f"sentencepiece could not learn {vocab_size} subwords: {' '.join(error.split())}"
