"""Which of another model's ids is each of ours, whose first four are special."""

from collections.abc import Mapping, Sequence

import numpy as np

from base.errors import UserError
from base.ids import BOS, EOS, PAD, UNK
from data.imported import SPECIALS

LARGEST = 2**24  # subwords
# Added to the logit of a special symbol that has no row of its own there and is given another's: its probability is
# then a float32's resolution of the other's.
COPY_BIAS = -30.0


def our_rows(size: int, *, pad: int, start: int, eos: int, unk: int) -> list[int]:
    """Returns for each of our ids theirs: the special ones, then all others in their order.

    One that serves twice there, as a start token that is also the end, has two rows here.

    Raises:
      UserError: a special id is not below `size`, or that is larger than any vocabulary.
    """
    specials = [pad, start, eos, unk]
    if not all(0 <= number < size <= LARGEST for number in specials):
        raise UserError(f"a vocabulary of {size} with {specials} for pad, start, eos and unk: these must be below it")
    return specials + [number for number in range(size) if number not in specials]


def bias_of_copies(rows: Sequence[int]) -> np.ndarray:
    """Returns `COPY_BIAS` for special rows that are copies of another, and 0 for all others."""
    bias_v = np.zeros(len(rows), np.float32)
    for number, originals in ((PAD, (EOS,)), (BOS, (EOS, PAD)), (UNK, (EOS, PAD))):
        if rows[number] in [rows[original] for original in originals]:
            bias_v[number] = COPY_BIAS
    return bias_v


def our_pieces(rows: Sequence[int], theirs: Mapping[int, str]) -> list[str]:
    """Returns our vocabulary, in which a piece without a name, or with that of a special symbol, is called `<ID>`."""
    names = [theirs.get(row, "") for row in rows[len(SPECIALS) :]]
    return [
        *SPECIALS,
        *(
            f"<{row}>" if name in ("", *SPECIALS) else name
            for row, name in zip(rows[len(SPECIALS) :], names, strict=True)
        ),
    ]


def head_width(source: object, d_model: int, heads: int) -> int:
    """Returns the width of one head; `UserError` if the heads do not divide the model."""
    if heads < 1 or d_model < 1 or d_model % heads:
        raise UserError(f"{source}: {heads} heads of a model of width {d_model}; they must divide it")
    return d_model // heads


def wrong_weights(source: object, error: Exception) -> UserError:
    """Returns the error for weights that a model of the given sizes does not have."""
    return UserError(f"{source}: its weights are not those of its settings ({type(error).__name__}: {error})")
