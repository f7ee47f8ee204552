"""Vocabularies that are lists of symbols: words of text that is already segmented, or characters.

The file is JSON with one symbol a line, instead of a sentencepiece model; `data.imported.open_tokenizer` reads it.
"""

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, SupportsIndex

from vaswani.data.tokenizer import Tokenizer, until_end
from vaswani.errors import UserError
from vaswani.ids import UNK

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")  # the first ids of every vocabulary here
_SEPARATORS = {"words": " ", "characters": ""}


class Listed(Tokenizer):
    """A vocabulary of `pieces`, of which the first four are `SPECIALS`; other text is unknown.

    `fields` come from the file: "pieces", and in some imported models "source_eos", false if no EOS ends a source.
    """

    lowercase = False  # as `config.data` has it, whatever an imported tokenizer does to text
    normalisation = "none"
    sentinels: tuple[int, ...] = ()

    def __init__(self, content: bytes, fields: dict, name: str) -> None:
        pieces = fields["pieces"]
        if tuple(pieces[: len(SPECIALS)]) != SPECIALS:
            raise UserError(f"{name}: its first pieces are {pieces[:4]}; they must be {', '.join(SPECIALS)}")
        self._model = content
        self._pieces = list(pieces)
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        self.vocab_size = len(pieces)
        if not fields.get("source_eos", True):
            self.source_end = ()
        self.sha256 = hashlib.sha256(content).hexdigest()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._pieces[int(number)] for number in ids]

    def _written(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """Returns the pieces up to the first EOS, without special symbols."""
        return self.pieces(number for number in until_end(ids) if number > UNK)


class Symbols(Listed):
    """The words or the characters of a training text; others are unknown, and nothing is normalised.

    White space separates words. `units` lists the source's and the target's, which share the vocabulary.
    With a `joiner`, a word that ends in it is written together with the next one: subword-nmt's is `@@`.
    """

    KIND = "symbols"
    SCHEMA: ClassVar = {"units": [str], "joiner": str}

    def __init__(self, content: bytes, fields: dict, name: str) -> None:
        super().__init__(content, fields, name)
        sides = fields["units"]
        if not sides or any(unit not in _SEPARATORS for unit in sides):
            raise UserError(f"{name}: its units are {sides}; they must be {' or '.join(_SEPARATORS)}")
        if len(self._ids) != self.vocab_size:
            raise UserError(f"{name}: damaged, one of its symbols occurs twice")
        for special in SPECIALS:
            del self._ids[special]  # text that spells one is unknown
        self.units = ",".join(sides)
        self.joiner = fields["joiner"]
        self._unit = sides[0]
        self._written_unit = sides[-1]

    @classmethod
    def of_pieces(
        cls, pieces: Sequence[str], units: Sequence[str] = ("words",), joiner: str = "", *, source_eos: bool = True
    ) -> "Symbols":
        """Returns the tokenizer of a vocabulary, with `units` of the source and of the target, or of both."""
        fields: dict[str, Any] = {"kind": cls.KIND, "units": list(units), "joiner": joiner, "pieces": list(pieces)}
        if not source_eos:
            fields["source_eos"] = False
        return cls(json.dumps(fields, ensure_ascii=False, indent=0).encode(), fields, "tokenizer")

    @classmethod
    def of(
        cls,
        records: Iterable[tuple[str, ...]],
        vocab_size: int,
        units: str,
        joiner: str = "",
        min_frequency: int = 1,
    ) -> "Symbols":
        """Returns the vocabulary of all texts of `records`, the most frequent symbols first, equal ones by their text.

        Args:
            records: texts, or sources and targets.
            vocab_size: ids, of which four are special: only the most frequent symbols are kept. 0: all.
            units: "words" or "characters", or one for each side, as in "characters,words".
            joiner: see the class.
            min_frequency: symbols with fewer occurrences are left out.

        Raises:
            UserError: `vocab_size` leaves no symbol, or is larger than the texts support, or these have no symbol.
        """
        sides = units.split(",")
        counts: Counter[str] = Counter()
        for record in records:
            for text, unit in zip(record, (sides[0], sides[-1]), strict=False):
                counts.update(_split(text, unit))
        for special in SPECIALS:  # a text that spells one must not give it a second id
            counts.pop(special, None)
        if not counts:
            raise UserError("the training text is empty: there are no symbols in it")
        counts = Counter({symbol: count for symbol, count in counts.items() if count >= min_frequency})
        if not counts:
            raise UserError(f"data.min_frequency is {min_frequency}, and no symbol of the training text is so frequent")
        largest = len(SPECIALS) + len(counts)
        vocab_size = vocab_size or largest
        if vocab_size <= len(SPECIALS):
            raise UserError(
                f"data.vocab_size is {vocab_size}; with data.units {units} it must be above {len(SPECIALS)}, the number"
                " of special ones, or 0, which keeps all symbols"
            )
        if vocab_size > largest:
            rarest = f" with data.min_frequency={min_frequency}" if min_frequency > 1 else ""
            raise UserError(
                f"data.vocab_size is {vocab_size}; with data.units {units} it must be at most {largest}: all symbols "
                f"of the training text{rarest} and four special ones; less keeps only the most frequent, and 0 keeps "
                "all"
            )
        ordered = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        pieces = [*SPECIALS, *ordered][:vocab_size]
        return cls.of_pieces(pieces, sides, joiner)

    @property
    def target(self) -> Tokenizer:
        target = copy.copy(self)
        target._unit = self._written_unit
        return target

    def normalise(self, text: str) -> str:
        """Returns the string that `decode(encode(text))` gives if all symbols of the text, a target, are known."""
        return self._text(_split(text, self._unit))

    def is_blank(self, text: str) -> bool:
        """Returns whether nothing is to be translated; an invisible character may be a word of the vocabulary."""
        has_word = self._unit == "words" and any(word in self._ids for word in text.split())
        return super().is_blank(text) and not has_word

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(symbol, UNK) for symbol in _split(text, self._unit)]

    def marked(self, ids: Iterable[SupportsIndex]) -> str:
        """Returns a text that is encoded as these ids: `decode` before it joins words."""
        return _SEPARATORS[self._written_unit].join(self._written(ids))

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        return self._text(self._written(ids))

    def joined(self, text: str) -> str:
        """Returns a text of the target's side as it is written: with the words joined that `joiner` marks."""
        return self._text(_split(text, self._written_unit))

    def word_starts(self, ids: Sequence[int]) -> list[bool]:
        """Returns whether a word begins with each symbol; a space that is one belongs to the word before it."""
        previous = [" ", *self.pieces(ids)][: len(ids)]  # of each symbol; the first begins a word
        if self._unit == "characters":
            return [piece == " " for piece in previous]
        if not self.joiner:
            return [True] * len(previous)
        return [not piece.endswith(self.joiner) for piece in previous]

    def _text(self, symbols: Sequence[str]) -> str:
        text = _SEPARATORS[self._written_unit].join(symbols)
        if not self.joiner:
            return text
        return f"{text} ".replace(f"{self.joiner} ", "").rstrip(" ")


def _split(text: str, unit: str) -> Sequence[str]:
    return text.split() if unit == "words" else text
