"""Tokenizers that came with imported models, in JSON files instead of a sentencepiece model.

A special token that a text spells, such as `</s>`, is read as that token, as transformers does.
`open_tokenizer` reads any kind. `Tokenizer.target` is the tokenizer of the target side, where that is another one.
"""

import base64
import copy
import json
import operator
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar, SupportsIndex

import sentencepiece

from vaswani.data.multilingual import Multilingual
from vaswani.data.pair import Pair
from vaswani.data.symbols import SPECIALS, Listed, Symbols
from vaswani.data.tokenizer import Tokenizer, encodable, normalisation_of
from vaswani.errors import UserError, pip_install
from vaswani.files import as_path, read_bytes
from vaswani.ids import BOS, EOS, PAD, UNK
from vaswani.read_json import check

_END = "</w>"
_T5_TASK = re.compile(r"(translate \w+ to \w+|summarize): ")  # those whose source is a text, which may be cut
# What transformers' Marian reads as special tokens wherever a text spells them. `<pad>` also begins targets.
_SPELLED = {"</s>": EOS, "<unk>": UNK, "<pad>": BOS}
_SPELLED_TOKEN = re.compile(f"({'|'.join(_SPELLED)})")
_PADDING = 256  # ids that a model may have beyond its tokenizer's, so that their number is a round one


def open_tokenizer(path: str | Path) -> Tokenizer:
    """Reads a tokenizer of any kind; `UserError` if it is missing or damaged."""
    path = as_path(path)
    try:
        content = read_bytes(path)
    except OSError as error:
        raise UserError(f"tokenizer {path}: cannot be read ({error.strerror})") from error
    return _tokenizer_of(content, path)


def _tokenizer_of(content: bytes, path: Path) -> Tokenizer:
    """Returns the tokenizer whose file has this content; errors name `path`."""
    if not content.startswith(b"{"):
        return Tokenizer(content, str(path))
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: neither a sentencepiece model nor JSON") from error
    check(path, "", fields, {"kind": str})
    if fields["kind"] == Pair.KIND:
        check(path, "", fields, Pair.SCHEMA)
        source, target = (_tokenizer_of(_file_in(fields, side, str(path)), path) for side in Pair.SCHEMA)
        return Pair(source, target)
    if fields["kind"] == Multilingual.KIND:
        check(path, "", fields, Multilingual.SCHEMA)
        inner = _tokenizer_of(_file_in(fields, "tokenizer", str(path)), path)
        return Multilingual(inner, fields["source"], fields["target"], fields["languages"], str(path))
    check(path, "", fields, {"pieces": [str]})
    for kind in (Symbols, Marian, MosesBpe, ByteLevel, WordPiece, Unigram):
        if fields["kind"] == kind.KIND:
            check(path, "", fields, kind.SCHEMA)
            _to_bytes(fields, str(path))
            return kind(content, fields, str(path))
    raise UserError(f"{path}: a tokenizer of kind {fields['kind'][:40]!r}, which this version does not know")


def _file_in(fields: dict, key: str, name: str) -> bytes:
    """Returns the file that a field has in base64; `UserError` if it is damaged, or empty."""
    try:
        content = base64.b64decode(fields[key], validate=True)
    except ValueError:
        content = b""
    if not content:
        raise UserError(f"{name}: damaged: {key} is no file in base64")
    return content


def encode_records(tokenizer: Tokenizer, records: Sequence[tuple[str, ...]]) -> list[tuple[list[int], ...]]:
    """Returns the ids of the source and the target of each of one or more records, or of its one text."""
    sources, *targets = zip(*records, strict=True)
    encoded = [tokenizer.encode_batch(sources)]
    encoded += [tokenizer.target.encode_batch(texts) for texts in targets]
    return list(zip(*encoded, strict=True))


def _to_bytes(fields: dict, name: str) -> bytes:
    """Returns a tokenizer's file; `UserError` if a text in it is not Unicode, but half of a pair of surrogates."""
    try:
        return json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{name}: one of its texts is not Unicode ({error.object[error.start]!a})") from error


def is_of_tokenizers(error: BaseException) -> bool:
    """Returns whether the package tokenizers may raise this: any `Exception`, or a panic of its Rust code."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


class Marian(Listed):
    """opus-mt's tokenizer: a sentencepiece model for each side, and one vocabulary with the pieces of both.

    In a multilingual model a source may begin with the target's language, as `>>deu<<`.
    """

    KIND = "marian"
    SCHEMA: ClassVar = {"source": str, "target": str}

    def __init__(self, content: bytes, fields: dict, name: str) -> None:
        super().__init__(content, fields, name)
        models = [_file_in(fields, side, name) for side in self.SCHEMA]
        try:
            self._sides = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
        except RuntimeError as error:
            raise UserError(f"{name}: one of its sentencepiece models is damaged") from error
        self.models = models  # the files, of the source and of the target
        self._processor = self._sides[0]
        self.normalisation = normalisation_of(self)

    @classmethod
    def of(cls, pieces: Sequence[str], source: bytes, target: bytes, *, source_eos: bool = True) -> "Marian":
        """Returns the tokenizer of a vocabulary and two sentencepiece models."""
        fields: dict[str, Any] = {
            "kind": cls.KIND,
            "pieces": list(pieces),
            "source": base64.b64encode(source).decode(),
            "target": base64.b64encode(target).decode(),
        }
        if not source_eos:
            fields["source_eos"] = False
        return cls(_to_bytes(fields, "tokenizer"), fields, "tokenizer")

    @property
    def target(self) -> Tokenizer:
        target = copy.copy(self)
        target._processor = self._sides[1]
        return target

    def leading(self, text: str) -> str:
        """Returns the target's language that a source begins with, as `>>deu<<`; "" if it names none."""
        if not text.startswith(">>") or "<<" not in text:
            return ""
        return text[: text.find("<<") + len("<<")]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in _SPELLED_TOKEN.split(encodable(text)):
            ids += [_SPELLED[part]] if part in _SPELLED else self._encode_plain(part)
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        """Returns the ids of a text without special tokens; a language at its start is one."""
        language = self.leading(text)
        pieces = self._processor.encode(text[len(language) :], out_type=str)
        if language:
            pieces = [language, *pieces]
        return [self._ids.get(piece, UNK) for piece in pieces]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        return " ".join(self._processor.decode_pieces(self._written(ids)).replace("▁", " ").split())


class MosesBpe(Listed):
    """fairseq's: the Moses tokeniser, then subword-nmt's byte-pair encoding, `@@` after a piece within a word."""

    KIND = "moses-bpe"
    SCHEMA: ClassVar = {"languages": [str], "codes": [str]}

    def __init__(self, content: bytes, fields: dict, name: str) -> None:
        super().__init__(content, fields, name)
        self._languages = fields["languages"]
        codes = fields["codes"]
        if len(self._languages) != 2:
            raise UserError(f"{name}: it must name two languages, source and target")
        # As subword-nmt does, without what ends a line elsewhere.
        lines = [line.strip("\r ") for line in codes]
        merges = [line.split(" ") for line in lines if line.strip() and not line.startswith("#version")]
        if not merges:
            raise UserError(f"{name}: its codes are empty; they must be lines of two pieces")
        if any(len(merge) not in (2, 3) for merge in merges):
            raise UserError(f"{name}: its codes are not subword-nmt's or fastBPE's, lines of two pieces")
        # In the first version of subword-nmt the end of a word was a separate symbol. fastBPE also gives counts.
        self._own_end = not (codes[0].startswith("#version: 0.2") or len(merges[0]) == 3)
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, (left, right, *_) in enumerate(merges):
            self._ranks.setdefault((left, right), rank)
        self._side = 0
        self._word = lru_cache(maxsize=100_000)(self._split)

    @classmethod
    def of(
        cls, pieces: Sequence[str], codes: Sequence[str], languages: Sequence[str], name: str = "tokenizer"
    ) -> "MosesBpe":
        """Returns the tokenizer of a vocabulary, the lines of a file of codes, and two languages, source first.

        An error calls it `name`.
        """
        fields = {"kind": cls.KIND, "pieces": list(pieces), "codes": list(codes), "languages": list(languages)}
        return cls(_to_bytes(fields, name), fields, name)

    @property
    def target(self) -> Tokenizer:
        target = copy.copy(self)
        target._side = 1
        target.__dict__.pop("_moses", None)  # the source's, if it has been made
        return target

    @cached_property
    def _moses(self) -> Any:
        import sacremoses  # only now: it takes a second, and every command that opens a run imports this file

        return sacremoses.MosesTokenizer(self._languages[self._side])

    @cached_property
    def _detokenizer(self) -> Any:
        import sacremoses

        return sacremoses.MosesDetokenizer(self._languages[1])

    def normalise(self, text: str) -> str:
        """Returns `decode(encode(text))`."""
        return self.decode(self.encode(text))

    def encode(self, text: str) -> list[int]:
        words = self._moses.tokenize(encodable(text), aggressive_dash_splits=True)
        return [self._ids.get(piece, UNK) for word in words for piece in self._word(word)]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        text = f"{' '.join(self._written(ids))} ".replace("@@ ", "")
        return self._detokenizer.detokenize(text.split())

    def word_starts(self, ids: Sequence[int]) -> list[bool]:
        """Returns whether one of Moses' tokens begins with each piece: each but those behind an `@@`."""
        previous = ["", *self.pieces(ids)][: len(ids)]
        return [not piece.endswith("@@") for piece in previous]

    def _split(self, word: str) -> tuple[str, ...]:
        """Returns the pieces of one word: of all pairs of neighbours the one learned first is merged, repeatedly."""
        parts = [*word, _END] if self._own_end else [*word[:-1], word[-1] + _END]
        while len(parts) > 1:
            first_learned = min(pairwise(parts), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if first_learned not in self._ranks:
                break
            parts = _merge(parts, first_learned)
        if parts[-1] == _END:
            parts = parts[:-1]
        else:
            parts[-1] = parts[-1].removesuffix(_END)
        *beginning, end = parts
        return (*(f"{part}@@" for part in beginning), end)


def _merge(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """Returns the parts with each occurrence of the pair, from left to right, as one part."""
    merged = []
    place = 0
    while place < len(parts):
        if tuple(parts[place : place + 2]) == pair:
            merged.append(pair[0] + pair[1])
            place += 2
        else:
            merged.append(parts[place])
            place += 1
    return merged


class _Inner(Listed):
    """A tokenizer of the package `tokenizers`; the field `ids` has its id for each of our pieces."""

    KIND = ""
    SCHEMA: ClassVar = {"ids": [int], "tokenizer": dict}

    def __init__(self, content: bytes, fields: dict, name: str) -> None:
        super().__init__(content, fields, name)
        try:
            from tokenizers import Tokenizer as Inner
        except ModuleNotFoundError as error:
            raise UserError(f"{name}: it needs the package tokenizers: {pip_install('convert')}") from error
        try:
            self._inner = Inner.from_str(json.dumps(fields["tokenizer"]))
            # How texts were last cut and filled up is saved with a tokenizer; transformers turns it off in each call.
            self._inner.no_truncation()
            self._inner.no_padding()
        except BaseException as error:
            if not is_of_tokenizers(error):
                raise
            raise UserError(f"{name}: its tokenizer is damaged ({str(error)[:100]})") from error
        self._unknown = UNK
        self._theirs = fields["ids"]
        if len(self._theirs) != self.vocab_size or not all(0 <= number < 2**31 for number in self._theirs):
            raise UserError(f"{name}: it must have an id, of 31 bits, for each of its {self.vocab_size} pieces")
        self._ours = {number: place for place, number in enumerate(self._theirs) if place > UNK}
        # What a text spells of the special tokens. One of theirs may be several of ours with one vector: GPT-2's is
        # read as EOS, the only one that is not improbable as an output (`infer.convert.vocabulary.bias_of_copies`),
        # and T5's padding as BOS, since our padding is no token.
        for place in (BOS, UNK, EOS):
            self._ours[self._theirs[place]] = place

    @classmethod
    def of(cls, inner: Any, rows: Sequence[int], name: str) -> "_Inner":
        """Returns the tokenizer that does what `inner`, a `tokenizers.Tokenizer`, does, with ids in our order."""
        vocabulary = inner.get_vocab()
        largest = max(vocabulary.values(), default=-1)
        own_rows = rows[len(SPECIALS) :]
        names = [inner.id_to_token(row) for row in own_rows]
        if largest > max(rows) or names.count(None) > min(_PADDING, len(names) // 2):
            raise UserError(
                f"{name}: its tokenizer has {len(vocabulary)} ids up to {largest}, and its model {max(rows) + 1}"
            )
        pieces = [piece or f"<{row}>" for piece, row in zip(names, own_rows, strict=True)]
        fields = {
            "kind": cls.KIND,
            "pieces": [*SPECIALS, *pieces],
            "ids": list(rows),
            "tokenizer": json.loads(inner.to_str()),
        }
        return cls(_to_bytes(fields, name), fields, name)

    def normalise(self, text: str) -> str:
        """Returns `decode(encode(text))`."""
        return self.decode(self.encode(text))

    def encode(self, text: str) -> list[int]:
        their_ids = self._inner.encode(encodable(text), add_special_tokens=False).ids
        return [self._ours.get(number, self._unknown) for number in their_ids]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Returns the text of `ids`, with each EOS that more of it follows, as this engine's texts may have."""
        written = [number for number in map(operator.index, ids) if number == EOS or number > UNK]
        while written and written[-1] == EOS:
            written.pop()
        return self._inner.decode([self._theirs[number] for number in written], skip_special_tokens=False)


class ByteLevel(_Inner):
    """Of GPT-2: byte-pair encoding of bytes, in which nothing is lost."""

    KIND = "byte-level"

    def normalise(self, text: str) -> str:
        """Returns the text."""
        return encodable(text)


class WordPiece(_Inner):
    """Of BERT: the longest pieces of each word. [CLS] and [SEP] are BOS, with which a text begins, and EOS."""

    KIND = "word-piece"
    mask = "[MASK]"

    def __init__(self, content: bytes, fields: dict, name: str) -> None:
        super().__init__(content, fields, name)
        self._unknown = self._ids.get("[UNK]", UNK)  # UNK is [MASK]

    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        return [BOS, *ids] if ids else []


class Unigram(_Inner):
    """Of T5: sentencepiece's unigram model, and the sentinels of span denoising."""

    KIND = "unigram"

    def __init__(self, content: bytes, fields: dict, name: str) -> None:
        super().__init__(content, fields, name)
        sentinels = (self._ids.get(f"<extra_id_{number}>", PAD) for number in range(self.vocab_size))
        self.sentinels = tuple(takewhile(lambda number: number != PAD, sentinels))
        self.normalisation = normalisation_of(self)

    def leading(self, text: str) -> str:
        """Returns the task of T5 that a source begins with, as `summarize: `; "" if it names none."""
        found = _T5_TASK.match(text)
        return found[0] if found else ""
