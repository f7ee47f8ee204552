"""Endless batches for training, prefetched by grain, and one pass of batches for validation.

The position in the data is two numbers, the epoch and the batch in it: the plan of an epoch follows from the seed, so
nothing else is needed to resume exactly. Prefetched batches count only once they are returned.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from jaxtyping import Int32
from ml_collections import ConfigDict

from vaswani.data.batching import Batch, Record, TextBatch, make_batch, make_text_batch
from vaswani.data.length_batches import length_batches
from vaswani.data.plans import PlannedBatch, bucket_plan, one_each, pack_plan, row_by_row, window_plan
from vaswani.data.prepared import Prepared
from vaswani.data.row_lengths import check_lengths
from vaswani.errors import UserError, format_value

_PREFETCHED = 8  # batches
State = dict[str, int]


class ProcessShard(NamedTuple):
    """Which rows of a batch this process reads: parts `first` to `end - 1` of `parts` equal parts.

    Batches are planned independently of the number of processes, then padded with empty rows to a multiple of
    `multiple`, itself a multiple of `parts`. So the same sentences make the same step on any number of devices.
    """

    first: int = 0
    end: int = 1
    parts: int = 1
    multiple: int = 1

    def part_of(self, planned: PlannedBatch) -> PlannedBatch:
        """Returns `planned` with only this process's rows."""
        # [b,c]: padded to a multiple that all parts share, then this process's rows.
        empty = -len(planned.rows_bc) % self.multiple
        rows_bc = np.pad(planned.rows_bc, ((0, empty), (0, 0)), constant_values=-1)
        part = len(rows_bc) // self.parts
        return planned._replace(rows_bc=rows_bc[self.first * part : self.end * part])


ALL_ROWS = ProcessShard()


def check_position(state: Any) -> State:
    """Returns a position in the data that was read from a file; `UserError` if it is none."""
    fields = state if isinstance(state, dict) else {}
    position: dict[str, Any] = {key: fields.get(key) for key in ("epoch", "batch")}
    # A file may hold other numbers: 1.0, or true, which is an int to isinstance.
    if not all(type(number) is int and number >= 0 for number in position.values()):
        raise UserError(f"data position: {format_value(state)}; it must be the whole numbers epoch and batch")
    return position


@runtime_checkable
class Records(Protocol):
    """What batches are made of: a `Prepared` corpus, or one that derives its records from another's."""

    manifest: dict[str, Any]  # of the corpus
    lengths: Int32[np.ndarray, "n sides"]  # of each record, EOS counted

    def records(self, indices: Sequence[int] | np.ndarray, epoch: int = 0) -> list[Record]:
        """Returns the records with these numbers, in this order, as they are in this epoch."""


AnyBatch = TypeVar("AnyBatch")


class EndlessBatches(ABC, Generic[AnyBatch]):
    """Iterates over batches, epoch after epoch; see the head of this file.

    The state before a `next` is where that `next` can be repeated.
    """

    def __init__(self, shard: ProcessShard) -> None:
        self._shard = shard
        self._state: State = {"epoch": 0, "batch": 0}
        self._items: Generator[tuple[AnyBatch, State]] | None = None

    @abstractmethod
    def plan(self, epoch: int) -> list[PlannedBatch]:
        """Returns the global batches of an epoch, in order."""

    @abstractmethod
    def read(self, planned: PlannedBatch, epoch: int) -> AnyBatch:
        """Returns the arrays of the rows of `planned`, a part of a batch of the epoch."""

    def __iter__(self) -> "EndlessBatches[AnyBatch]":
        return self

    def __next__(self) -> AnyBatch:
        # Threads start with the first batch, and again after `close`.
        if self._items is None:
            self._items = self._produce(dict(self._state))
        try:
            batch, self._state = next(self._items)
        except Exception:
            # A generator that has raised is at its end: the next `next` would say StopIteration, not the error.
            self._items = None
            raise
        return batch

    def get_state(self) -> State:
        """Returns the position of the batch that the next `next` returns, as values for JSON."""
        return dict(self._state)

    def set_state(self, state: State) -> None:
        """Moves to a position that `get_state` returned, for the same data, seed and settings.

        Raises:
            UserError: it is no position. If it is beyond its epoch, the next `next` says so.
        """
        self.close()
        self._state = check_position(state)

    def close(self) -> None:
        """Stops the background threads; a later `next` starts new ones at the same position."""
        # This leaves the `with` blocks of `_produce` and `_prefetch`, which end their threads.
        if self._items is not None:
            self._items.close()
            self._items = None

    def _produce(self, state: State) -> Generator[tuple[AnyBatch, State]]:
        """Yields batches from `state` on, each with the position after it."""
        # A thread plans the next epoch while this one is read: of millions of pairs that takes seconds.
        epoch = state["epoch"]
        batch = state["batch"]
        with ThreadPoolExecutor(1, "plan") as planner:
            following: Future[list[PlannedBatch]] = planner.submit(self.plan, epoch)
            while True:
                plan = following.result()
                following = planner.submit(self.plan, epoch + 1)
                # Only a resumed run can be beyond its epoch.
                if batch >= len(plan):
                    raise UserError(f"data position: batch {batch} of an epoch of {len(plan)}; the run's data changed")
                # The position after the epoch's last batch is the first of the next epoch.
                for done, arrays in enumerate(self._prefetch(plan[batch:], epoch), batch + 1):
                    after = {"epoch": epoch, "batch": done}
                    if done == len(plan):
                        after = {"epoch": epoch + 1, "batch": 0}
                    yield arrays, after
                epoch += 1
                batch = 0

    def _prefetch(self, plan: list[PlannedBatch], epoch: int) -> Generator[AnyBatch]:
        """Yields this process's part of each batch, which a thread has read in advance."""
        import grain  # here, because it loads jax, which reading corpora does not need

        # One thread reads `_PREFETCHED` batches ahead, in the order of the plan.
        planned = grain.MapDataset.source(plan).map(partial(self._read_shard, epoch))
        options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_PREFETCHED)
        # Closed, also after an error: the thread would otherwise stay for as long as the error is kept.
        with closing(iter(planned.to_iter_dataset(options))) as batches:
            yield from batches

    def _read_shard(self, epoch: int, planned: PlannedBatch) -> AnyBatch:
        return self.read(self._shard.part_of(planned), epoch)


class TrainingBatches(EndlessBatches[Batch | TextBatch]):
    """Endless batches of pairs, or of a text: `TextBatch`."""

    def __init__(self, prepared: Records, cfg_data: ConfigDict, *, seed: int, shard: ProcessShard = ALL_ROWS):
        """Checks the settings; reading starts with the first `next`.

        Args:
            prepared: the training corpus.
            cfg_data: `config.data`; see `configs/common.py`.
            seed: decides the order of every epoch.
            shard: this process's part of every batch; all processes compute the same plan.

        Raises:
            UserError: the sequence lengths and the maximum length of `cfg_data` are inconsistent.
        """
        super().__init__(shard)
        check_lengths(prepared.lengths, cfg_data)
        self._prepared = prepared
        self._seed = seed
        self._batching = cfg_data.batching
        self._tokens = cfg_data.tokens_per_batch
        self._buckets = tuple(cfg_data.buckets)
        self._pack_length = cfg_data.pack_length

    def plan(self, epoch: int) -> list[PlannedBatch]:
        """Returns the global batches of an epoch, in order."""
        # The plan is of all processes' rows; `_read_shard` takes this process's part.
        lengths_nk = self._prepared.lengths
        tokens = self._tokens
        seed = self._seed
        if self._batching == "window":
            count = int(lengths_nk.sum(dtype=np.int64))
            return window_plan(count, tokens=tokens, length=self._pack_length, seed=seed, epoch=epoch)
        if self._batching == "pack":
            return pack_plan(lengths_nk, tokens=tokens, pack_length=self._pack_length, seed=seed, epoch=epoch)
        return bucket_plan(lengths_nk, tokens=tokens, buckets=self._buckets, seed=seed, epoch=epoch)

    def read(self, planned: PlannedBatch, epoch: int) -> Batch | TextBatch:
        """Returns the arrays of the rows of `planned`, a part of a batch of the epoch."""
        if self._batching == "window":
            return _read_windows(cast(Prepared, self._prepared), planned)  # it has one side: it is a text
        return _read(self._prepared, planned, epoch)


def _read(prepared: Records, planned: PlannedBatch, epoch: int = 0) -> Batch | TextBatch:
    records = prepared.records(planned.members, epoch)
    return make_batch(records, planned) if prepared.lengths.shape[1] == 2 else make_text_batch(records, planned)


def _read_windows(text: Prepared, planned: PlannedBatch) -> TextBatch:
    return make_text_batch(text.windows(planned.members, planned.row_length), planned)


class OnePass(Generic[AnyBatch]):
    """Every record once: a known number of batches, each of which is read when its turn comes."""

    def __init__(self, plan: Sequence[Any], read: Callable[[Any], AnyBatch]) -> None:
        self._plan = plan
        self._read = read

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[AnyBatch]:
        return map(self._read, self._plan)


def evaluation_batches(
    prepared: Records,
    tokens: int,
    buckets: Sequence[int],
    shard: ProcessShard = ALL_ROWS,
    limit: int | None = None,
) -> OnePass[Batch | TextBatch]:
    """Returns every pair once, one a row, shortest first, in rows of bucket lengths; longer pairs get longer rows.

    A bucket whose pairs fill no batch is left out, and they get the rows of the next one: each shape is compiled.

    Args:
        prepared: the corpus.
        tokens: the most positions per side in one batch, unless a single row is longer.
        buckets: sequence lengths, ascending; doubled beyond the largest as far as the corpus needs.
        shard: this process's part of every batch.
        limit: the learned positions, if any: no row is longer, unless a pair is.
    """
    # One record a row, so `rows_bc` is [b,1]; nothing is random.
    lengths_n = prepared.lengths.max(axis=1)
    batches = length_batches(lengths_n, _full_buckets(buckets, lengths_n, tokens), tokens=tokens, limit=limit)
    plan = [one_each(batch.members, batch.rows, batch.length) for batch in batches]
    return OnePass(plan, lambda planned: _read(prepared, shard.part_of(planned)))


def _full_buckets(buckets: Sequence[int], lengths_n: Int32[np.ndarray, " n"], tokens: int) -> list[int]:
    """Returns the buckets with at least one full batch; the pairs of a bucket left out go to the next.

    The longest pair's bucket, or the largest, is always included.
    """
    last = min(bisect_left(buckets, int(lengths_n.max(initial=0))), len(buckets) - 1)
    filled = []
    shorter = 0  # pairs that the buckets so far have
    for length in buckets[:last]:
        pairs = int(np.count_nonzero(lengths_n <= length))
        if pairs - shorter >= tokens // length:
            filled.append(length)
            shorter = pairs
    return [*filled, buckets[last]]


def text_batches(
    prepared: Prepared, cfg_data: ConfigDict, shard: ProcessShard = ALL_ROWS, limit: int | None = None
) -> OnePass[Batch | TextBatch]:
    """Returns a text once: as `evaluation_batches`, or, where `data.batching` is window, in rows of `data.pack_length`.

    Rows are independent: the model does not see the text before a row. The last row has the remainder.
    """
    tokens = cfg_data.tokens_per_batch
    if cfg_data.batching != "window":
        return evaluation_batches(prepared, tokens, cfg_data.buckets, shard, limit)
    # Windows one behind the other from the text's first token on: unlike in training, none is left out.
    length = cfg_data.pack_length
    rows = max(1, tokens // length)
    starts = np.arange(0, prepared.lengths.sum(dtype=np.int64), length)
    plan = row_by_row(starts, rows, length)
    return OnePass(plan, lambda planned: _read_windows(prepared, shard.part_of(planned)))
