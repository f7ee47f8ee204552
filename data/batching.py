"""Makes the arrays of a batch that `data.plans` has planned; they are of static shape (section 5.1)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from vaswani.data.plans import PlannedBatch
from vaswani.ids import BOS, PAD
from vaswani.tokens import Tokens

Record = tuple[np.ndarray, ...]  # source ids and target ids, each with its end, mostly EOS; or the ids of a text


class Batch(NamedTuple):
    """One batch: `b` rows of `s` source and `t` target positions; padding is 0 in all arrays, which are int32.

    A segment is a sentence pair: 1 is the first of its row, 0 is padding. Positions restart with each segment.
    """

    source: Tokens  # y1 .. yn EOS
    target: Tokens  # BOS y1 .. yn: what the decoder reads
    labels_bt: Int32[np.ndarray, "b t"]  # y1 .. yn EOS: what it predicts


class TextBatch(NamedTuple):
    """A batch of a text: only the target side of a `Batch`; EOS, if there is one, is the last label."""

    target: Tokens
    labels_bt: Int32[np.ndarray, "b t"]


def make_batch(records: Sequence[Record], planned: PlannedBatch) -> Batch:
    """Returns the arrays of a planned batch.

    Args:
        records: its pairs, row by row, in the order of `planned.members`.
        planned: which pairs each row holds, and the sequence length.
    """
    sources = [source for source, _ in records]
    targets = [target for _, target in records]
    source, _ = _make_side(sources, planned)
    target, labels_bt = _make_target_side(targets, planned)
    return Batch(source, target, labels_bt)


def make_text_batch(records: Sequence[Record], planned: PlannedBatch) -> TextBatch:
    """Returns the arrays of a planned batch of a text; arguments as `make_batch`."""
    texts = [text for (text,) in records]
    target, labels_bt = _make_target_side(texts, planned)
    return TextBatch(target, labels_bt)


def _make_target_side(sentences: list[np.ndarray], planned: PlannedBatch) -> tuple[Tokens, Int32[np.ndarray, "b t"]]:
    """Returns the decoder's input, which is the labels moved to the right by one behind BOS, and the labels."""
    labels, starts_i = _make_side(sentences, planned)
    flat_labels = labels.ids_bt.ravel()
    flat_inputs = np.zeros_like(flat_labels)
    flat_inputs[1:] = flat_labels[:-1]
    flat_inputs[starts_i] = BOS
    flat_inputs[labels.segments_bt.ravel() == 0] = PAD
    inputs_bt = flat_inputs.reshape(labels.ids_bt.shape)
    return labels._replace(ids_bt=inputs_bt), labels.ids_bt


def _make_side(sentences: list[np.ndarray], planned: PlannedBatch) -> tuple[Tokens, np.ndarray]:
    """Returns the rows of one side, and the flat index of every sentence's first token."""
    length = planned.row_length
    counts_b = (planned.rows_bc >= 0).sum(axis=1)
    flat_ids, flat_segments, flat_positions = np.zeros((3, len(counts_b) * length), np.int32)
    # For each sentence: its tokens, its row, the number of the row's first sentence, the tokens of all before it, and
    # where it starts. With 2, 3 and 1 tokens, the first two sentences in one row, and 6 positions per row:
    # tokens_i [2, 3, 1], row_i [0, 0, 1], first_i [0, 0, 2], before_i [0, 2, 5], starts_i [0, 2, 6].
    tokens_i = np.fromiter(map(len, sentences), np.int64, len(sentences))
    row_i = np.repeat(np.arange(len(counts_b)), counts_b)
    first_i = np.repeat(np.cumsum(counts_b) - counts_b, counts_b)
    before_i = np.cumsum(tokens_i) - tokens_i
    starts_i = row_i * length + before_i - before_i[first_i]
    # For each token: its position in the sentence, and its place in the batch
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
    """Returns a batch of random ids for timing a step: full rows, one sentence each, without padding."""
    rng = np.random.default_rng(0)
    source_bt, labels_bt = rng.integers(4, vocab_size, (2, rows, length), dtype=np.int32)
    first_b1 = np.full((rows, 1), BOS, np.int32)
    target_bt = np.concatenate([first_b1, labels_bt[:, :-1]], axis=1)
    segments_bt = np.ones_like(source_bt)
    positions_bt = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
    source = Tokens(source_bt, segments_bt, positions_bt)
    target = Tokens(target_bt, segments_bt, positions_bt)
    return Batch(source, target, labels_bt)
