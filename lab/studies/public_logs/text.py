"""The batches of the public logs: 128 pairs each, in the order that the published code has them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from lab.studies.public_logs.design import PAIRS
from vaswani.data.batching import Batch, Record, make_batch
from vaswani.data.pair import Pair
from vaswani.data.plans import PlannedBatch, pack_plan
from vaswani.data.sources import open_corpus
from vaswani.data.symbols import Symbols
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS

POOL = 100  # batches
ROWS_TIMES = 4  # batches are padded to a multiple of so many rows: fewer shapes to compile
Texts = Sequence[tuple[str, str]]


class Split(NamedTuple):
    """The pairs of a corpus, in its order: their texts, and their ids with BOS and EOS, in the target EOS alone."""

    texts: Texts
    records: list[Record]

    @property
    def words_nk(self) -> Int[np.ndarray, "n 2"]:
        """The words of each pair's source and target."""
        return np.array([(len(source) - 2, len(target) - 1) for source, target in self.records])


def read_texts(spec: str, lowercase: bool) -> Texts:
    """Reads the pairs of a corpus.

    Raises:
      UserError: it cannot be read.
    """
    pairs = open_corpus(spec).pairs()
    return [(source.lower(), target.lower()) if lowercase else (source, target) for source, target in pairs]


def vocabularies(texts: Texts, cfg_data: ConfigDict) -> Pair:
    """Returns the vocabularies of the training text, the source's and the target's."""
    sides = [
        Symbols.of([(text,) for text in side], cfg_data.vocab_size, cfg_data.units, "", cfg_data.min_frequency)
        for side in zip(*texts, strict=True)
    ]
    return Pair(*sides)


def encode(texts: Texts, tokenizer: Pair, longest: int) -> Split:
    """Makes the ids of pairs.

    Raises:
      UserError: a pair is longer than a row.
    """
    records: list[Record] = []
    for source, target in texts:
        # The published code has BOS before the source, too.
        source_ids = np.array([BOS, *tokenizer.encode(source), EOS], np.int32)
        target_ids = np.array([*tokenizer.target.encode(target), EOS], np.int32)
        if max(len(source_ids), len(target_ids)) > longest:
            raise UserError(f"a pair has more than data.pack_length={longest} tokens on one side: {source[:60]}")
        records.append((source_ids, target_ids))
    return Split(texts, records)


def interleaved(words_nk: Int[np.ndarray, "n 2"]) -> Int[np.ndarray, " n"]:
    """Returns torchtext's key of length: the bits of both, in turn, the source's first."""
    key_n = np.zeros(len(words_nk), np.int64)
    for bit in range(16):
        key_n |= ((words_nk[:, 0] >> bit) & 1) << (2 * bit + 1)
        key_n |= ((words_nk[:, 1] >> bit) & 1) << (2 * bit)
    return key_n


def by_length(words_nk: Int[np.ndarray, "n 2"]) -> Int[np.ndarray, " n"]:
    """Returns the order of pairs by length."""
    return np.argsort(interleaved(words_nk), kind="stable")


def order(kind: str, words_nk: Int[np.ndarray, "n 2"], rng: np.random.Generator) -> list[Int[np.ndarray, " i"]]:
    """Returns the pairs of each batch of an epoch of training; `kind` as in `Log.order`."""
    if kind == "file":
        return cut(np.arange(len(words_nk)))
    shuffled_n = rng.permutation(len(words_nk))
    if kind == "random":
        return cut(shuffled_n)
    batches: list[Int[np.ndarray, " i"]] = []
    for start in range(0, len(shuffled_n), POOL * PAIRS):
        pool = shuffled_n[start : start + POOL * PAIRS]
        of_pool = cut(pool[by_length(words_nk[pool])])
        batches += [of_pool[number] for number in rng.permutation(len(of_pool))]
    return batches


def cut(order_n: Int[np.ndarray, " n"]) -> list[Int[np.ndarray, " i"]]:
    """Cuts an order into batches."""
    return [order_n[start : start + PAIRS] for start in range(0, len(order_n), PAIRS)]


def batches(split: Split, members: Sequence[Int[np.ndarray, " i"]], length: int) -> Iterator[Batch]:
    """Makes the arrays of batches of these pairs, several of which share a row of `length` positions."""
    for members_i in members:
        records = [split.records[number] for number in members_i]
        lengths_nk = np.array([tuple(map(len, record)) for record in records], np.int32)
        (planned,) = pack_plan(lengths_nk, tokens=len(records) * length, pack_length=length)
        # `pack_plan` has a row for each pair; those that packing leaves empty go, but for a multiple.
        used = np.flatnonzero(np.any(planned.rows_bc >= 0, axis=1))
        rows = -(-len(used) // ROWS_TIMES) * ROWS_TIMES
        rows_bc = np.full((rows, planned.rows_bc.shape[1]), -1, np.int32)
        rows_bc[: len(used)] = planned.rows_bc[used]
        packed = PlannedBatch(length, rows_bc)
        yield make_batch([records[number] for number in packed.members], packed)
