"""Plans which sentence pairs form a batch, and makes the arrays, of static shape (section 5.1).

A plan covers a whole epoch and follows from the sentence lengths alone, so it is the same in every process and cheap to
make again on resume. Three plans share one interface: `bucket_plan` puts one pair in a row, among pairs of like length
(the paper's way); `pack_plan` puts several pairs in a row and tells them apart by segment ids; either holds every pair
once. `window_plan` cuts a text into rows of one length. `length_batches` groups sentences that are only read: for
validation, translation and scoring.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from base.errors import UserError
from base.ids import BOS, PAD
from base.tokens import Tokens

Record = tuple[np.ndarray, ...]  # source ids and target ids, EOS at the end of both; or the ids of a text
_OPEN_ROWS = 16  # rows that a stream of `pack_plan` fills at a time; more save little padding and take longer
_PAIRS_PER_STREAM = 2_000  # a stream leaves its last rows part-empty, so a small corpus is packed by few streams
_AT_ONCE = 1 << 20  # pairs whose places are computed together: NumPy's indices take 8 bytes each


class Batch(NamedTuple):
    """One batch: `b` rows of `s` source and `t` target positions; padding is 0 in all arrays, which are int32.

    A segment is a sentence pair: 1 is the first of its row, 0 is padding. Positions restart with each segment.
    """

    source: Tokens  # y1 .. yn EOS
    target: Tokens  # BOS y1 .. yn: what the decoder reads
    labels_bt: Int32[np.ndarray, "b t"]  # y1 .. yn EOS: what it predicts


class TextBatch(NamedTuple):
    """As `Batch`, of a text: the target side alone, in which EOS, where there is one, is the last label."""

    target: Tokens
    labels_bt: Int32[np.ndarray, "b t"]


class PlannedBatch(NamedTuple):
    """A batch before its ids are read: row `b` holds the pairs numbered `rows_bc[b]`, where -1 is none.

    Of `window_plan` it holds what begins at the place `rows_bc[b]` of the text.
    """

    row_length_source: int
    row_length_target: int
    rows_bc: Int32[np.ndarray, "b c"]


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
    least padding there. Only the last batch of the epoch may have empty rows.

    Args:
        lengths_nk: tokens of each pair's source and target, EOS counted.
        tokens: positions a side in one batch, at most.
        buckets: row lengths, ascending; each gives one batch shape.
        seed: with `epoch`, determines the order of rows and of batches.
        epoch: counts from 0.

    Raises:
        UserError: a pair is longer than the largest bucket, or `tokens` is too small for a bucket that is needed.
    """
    order = np.random.default_rng([seed, epoch])
    longest = int(lengths_nk.max())
    if longest > buckets[-1]:
        raise UserError(f"data.buckets: the largest is {buckets[-1]}, but a pair has {longest} tokens on one side")
    # The smallest types that hold the numbers: of many millions of pairs these arrays are large.
    length_n = lengths_nk.max(axis=1).astype(np.min_scalar_type(longest))
    bucket_of_length = np.searchsorted(np.asarray(buckets), np.arange(longest + 1))
    bucket_of_length = bucket_of_length.astype(np.min_scalar_type(len(buckets)))
    shuffled_n = _shuffled(order, len(length_n))
    bucket_n = bucket_of_length[length_n[shuffled_n]]

    batches: list[PlannedBatch] = []
    waiting = np.empty(0, np.int32)
    needed = buckets[: int(bucket_n.max()) + 1]
    for number, length in enumerate(needed):
        rows = _rows(tokens, length)
        pool = np.concatenate([waiting, shuffled_n[bucket_n == number]])
        moves = _longest(length_n[pool], len(pool) % rows)
        staying = pool[~moves]
        waiting = pool[moves]
        order.shuffle(staying)  # those that moved here come first in the pool
        batches += [PlannedBatch(length, length, rows_b1) for rows_b1 in staying.reshape(-1, rows, 1)]
    if len(waiting):
        largest = needed[-1]
        batches.append(one_each(waiting, _rows(tokens, largest), largest))
    return _permuted(order, batches)


def one_each(members: Sequence[int] | np.ndarray, rows: int, length: int) -> PlannedBatch:
    """Returns a batch of `rows` rows: these members, one in a row, and empty rows behind them."""
    rows_b1 = np.full((rows, 1), -1, np.int32)
    rows_b1[: len(members), 0] = members
    return PlannedBatch(length, length, rows_b1)


def row_by_row(members: np.ndarray, rows: int, length: int) -> list[PlannedBatch]:
    """Returns batches of `rows` rows with these members in their order, one in a row; the last may have empty rows."""
    return [one_each(members[first : first + rows], rows, length) for first in range(0, len(members), rows)]


def _permuted(order: np.random.Generator, batches: list[PlannedBatch]) -> list[PlannedBatch]:
    return [batches[index] for index in order.permutation(len(batches))]


def _shuffled(order: np.random.Generator, count: int) -> Int32[np.ndarray, "n"]:
    numbers = np.arange(count, dtype=np.int32)
    order.shuffle(numbers)
    return numbers


def _longest(lengths: np.ndarray, count: int) -> np.ndarray:
    """Returns a mask of the `count` greatest lengths, the last of equal ones: the shuffle decides which those are."""
    if not count:
        return np.zeros(len(lengths), bool)
    place = len(lengths) - count
    least = np.partition(lengths, place)[place]
    chosen = lengths > least
    as_long = np.flatnonzero(lengths == least)
    missing = count - np.count_nonzero(chosen)  # at least one: `least` itself is among the `count`
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
    order = np.random.default_rng([seed, epoch])
    rows = _rows(tokens, pack_length)
    longest = int(lengths_nk.max())
    if longest > pack_length:
        raise UserError(f"data.pack_length is {pack_length}, but a pair has {longest} tokens on one side")
    shuffled_n = _shuffled(order, len(lengths_nk))
    row_n, column_n, used_r = _first_fit(lengths_nk, shuffled_n, pack_length)
    place_r = np.empty(used_r[-1] + 1, np.int64)  # of a row of `_first_fit`, among all rows of the epoch
    place_r[order.permutation(used_r)] = np.arange(len(used_r))
    batch_count = -(-len(used_r) // rows)
    columns = int(column_n.max()) + 1
    rows_rc = np.full((batch_count * rows, columns), -1, np.int32)
    for start in range(0, len(shuffled_n), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        rows_rc[place_r[row_n[part]], column_n[part]] = shuffled_n[part]
    batches = [PlannedBatch(pack_length, pack_length, rows_bc) for rows_bc in np.split(rows_rc, batch_count)]
    return _permuted(order, batches)


def window_plan(count: int, *, tokens: int, length: int, seed: int = 0, epoch: int = 0) -> list[PlannedBatch]:
    """Plans an epoch of rows of `length` ids out of a text of `count`, one beginning where the one before ends.

    Starts at a random offset; the incomplete rows at both ends are skipped.

    Raises:
        UserError: the text is shorter than a row, or too long for places of 32 bits.
    """
    order = np.random.default_rng([seed, epoch])
    rows = _rows(tokens, length)
    if not length <= count < 1 << 31:
        raise UserError(f"data.pack_length is {length}, and the text has {count:,} ids: too few, or more than 2^31")
    starts_end = count - length + 1
    offset = order.integers(min(length, starts_end))
    starts_r = order.permutation(np.arange(offset, starts_end, length))
    return row_by_row(starts_r, rows, length)


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


def _rows(tokens: int, length: int) -> int:
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
    count = len(order_n)
    streams = max(1, count // _PAIRS_PER_STREAM)
    room_wok = np.full((streams, _OPEN_ROWS, lengths_nk.shape[1]), capacity, np.int32)
    row_wo = np.arange(streams * _OPEN_ROWS, dtype=np.int32).reshape(streams, _OPEN_ROWS)
    items_wo = np.zeros((streams, _OPEN_ROWS), np.min_scalar_type(capacity))
    next_row = row_wo.size
    row_n = np.empty(count, np.int32)
    column_n = np.empty(count, items_wo.dtype)
    for start in range(0, count, streams):
        part = slice(start, start + streams)
        item_wk = lengths_nk[order_n[part]]
        w = np.arange(len(item_wk))
        fits_wo = np.all(room_wok[: len(w)] >= item_wk[:, None, :], axis=2)
        chosen_w = fits_wo.argmax(axis=1)
        full_w = np.flatnonzero(~fits_wo[w, chosen_w])  # streams without room
        if len(full_w):
            fullest_w = room_wok[full_w].sum(axis=2).argmin(axis=1)
            chosen_w[full_w] = fullest_w
            room_wok[full_w, fullest_w] = capacity
            items_wo[full_w, fullest_w] = 0
            row_wo[full_w, fullest_w] = next_row + np.arange(len(full_w))
            next_row += len(full_w)
        room_wok[w, chosen_w] -= item_wk
        row_n[part] = row_wo[w, chosen_w]
        column_n[part] = items_wo[w, chosen_w]
        items_wo[w, chosen_w] += 1
    unused = row_wo[items_wo == 0]
    return row_n, column_n, np.setdiff1d(np.arange(next_row), unused, assume_unique=True)


def make_batch(records: Sequence[Record], planned: PlannedBatch) -> Batch:
    """Returns the arrays of a planned batch.

    Args:
        records: its pairs, row by row, in the order of `planned.rows_bc[planned.rows_bc >= 0]`.
        planned: which pairs each row holds, and how long rows are.
    """
    counts_b = (planned.rows_bc >= 0).sum(axis=1)
    sources = [source for source, _ in records]
    source, _ = _make_side(sources, counts_b, planned.row_length_source)
    target, labels_bt = make_text_batch([(target,) for _, target in records], planned)
    return Batch(source, target, labels_bt)


def make_text_batch(records: Sequence[Record], planned: PlannedBatch) -> TextBatch:
    """Returns the arrays of a planned batch of a text; arguments as `make_batch`."""
    counts_b = (planned.rows_bc >= 0).sum(axis=1)
    texts = [text for (text,) in records]
    labels, starts = _make_side(texts, counts_b, planned.row_length_target)
    # The input is the labels moved to the right by one.
    flat_out = labels.ids_bt.ravel()
    flat_in = np.zeros_like(flat_out)
    flat_in[1:] = flat_out[:-1]
    flat_in[starts] = BOS
    flat_in[labels.segments_bt.ravel() == 0] = PAD
    in_bt = flat_in.reshape(labels.ids_bt.shape)
    return TextBatch(labels._replace(ids_bt=in_bt), labels.ids_bt)


def _make_side(sentences: list[np.ndarray], counts_b: np.ndarray, length: int) -> tuple[Tokens, np.ndarray]:
    """Returns rows of this length, and the flat index of every sentence's first token."""
    flat_ids, flat_segments, flat_positions = np.zeros((3, len(counts_b) * length), np.int32)
    # Of each sentence: its tokens, its row, the number of the row's first sentence, the tokens of all before it, and
    # where it starts. Of 2, 3 and 1 tokens, two of them in the first row, with rows of 6 positions:
    # tokens_i [2, 3, 1], row_i [0, 0, 1], first_i [0, 0, 2], before_i [0, 2, 5], starts_i [0, 2, 6].
    tokens_i = np.fromiter(map(len, sentences), np.int64, len(sentences))
    row_i = np.repeat(np.arange(len(counts_b)), counts_b)
    first_i = np.repeat(np.cumsum(counts_b) - counts_b, counts_b)
    before_i = np.cumsum(tokens_i) - tokens_i
    starts_i = row_i * length + before_i - before_i[first_i]
    # Of each token: its position in the sentence, and its place in the batch
    position = np.arange(tokens_i.sum()) - np.repeat(before_i, tokens_i)
    place = np.repeat(starts_i, tokens_i) + position
    if sentences:  # a process's share of the last batch may be empty
        flat_ids[place] = np.concatenate(sentences)
    flat_segments[place] = np.repeat(np.arange(len(sentences)) - first_i + 1, tokens_i)
    flat_positions[place] = position
    shape = (len(counts_b), length)
    tokens = Tokens(flat_ids.reshape(shape), flat_segments.reshape(shape), flat_positions.reshape(shape))
    return tokens, starts_i


def random_batch(rows: int, length: int, vocab_size: int) -> Batch:
    """Returns a batch of random ids for timing an update: full rows, one sentence each, without padding."""
    rng = np.random.default_rng(0)
    source_bt, labels_bt = rng.integers(4, vocab_size, (2, rows, length), dtype=np.int32)
    first_b1 = np.full((rows, 1), BOS, np.int32)
    target_bt = np.concatenate([first_b1, labels_bt[:, :-1]], axis=1)
    segments_bt = np.ones_like(source_bt)
    positions_bt = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
    source = Tokens(source_bt, segments_bt, positions_bt)
    target = Tokens(target_bt, segments_bt, positions_bt)
    return Batch(source, target, labels_bt)
