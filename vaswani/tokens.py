"""A model's input: token ids, the sentence that each belongs to, and its position there."""

from typing import Any, NamedTuple

from vaswani.ids import PAD


class Tokens(NamedTuple):
    """Rows of token ids. A row holds one sentence and padding, or several sentences packed one after the other.

    Segments are 0 for padding and 1, 2, .. for the sentences of the row; positions count from 0 in each sentence. The
    newest tokens of a search, one of each beam, are ids and positions [b,m] without segments (None).
    """

    # Any, because these are arrays of NumPy or JAX, or the shapes of arrays.
    ids_bt: Any  # int32
    segments_bt: Any
    positions_bt: Any

    @classmethod
    def of(cls, ids_bt: Any) -> "Tokens":
        """Returns rows of one sentence each, with positions counted along the row, as arrays of the same library."""
        library = ids_bt.__array_namespace__()
        segments_bt = (ids_bt != PAD).astype(library.int32)
        positions_t = library.arange(ids_bt.shape[1], dtype=library.int32)
        return cls(ids_bt, segments_bt, library.broadcast_to(positions_t[None], ids_bt.shape))
