"""What a translation begins with, in characters: the last word may be unfinished, as while one types.

`Der Hu` is the tokens of `Der` and then any that spell `Hu`, or more: one `Hund`, or `Hu` and `nd`. Pieces are compared
in bytes, since some vocabularies spell rare characters so.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import UNK

_BYTE = re.compile("<0x([0-9A-F]{2})>")
SPACE = "▁".encode()


class Beginning(NamedTuple):
    """Tokens that a translation begins with, and the bytes that those after them spell."""

    ids: list[int]
    rest: bytes


def beginning_of(tokenizer: Tokenizer, text: str, line: int) -> Beginning:
    """Returns the tokens of the words of `text` but the last, and the bytes of that; of `Der Hund ` the space is last.

    `tokenizer` is the target's; errors name the `line`.

    Raises:
      UserError: its pieces do not spell the text.
    """
    ids = tokenizer.encode(text)
    spelled = b"".join(spellings(tokenizer)[number] for number in ids)
    if spelled.replace(SPACE, b" ").strip() != tokenizer.normalise(text).strip().encode():
        raise UserError(
            f"line {line}: the pieces of this vocabulary do not spell {text!r}, so no word of it can go on; "
            "require a prefix of whole words"
        )
    if text[-1:].isspace():
        return Beginning(ids, SPACE)
    begins = [place for place, is_start in enumerate(tokenizer.word_starts(ids)) if is_start]
    last = max(begins, default=0)
    return Beginning(ids[:last], b"".join(spellings(tokenizer)[number] for number in ids[last:]))


@lru_cache(maxsize=2)
def spellings(tokenizer: Tokenizer) -> tuple[bytes, ...]:
    """Returns the bytes of each piece, where a space is `SPACE`; of a special token none."""
    found: list[bytes] = []
    for number, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        byte = _BYTE.fullmatch(piece)
        spelled = bytes([int(byte[1], 16)]) if byte else piece.encode()
        found.append(spelled if number > UNK else b"")
    return tuple(found)


def allowed_at(spelled: tuple[bytes, ...], rest: bytes) -> Bool[np.ndarray, "l v"]:
    """Tests which tokens may follow when l bytes of `rest` are spelled, so that the whole of it still can be."""
    size = len(rest)
    allowed_lv = np.zeros((size, len(spelled)), bool)
    pieces_v = np.array(spelled)
    # From the last place on: whether what is left there can be spelled.
    can_be = [False] * size
    for place in reversed(range(size)):
        left = rest[place:]
        # Tokens that spell all that is left, or more; then those that spell some of it, if the others can go on.
        allowed_lv[place] = np.char.startswith(pieces_v, left)
        for length in range(1, len(left)):
            if can_be[place + length]:
                allowed_lv[place] |= pieces_v == left[:length]
        can_be[place] = bool(allowed_lv[place].any())
    return allowed_lv


def spelling_of(tokenizer: Tokenizer, rests: Sequence[bytes], rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the fields of the `Spelling` of a batch of `rows`; those behind the given ones spell nothing."""
    spelled = spellings(tokenizer)
    longest = -(-max(map(len, rests)) // 8) * 8  # few lengths, so that few functions are compiled
    allowed_blv = np.zeros((rows, longest, len(spelled)), bool)
    for row, rest in enumerate(rests):
        allowed_blv[row, : len(rest)] = allowed_at(spelled, rest)
    size_b = np.zeros(rows, np.int32)
    size_b[: len(rests)] = [len(rest) for rest in rests]
    bytes_bv = np.tile(np.array([len(piece) for piece in spelled], np.int32), (rows, 1))
    return size_b, allowed_blv, bytes_bv
