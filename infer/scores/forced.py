"""Teacher-forced batches: sentences of similar length, padded, with the true words as the decoder's input."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from data.batching import length_batches
from infer.runs import user_error_if_too_long


def forced_batches(
    apply: Callable[..., Any],
    *sides: Sequence[Sequence[int]],
    width: int,
    tokens: int,
    limit: int | None,
    doubled: bool = False,
    multiple: int = 1,
) -> Iterator[tuple[list[int], Any]]:
    """Yields the sentences of each batch, as their numbers from 0, and what `apply` returns of it; shortest first.

    Row i of the result belongs to sentence `members[i]`; rows behind those are padding.

    Args:
      apply: a function of one array [b,t] of padded ids for each side.
      sides: the ids of every sentence, with BOS or EOS as the model reads them; sentence i of each side is one pair.
      width: row lengths are multiples of this, so that few shapes are compiled.
      tokens: the most positions in one side of a batch.
      limit: the learned positions, if any; no row is longer.
      doubled: instead of every multiple of `width`, row lengths are `width` doubled as often as needed.
      multiple: the number of rows is a multiple of this.

    Raises:
      UserError: a sentence is longer than the learned positions.
    """
    lengths = [max(map(len, pair)) for pair in zip(*sides, strict=True)]
    longest = max(lengths, default=0)
    row_lengths: Sequence[int] = range(width, longest + width, width)
    if doubled:
        row_lengths = (width,)  # `length_batches` doubles the last
    for batch in length_batches(lengths, row_lengths, tokens=tokens, multiple=multiple, limit=limit):
        padded = [batch.padded(side) for side in sides]
        with user_error_if_too_long():
            output = apply(*padded)
        yield batch.members, output
