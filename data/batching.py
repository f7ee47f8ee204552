"""Plans which sentence pairs form a batch, and makes the arrays, of static shape (section 5.1).

A plan covers a whole epoch and depends only on the sentence lengths and the seed, so it is the same in every process
and cheap to recompute on resume. Two plans share one interface: `bucket_plan` puts one pair in each row, with pairs of
similar length in a batch (as the paper does); `pack_plan` packs several pairs into a row, with segment ids. Each holds
every pair once. `length_batches` groups sentences for validation, translation and scoring.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from base.errors import UserError
from base.ids import BOS, PAD

Record = tuple[np.ndarray, np.ndarray]  # source ids, target ids; EOS ends both
_OPEN_ROWS = 16  # rows that a stream of `pack_plan` fills at a time; more take longer and hardly save padding
_PAIRS_PER_STREAM = 2_000  # a stream leaves its last rows partly empty, so a small corpus gets few streams


class Batch(NamedTuple):
    """One batch: `b` rows of `s` source and `t` target positions; padding is 0 in all arrays.

    A segment is a sentence pair: 1 is the first of its row, 0 is padding. Positions restart with each segment.
    """

    source_bs: Int32[np.ndarray, "b s"]  # y1 .. yn EOS
    target_in_bt: Int32[np.ndarray, "b t"]  # BOS y1 .. yn
    target_out_bt: Int32[np.ndarray, "b t"]  # y1 .. yn EOS
    source_segments_bs: Int32[np.ndarray, "b s"]
    source_positions_bs: Int32[np.ndarray, "b s"]
    target_segments_bt: Int32[np.ndarray, "b t"]
    target_positions_bt: Int32[np.ndarray, "b t"]


class PlannedBatch(NamedTuple):
    """A batch before its ids are read: row `b` holds the pairs with numbers `rows_bc[b]`; -1 is none."""

    row_length_source: int
    row_length_target: int
    rows_bc: Int32[np.ndarray, "b c"]


def bucket_plan(
    lengths_n2: Int32[np.ndarray, "n 2"],
    *,
    tokens: int,
    buckets: Sequence[int],
    seed: int = 0,
    epoch: int = 0,
) -> list[PlannedBatch]:
    """Plans an epoch with one pair per row; a pair goes to the smallest bucket that holds its longer side.

    Pairs left over from a bucket's full batches move to the next larger bucket, the longest first, since they need the
    least padding there. Only the last batch of the epoch may have empty rows.

    Args:
        lengths_n2: tokens of each pair's source and target, EOS included.
        tokens: the most positions per side in one batch.
        buckets: row lengths, ascending; each gives one batch shape.
        seed: with `epoch`, determines the order of rows and of batches.
        epoch: counts from 0.

    Raises:
        UserError: a pair is longer than the largest bucket, or `tokens` is too small for a bucket that is needed.
    """
    order = np.random.default_rng([seed, epoch])
    longest_n = lengths_n2.max(axis=1)
    top = int(longest_n.max())
    if top > buckets[-1]:
        raise UserError(f"data.buckets: the largest is {buckets[-1]}, but a pair has {top} tokens on one side")
    shuffled = order.permutation(len(longest_n)).astype(np.int32)
    bucket_of = np.searchsorted(np.asarray(buckets), longest_n[shuffled])
    batches: list[PlannedBatch] = []
    waiting = np.empty(0, np.int32)
    for number, length in enumerate(buckets[: int(bucket_of.max()) + 1]):
        rows = _rows(tokens, length)
        pool = np.concatenate([waiting, shuffled[bucket_of == number]])
        left = len(pool) % rows
        # Stable, so that the shuffle decides which of equally long pairs are left over.
        staying = np.argsort(longest_n[pool], kind="stable")[: len(pool) - left]
        mask = np.zeros(len(pool), bool)
        mask[staying] = True
        full, waiting = pool[mask], pool[~mask]
        batches += [PlannedBatch(length, length, rows_b1) for rows_b1 in order.permutation(full).reshape(-1, rows, 1)]
        last = length, rows
    if len(waiting):
        length, rows = last
        rows_b1 = np.full((rows, 1), -1, np.int32)
        rows_b1[: len(waiting), 0] = waiting
        batches.append(PlannedBatch(length, length, rows_b1))
    return [batches[index] for index in order.permutation(len(batches))]


def pack_plan(
    lengths_n2: Int32[np.ndarray, "n 2"],
    *,
    tokens: int,
    pack_length: int,
    seed: int = 0,
    epoch: int = 0,
) -> list[PlannedBatch]:
    """Plans an epoch with several pairs per row of `pack_length` positions per side; arguments as `bucket_plan`."""
    order = np.random.default_rng([seed, epoch])
    rows = _rows(tokens, pack_length)
    if int(lengths_n2.max()) > pack_length:
        raise UserError(f"data.pack_length is {pack_length}, but a pair has {int(lengths_n2.max())} tokens on one side")
    shuffled = order.permutation(len(lengths_n2)).astype(np.int32)
    row_of = _first_fit(lengths_n2[shuffled], pack_length)
    sorting = np.argsort(row_of, kind="stable")
    counts = np.bincount(row_of)
    column = np.arange(len(sorting)) - np.repeat(np.cumsum(counts) - counts, counts)
    padded_rows = -(-len(counts) // rows) * rows
    rows_rc = np.full((padded_rows, int(counts.max())), -1, np.int32)
    rows_rc[row_of[sorting], column] = shuffled[sorting]
    rows_rc[: len(counts)] = order.permutation(rows_rc[: len(counts)])
    batches = [PlannedBatch(pack_length, pack_length, rows_bc) for rows_bc in rows_rc.reshape(-1, rows, counts.max())]
    return [batches[index] for index in order.permutation(len(batches))]


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
) -> list[LengthBatch]:
    """Plans batches for inference: every sentence once, shortest first, in few shapes.

    Args:
        lengths_n: tokens of each sentence.
        row_lengths: ascending, doubled beyond the last as far as needed; a sentence gets the shortest that holds it.
        tokens: the most positions in one batch, unless a single row is longer.
        multiple: the number of rows is rounded up to a multiple of this.
        small: a batch that needs at most 1 / `small` of a full batch's rows has exactly that many.
    """
    lengths_n = np.asarray(lengths_n, np.int64)
    row_lengths = list(row_lengths)
    while len(lengths_n) and row_lengths[-1] < lengths_n.max():
        row_lengths.append(2 * row_lengths[-1])
    order = np.argsort(lengths_n, kind="stable")
    row_of = np.searchsorted(row_lengths, lengths_n[order])
    batches = []
    for number, length in enumerate(row_lengths):
        of_length = order[row_of == number].tolist()
        full = max(1, tokens // length)
        for start in range(0, len(of_length), full):
            members = of_length[start : start + full]
            few = max(1, full // small)
            rows = few if len(members) <= few else full
            batches.append(LengthBatch(length, -(-rows // multiple) * multiple, members))
    return batches


def _rows(tokens: int, length: int) -> int:
    if tokens < length:
        raise UserError(f"data.tokens_per_batch is {tokens}: too few for a row of {length} tokens")
    return tokens // length


def _first_fit(lengths_n2: np.ndarray, capacity: int) -> np.ndarray:
    """Returns the row number of every item: rows are numbered from 0 without gaps, and no side exceeds `capacity`.

    First fit, in many streams at once so that each step is a vector operation: a stream puts its next item into the
    first of its open rows with room; if none has room, it closes the fullest row and opens a new one.
    """
    count = len(lengths_n2)
    streams = max(1, count // _PAIRS_PER_STREAM)
    room_wo2 = np.full((streams, _OPEN_ROWS, 2), capacity, np.int32)
    row_wo = np.arange(streams * _OPEN_ROWS).reshape(streams, _OPEN_ROWS)
    next_row = row_wo.size
    row_of = np.empty(count, np.int64)
    for start in range(0, count, streams):
        item_w2 = lengths_n2[start : start + streams]
        w = np.arange(len(item_w2))
        fits_wo = np.all(room_wo2[: len(w)] >= item_w2[:, None, :], axis=2)
        chosen_w = fits_wo.argmax(axis=1)
        full = np.flatnonzero(~fits_wo[w, chosen_w])
        if len(full):
            fullest = room_wo2[full].sum(axis=2).argmin(axis=1)
            chosen_w[full] = fullest
            room_wo2[full, fullest] = capacity
            row_wo[full, fullest] = next_row + np.arange(len(full))
            next_row += len(full)
        room_wo2[w, chosen_w] -= item_w2
        row_of[start : start + streams] = row_wo[w, chosen_w]
    return np.unique(row_of, return_inverse=True)[1]


def make_batch(records: Sequence[Record], planned: PlannedBatch) -> Batch:
    """Returns the arrays of a planned batch.

    Args:
        records: its pairs, row by row, in the order of `planned.rows_bc[planned.rows_bc >= 0]`.
        planned: which pairs each row holds, and how long rows are.
    """
    counts_b = (planned.rows_bc >= 0).sum(axis=1)
    source_bs, source_segments_bs, source_positions_bs, _ = _make_side(
        [source for source, _ in records], counts_b, planned.row_length_source
    )
    target_out_bt, target_segments_bt, target_positions_bt, starts = _make_side(
        [target for _, target in records], counts_b, planned.row_length_target
    )
    target_in = np.zeros_like(target_out_bt.ravel())
    target_in[1:] = target_out_bt.ravel()[:-1]
    target_in[starts] = BOS
    target_in[target_segments_bt.ravel() == 0] = 0
    return Batch(
        source_bs,
        target_in.reshape(target_out_bt.shape),
        target_out_bt,
        source_segments_bs,
        source_positions_bs,
        target_segments_bt,
        target_positions_bt,
    )


def _make_side(
    sentences: list[np.ndarray], counts_b: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns ids, segments and positions [b, length], and the flat index of every sentence's first token."""
    flat_ids, flat_segments, flat_positions = np.zeros((3, len(counts_b) * length), np.int32)
    tokens_i = np.fromiter(map(len, sentences), np.int64, len(sentences))
    row_i = np.repeat(np.arange(len(counts_b)), counts_b)
    first_i = np.repeat(np.cumsum(counts_b) - counts_b, counts_b)  # the number of the row's first sentence
    before_i = np.cumsum(tokens_i) - tokens_i
    starts_i = row_i * length + before_i - before_i[first_i]
    position = np.arange(tokens_i.sum()) - np.repeat(before_i, tokens_i)
    place = np.repeat(starts_i, tokens_i) + position
    if sentences:  # a process's share of the last batch may be empty
        flat_ids[place] = np.concatenate(sentences)
    flat_segments[place] = np.repeat(np.arange(len(sentences)) - first_i + 1, tokens_i)
    flat_positions[place] = position
    shape = len(counts_b), length
    return flat_ids.reshape(shape), flat_segments.reshape(shape), flat_positions.reshape(shape), starts_i
