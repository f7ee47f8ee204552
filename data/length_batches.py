"""Groups sentences that are only read, for validation, translation and scoring: by length, in few shapes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from vaswani.ids import PAD


class LengthBatch(NamedTuple):
    """Sentences of similar length, for the first rows of a batch of `rows` rows of `length` positions."""

    length: int
    rows: int
    members: list[int]

    def padded(self, sentences: Sequence[Sequence[int]]) -> Int32[np.ndarray, "b t"]:
        """Returns the ids of the members, of all `sentences`, one in a row."""
        ids_bt = np.full((self.rows, self.length), PAD, np.int32)
        for row, member in enumerate(self.members):
            ids_bt[row, : len(sentences[member])] = sentences[member]
        return ids_bt


def length_batches(
    lengths_n: Sequence[int] | np.ndarray,
    row_lengths: Sequence[int],
    *,
    tokens: int,
    multiple: int = 1,
    small: int = 1,
    limit: int | None = None,
) -> list[LengthBatch]:
    """Plans batches for inference: every sentence once, shortest first, in few shapes.

    Args:
        lengths_n: tokens of each sentence.
        row_lengths: ascending, doubled beyond the last as far as needed; a sentence gets the shortest that holds it.
        tokens: the most positions in one batch, unless a single row is longer.
        multiple: the number of rows is rounded up to a multiple of this.
        small: a batch that needs at most 1 / `small` of a full batch's rows has exactly that many.
        limit: no row is longer than this, unless a sentence is.
    """
    lengths_n = np.asarray(lengths_n, np.int64)
    row_lengths = list(row_lengths)
    while len(lengths_n) and row_lengths[-1] < lengths_n.max():
        row_lengths.append(2 * row_lengths[-1])
    if limit is not None:
        row_lengths = np.minimum(row_lengths, lengths_n.max(initial=limit)).tolist()
    shortest_first = np.argsort(lengths_n, kind="stable")
    row_length_n = np.searchsorted(row_lengths, lengths_n[shortest_first])
    batches = []
    for number, length in enumerate(row_lengths):
        alike = shortest_first[row_length_n == number].tolist()
        full = max(1, tokens // length)
        few = max(1, full // small)
        for start in range(0, len(alike), full):
            members = alike[start : start + full]
            rows = few if len(members) <= few else full
            batches.append(LengthBatch(length, -(-rows // multiple) * multiple, members))
    return batches
