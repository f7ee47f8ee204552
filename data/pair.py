"""Two tokenizers in one file: the source's and the target's, with separate vocabularies."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import ClassVar, SupportsIndex

from vaswani.data.tokenizer import Tokenizer


class Pair(Tokenizer):
    """Encodes sources with one tokenizer, and encodes and decodes targets with another, `target`.

    The file is JSON, with the files of both in base64. `pieces` are the source's; `vocab_size` is the target's.
    """

    KIND = "pair"
    SCHEMA: ClassVar = {"source": str, "target": str}

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self.source = source
        self._target = target
        fields = {"kind": self.KIND}
        for side, tokenizer in (("source", source), ("target", target)):
            fields[side] = base64.b64encode(tokenizer.content).decode()
        self._model = json.dumps(fields, indent=0).encode()
        self.sha256 = hashlib.sha256(self._model).hexdigest()
        self.vocab_size = target.vocab_size
        self.source_vocab_size = source.vocab_size
        same_units = source.units == target.units
        self.units = source.units if same_units else f"{source.units},{target.units}"
        self.source_end = source.source_end
        self.joiner = target.joiner
        self.lowercase = source.lowercase
        self.normalisation = source.normalisation
        self.sentinels = ()

    @property
    def target(self) -> Tokenizer:
        return self._target

    # Sources

    def encode(self, text: str) -> list[int]:
        return self.source.encode(text)

    def is_blank(self, text: str) -> bool:
        return self.source.is_blank(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self.source.encode_batch(texts)

    def normalise(self, text: str) -> str:
        return self.source.normalise(text)

    def unknown(self, texts: Iterable[str]) -> int:
        return self.source.unknown(texts)

    def leading(self, text: str) -> str:
        return self.source.leading(text)

    def word_starts(self, ids: Sequence[int]) -> list[bool]:
        return self.source.word_starts(ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return self.source.pieces(ids)

    # Targets

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        return self._target.decode(ids)

    def joined(self, text: str) -> str:
        return self._target.joined(text)

    def marked(self, ids: Iterable[SupportsIndex]) -> str:
        return self._target.marked(ids)
