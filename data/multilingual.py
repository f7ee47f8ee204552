"""A tokenizer of a multilingual model, in which each text begins with a token: its language."""

import base64
import copy
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import ClassVar, SupportsIndex

from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError, format_value


class Multilingual(Tokenizer):
    """Begins each source with the language token of `source`, and each target with the one of `target`.

    A text may instead name another of the `languages`, which are pieces of `inner`, as its first word. `decode` leaves
    languages out. The file is JSON, with `inner`'s file in base64.

    Raises:
      UserError: a language is none of `languages`, or one of these is no piece; the message begins with `name`.
    """

    KIND = "multilingual"
    SCHEMA: ClassVar = {"source": str, "target": str, "languages": [str], "tokenizer": str}

    def __init__(
        self, inner: Tokenizer, source: str, target: str, languages: Sequence[str], name: str = "tokenizer"
    ) -> None:
        self.inner = inner
        ids = {piece: number for number, piece in enumerate(inner.pieces(range(inner.vocab_size)))}
        self._ids = {language: ids[language] for language in languages if language in ids}
        for language in (source, target, *languages):
            if language not in self._ids:
                # Some models have hundreds of languages.
                raise UserError(
                    f"{name}: {format_value(language)} is none of its languages: {', '.join(self._ids)}"[:300]
                )
        self._target = target
        self.begin = (self._ids[source],)
        fields = {
            "kind": self.KIND,
            "source": source,
            "target": target,
            "languages": list(languages),
            "tokenizer": base64.b64encode(inner.content).decode(),
        }
        self._model = json.dumps(fields, indent=0).encode()
        self.sha256 = hashlib.sha256(self._model).hexdigest()
        self.vocab_size = inner.vocab_size
        self.source_end = inner.source_end
        self.lowercase = inner.lowercase
        self.normalisation = inner.normalisation
        self.sentinels = ()

    @property
    def target(self) -> Tokenizer:
        # The same pieces, but a text begins with the target's language.
        target = copy.copy(self)
        target.inner = self.inner.target
        target.begin = (self._ids[self._target],)
        return target

    def leading(self, text: str) -> str:
        """Returns the language that a text begins with, and the space behind it; "" if it names none."""
        word, space, _ = text.partition(" ")
        return word + space if word in self._ids else ""

    def encode(self, text: str) -> list[int]:
        """Returns the language, by default this side's, and the subword ids; [] for an empty text."""
        language = self.leading(text)
        ids = self.inner.encode(text[len(language) :])
        if language:
            return [self._ids[language.rstrip(" ")], *ids]
        return [*self.begin, *ids] if ids else []

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def normalise(self, text: str) -> str:
        return self.inner.normalise(text[len(self.leading(text)) :])

    def word_starts(self, ids: Sequence[int]) -> list[bool]:
        return self.inner.word_starts(ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return self.inner.pieces(ids)

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        languages = self._ids.values()
        return self.inner.decode([number for number in ids if int(number) not in languages])
