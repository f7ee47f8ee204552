"""Plans which sentence pairs form a batch (section 5.1).

A plan covers a whole epoch and depends only on the sentence lengths, so it is the same in every process and cheap to
recompute on resume. Three plans share one interface. `bucket_plan` puts one pair in a row, among pairs of like length
(the paper's way). `pack_plan` puts several pairs in a row and tells them apart by segment ids. Either holds every pair
once. `window_plan` cuts a text into rows of one length. `make_batch` (data/batching.py) makes the arrays.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from vaswani.errors import UserError

_OPEN_ROWS = 16  # rows that a stream of `pack_plan` fills at a time; more save little padding and take longer
_PAIRS_PER_STREAM = 2_000  # a stream leaves its last rows part-empty, so a small corpus is packed by few streams
_AT_ONCE = 1 << 20  # pairs whose places are computed together: NumPy's indices take 8 bytes each


class PlannedBatch(NamedTuple):
    """A batch before its ids are read: row `b` holds the pairs numbered `rows_bc[b]`, where -1 is none.

    Of `window_plan` it holds what begins at the place `rows_bc[b]` of the text. The rows of both sides have one length.
    """

    row_length: int
    rows_bc: Int32[np.ndarray, "b c"]

    @property
    def members(self) -> Int32[np.ndarray, " i"]:
        """The numbers of the pairs, or the places, row by row."""
        return self.rows_bc[self.rows_bc >= 0]


def bucket_plan(
    lengths_nk: Int32[np.ndarray, "n sides"],
    *,
    tokens: int,
    buckets: Sequence[int],
    seed: int = 0,
    epoch: int = 0,
) -> list[PlannedBatch]:
    """Plans an epoch with one pair per row; a pair goes to the smallest bucket that holds its longer side.

    Pairs left over from a bucket's full batches move to the next larger bucket, the longest first, since they need the
    least padding there. At most one batch of the epoch, wherever it comes, has empty rows.

    Args:
        lengths_nk: tokens of each pair's source and target, EOS counted.
        tokens: positions a side in one batch, at most.
        buckets: sequence lengths, ascending; each gives one batch shape.
        seed: with `epoch`, determines the order of rows and of batches.
        epoch: counts from 0.

    Raises:
        UserError: a pair is longer than the largest bucket, or `tokens` is too small for a bucket that is needed.
    """
    rng = np.random.default_rng([seed, epoch])
    longest = int(lengths_nk.max())
    if longest > buckets[-1]:
        raise UserError(f"data.buckets: the largest is {buckets[-1]}, but a pair has {longest} tokens on one side")
    # The smallest types that hold the numbers: of many millions of pairs these arrays are large.
    length_n = lengths_nk.max(axis=1).astype(np.min_scalar_type(longest))
    bucket_of_length = np.searchsorted(np.asarray(buckets), np.arange(longest + 1))
    bucket_of_length = bucket_of_length.astype(np.min_scalar_type(len(buckets)))
    # The bucket of each pair, in a random order of the pairs.
    shuffled_n = _shuffle_numbers(rng, len(length_n))
    bucket_n = bucket_of_length[length_n[shuffled_n]]

    # From the shortest bucket to the longest that has pairs: its own pairs, and those left over from the one before.
    batches: list[PlannedBatch] = []
    waiting = np.empty(0, np.int32)
    needed = buckets[: int(bucket_n.max()) + 1]
    for number, length in enumerate(needed):
        rows = rows_per_batch(tokens, length)
        pool = np.concatenate([waiting, shuffled_n[bucket_n == number]])
        # What fills no batch moves on, so that every batch but the last has all of its rows.
        moves = _mask_longest(length_n[pool], len(pool) % rows)
        staying = pool[~moves]
        waiting = pool[moves]
        rng.shuffle(staying)  # those that moved here come first in the pool
        batches += [PlannedBatch(length, rows_b1) for rows_b1 in staying.reshape(-1, rows, 1)]
    # The rest of the epoch: one batch with empty rows.
    if len(waiting):
        largest = needed[-1]
        batches.append(one_each(waiting, rows_per_batch(tokens, largest), largest))
    return _shuffle_batches(rng, batches)


def one_each(members: Sequence[int] | np.ndarray, rows: int, length: int) -> PlannedBatch:
    """Returns a batch of `rows` rows: these members, one in a row, and empty rows behind them."""
    rows_b1 = np.full((rows, 1), -1, np.int32)
    rows_b1[: len(members), 0] = members
    return PlannedBatch(length, rows_b1)


def row_by_row(members: np.ndarray, rows: int, length: int) -> list[PlannedBatch]:
    """Returns batches of `rows` rows with these members in their order, one in a row; the last may have empty rows."""
    return [one_each(members[first : first + rows], rows, length) for first in range(0, len(members), rows)]


def _shuffle_batches(rng: np.random.Generator, batches: list[PlannedBatch]) -> list[PlannedBatch]:
    return [batches[index] for index in rng.permutation(len(batches))]


def _shuffle_numbers(rng: np.random.Generator, count: int) -> Int32[np.ndarray, "n"]:
    numbers = np.arange(count, dtype=np.int32)
    rng.shuffle(numbers)
    return numbers


def _mask_longest(lengths: np.ndarray, count: int) -> np.ndarray:
    """Returns a mask of the `count` greatest lengths, the last of equal ones: the shuffle decides which those are."""
    if not count:
        return np.zeros(len(lengths), bool)
    # A partition finds the `count`-th greatest length in linear time; all above it are chosen for certain.
    place = len(lengths) - count
    least = np.partition(lengths, place)[place]
    chosen = lengths > least
    as_long = np.flatnonzero(lengths == least)
    # At least one is missing: `least` itself is among the `count`.
    missing = count - np.count_nonzero(chosen)
    chosen[as_long[-missing:]] = True
    return chosen


def pack_plan(
    lengths_nk: Int32[np.ndarray, "n sides"],
    *,
    tokens: int,
    pack_length: int,
    seed: int = 0,
    epoch: int = 0,
) -> list[PlannedBatch]:
    """Plans an epoch with several pairs per row of `pack_length` positions per side; arguments as `bucket_plan`."""
    rng = np.random.default_rng([seed, epoch])
    rows = rows_per_batch(tokens, pack_length)
    longest = int(lengths_nk.max())
    if longest > pack_length:
        raise UserError(f"data.pack_length is {pack_length}, but a pair has {longest} tokens on one side")
    # Pairs, in a random order, into rows: pair `shuffled_n[i]` is number `column_n[i]` of row `row_n[i]`.
    shuffled_n = _shuffle_numbers(rng, len(lengths_nk))
    row_n, column_n, used_r = _first_fit(lengths_nk, shuffled_n, pack_length)
    # `_first_fit` leaves gaps among its rows; a permutation gives the used ones their places in the epoch.
    place_r = np.empty(used_r[-1] + 1, np.int64)
    place_r[rng.permutation(used_r)] = np.arange(len(used_r))
    # All rows of the epoch as one array [r,c], -1 where a row has fewer pairs, then cut into batches.
    batch_count = -(-len(used_r) // rows)
    columns = int(column_n.max()) + 1
    rows_rc = np.full((batch_count * rows, columns), -1, np.int32)
    for start in range(0, len(shuffled_n), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        rows_rc[place_r[row_n[part]], column_n[part]] = shuffled_n[part]
    batches = [PlannedBatch(pack_length, rows_bc) for rows_bc in np.split(rows_rc, batch_count)]
    return _shuffle_batches(rng, batches)


def window_plan(count: int, *, tokens: int, length: int, seed: int = 0, epoch: int = 0) -> list[PlannedBatch]:
    """Plans an epoch of rows of `length` ids out of a text of `count`, one beginning where the one before ends.

    Starts at a random offset; the incomplete rows at both ends are skipped.

    Raises:
        UserError: the text is shorter than a row, or too long for places of 32 bits.
    """
    rng = np.random.default_rng([seed, epoch])
    rows = rows_per_batch(tokens, length)
    if not length <= count < 1 << 31:
        raise UserError(f"data.pack_length is {length}, and the text has {count:,} ids: too few, or more than 2^31")
    # Starts are `length` apart, so only the offset decides which rows an epoch has; the seed also shuffles them.
    starts_end = count - length + 1
    offset = rng.integers(min(length, starts_end))
    starts_r = rng.permutation(np.arange(offset, starts_end, length))
    return row_by_row(starts_r, rows, length)


def rows_per_batch(tokens: int, length: int) -> int:
    """Returns how many rows of this length a batch has; `UserError` if there are too few tokens for one."""
    if tokens < length:
        raise UserError(f"data.tokens_per_batch is {tokens}: too few for a row of {length} tokens")
    return tokens // length


def _first_fit(lengths_nk: np.ndarray, order_n: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Puts items into rows, none of whose sides exceeds `capacity`.

    First fit, in many streams at once so that each step is a vector operation: a stream puts its next item into the
    first of its open rows with room; if none has room, it closes the fullest row and opens a new one. Items of 5, 3, 2
    and 4 tokens in rows of 8 become the rows (5, 3) and (2, 4).

    In names, w are the streams, o the open rows of one, k the sides of an item.

    Args:
        lengths_nk: of every item.
        order_n: the numbers of the items, in the order in which they are put into rows.
        capacity: positions a side.

    Returns:
        The row and the place in it of each of `order_n`, and the numbers of the rows that have items, ascending.
    """
    # For each stream and open row: the positions left on each side, the number of the row, and the items in it.
    count = len(order_n)
    streams = max(1, count // _PAIRS_PER_STREAM)
    room_wok = np.full((streams, _OPEN_ROWS, lengths_nk.shape[1]), capacity, np.int32)
    row_wo = np.arange(streams * _OPEN_ROWS, dtype=np.int32).reshape(streams, _OPEN_ROWS)
    items_wo = np.zeros((streams, _OPEN_ROWS), np.min_scalar_type(capacity))
    next_row = row_wo.size
    row_n = np.empty(count, np.int32)
    column_n = np.empty(count, items_wo.dtype)
    # A step puts one item into each stream; in the last one, streams may go without.
    for start in range(0, count, streams):
        part = slice(start, start + streams)
        item_wk = lengths_nk[order_n[part]]
        w = np.arange(len(item_wk))
        # The first open row with room on all sides: [w,o,k] -> [w,o] -> [w]; `argmax` finds the first True.
        fits_wo = np.all(room_wok[: len(w)] >= item_wk[:, None, :], axis=2)
        chosen_w = fits_wo.argmax(axis=1)
        # Streams without room close the row with the least room, over all sides, and open another in its place.
        full_w = np.flatnonzero(~fits_wo[w, chosen_w])
        if len(full_w):
            fullest_w = room_wok[full_w].sum(axis=2).argmin(axis=1)
            chosen_w[full_w] = fullest_w
            room_wok[full_w, fullest_w] = capacity
            items_wo[full_w, fullest_w] = 0
            row_wo[full_w, fullest_w] = next_row + np.arange(len(full_w))
            next_row += len(full_w)
        # Each item takes its room, and its column is the number of items before it.
        room_wok[w, chosen_w] -= item_wk
        row_n[part] = row_wo[w, chosen_w]
        column_n[part] = items_wo[w, chosen_w]
        items_wo[w, chosen_w] += 1
    # Rows that are open at the end may never have had an item.
    unused = row_wo[items_wo == 0]
    return row_n, column_n, np.setdiff1d(np.arange(next_row), unused, assume_unique=True)
