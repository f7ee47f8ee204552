import hashlib
import itertools
import json
import os
import shutil
import threading
import time
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from vaswani.configs.common import default
from vaswani.data.batching import Batch
from vaswani.data.cache import prepare
from vaswani.data.pipeline import ProcessShard, TrainingBatches, check_position, evaluation_batches
from vaswani.data.prepared import Prepared
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError

PAIRS = 90


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("corpus")
    lines = [" ".join(f"w{i}" for _ in range(1 + i % 7)) for i in range(PAIRS)]
    (folder / "c.tsv").write_text("".join(f"{line}\t{line} .\n" for line in lines), "utf-8")
    tokenizer = Tokenizer.train(lines, 290, folder / "t.model")
    return prepare(
        f"tsv:{folder / 'c.tsv'}", tokenizer, cache=folder, max_length=32, max_ratio=9.0, clean=True, progress=False
    )


def batches(prepared: Prepared, mode: str = "bucket", seed: int = 3, **arguments: int) -> TrainingBatches:
    cfg = default().data
    cfg.batching, cfg.buckets, cfg.pack_length, cfg.max_length, cfg.tokens_per_batch = mode, (8, 16, 32), 32, 32, 128
    return TrainingBatches(prepared, cfg, seed=seed, **arguments)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    deadline = time.monotonic() + 30
    while (
        left := [t.name for t in threading.enumerate() if t.name.startswith(("grain", "plan"))]
    ) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def take(iterator: TrainingBatches, count: int) -> list[Batch]:
    return list(itertools.islice(iterator, count))


def check_equal(first: list[Batch], second: list[Batch]) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)


def sentences(batch: Batch) -> list[tuple[int, ...]]:
    """The target sentences of a batch."""
    found = []
    for ids, segments in zip(batch.labels_bt, batch.target.segments_bt, strict=True):
        found += [tuple(ids[segments == segment].tolist()) for segment in range(1, segments.max() + 1)]
    return found


MODES = pytest.mark.parametrize("mode", ["bucket", "pack"])


@MODES
def test_an_epoch_holds_every_pair_once_and_the_next_differs(prepared, mode) -> None:
    iterator = batches(prepared, mode)
    per_epoch = len(iterator.plan(0))
    wanted = sorted(tuple(prepared[i][1].tolist()) for i in range(PAIRS))
    first = take(iterator, per_epoch)
    assert iterator.get_state() == {"epoch": 1, "batch": 0}
    second = take(iterator, len(iterator.plan(1)))
    iterator.close()
    for epoch in (first, second):
        assert sorted(s for batch in epoch for s in sentences(batch)) == wanted
    assert [sentences(b) for b in first] != [sentences(b) for b in second]
    again, other = batches(prepared, mode), batches(prepared, mode, seed=4)
    check_equal(first, take(again, per_epoch))
    assert [sentences(b) for b in first] != [sentences(b) for b in take(other, per_epoch)]
    again.close()
    other.close()


@MODES
def test_resuming_is_exact_from_any_point(prepared, mode) -> None:
    iterator = batches(prepared, mode)
    states, seen = [], []
    for _ in range(2 * len(iterator.plan(0)) + 3):
        states.append(json.loads(json.dumps(iterator.get_state())))
        seen.append(next(iterator))
    iterator.close()
    for start in range(0, len(seen), 3):
        resumed = batches(prepared, mode)
        resumed.set_state(states[start])
        assert resumed.get_state() == states[start]
        check_equal(take(resumed, len(seen) - start), seen[start:])
        resumed.set_state(states[1])  # also of one that is running
        check_equal(take(resumed, 2), seen[1:3])
        resumed.close()
        check_equal(take(resumed, 1), seen[3:4])  # closing keeps the position
        resumed.close()


@MODES
def test_processes_share_the_same_batches_on_any_number_of_devices(prepared, mode) -> None:
    whole = batches(prepared, mode)
    shares = [batches(prepared, mode, shard=ProcessShard(first, end, 3, 6)) for first, end in ((0, 1), (1, 3))]
    for _ in range(2 * len(whole.plan(0))):
        parts, batch = [next(share) for share in shares], next(whole)
        assert 2 * len(parts[0].source.ids_bt) == len(parts[1].source.ids_bt)
        joined = jax.tree.map(lambda *pair: np.concatenate(pair), *parts)
        rows = len(batch.source.ids_bt)
        assert len(joined.source.ids_bt) == -(-rows // 6) * 6
        check_equal([jax.tree.map(lambda part, rows=rows: part[:rows], joined)], [batch])
        assert not any(part[rows:].any() for part in jax.tree.leaves(joined))
    assert shares[0].get_state() == whole.get_state()
    for iterator in (whole, *shares):
        iterator.close()


class Numbers(Tokenizer):
    """The subwords of a text are the numbers that it is made of."""

    def __init__(self) -> None:
        self.sha256, self.vocab_size = "numbers", 4_000

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [list(map(int, text.split())) for text in texts]


GOLDEN = {  # of the first release: a checkpoint's position means these batches
    "bucket": "41b21fd62df4e810",
    "pack": "4e389fcfa1637af5",
    "evaluation": "00c6d858c6ddefab",
}


def in_first_order(batch: Batch) -> list[np.ndarray]:
    """The arrays of a batch, in the order of the first release."""
    source, target, labels_bt = batch
    return [source.ids_bt, target.ids_bt, labels_bt, *source[1:], *target[1:]]


def test_batches_are_the_same_in_every_release(tmp_path) -> None:
    choice = np.random.default_rng(0)
    sides = [[" ".join(map(str, choice.integers(4, 4_000, n))) for n in choice.integers(1, 32, 700)] for _ in range(2)]
    (tmp_path / "c.tsv").write_text("".join(f"{left}\t{right}\n" for left, right in zip(*sides, strict=True)))
    rules = {"max_length": 32, "max_ratio": 9.0, "clean": True, "progress": False}
    prepared = prepare(f"tsv:{tmp_path / 'c.tsv'}", Numbers(), cache=tmp_path, **rules)
    found = {}
    for mode in ("bucket", "pack"):
        iterator = batches(prepared, mode, shard=ProcessShard(1, 3, 3, 6))
        found[mode] = take(iterator, len(iterator.plan(0)) + 5)
        iterator.close()
    found["evaluation"] = list(evaluation_batches(prepared, 128, (8, 16)))
    for name, golden in GOLDEN.items():
        digest = hashlib.sha256()
        for array in itertools.chain.from_iterable(map(in_first_order, found[name])):
            digest.update(repr((array.shape, str(array.dtype))).encode() + array.tobytes())
        assert digest.hexdigest()[:16] == golden, name


def test_shapes_are_few_and_known(prepared) -> None:
    iterator = batches(prepared, shard=ProcessShard(multiple=2))
    shapes = {batch.source.ids_bt.shape for batch in take(iterator, 60)}
    iterator.close()
    assert shapes <= {(16, 8), (8, 16), (4, 32)}


def test_an_error_in_the_thread_is_raised_by_next_again_and_again(prepared, monkeypatch) -> None:
    iterator = batches(prepared)
    calls = iter([*[iterator._prepared.records] * 3])

    def records(indices, epoch):
        function = next(calls, None)
        if function is None:
            raise OSError("disk gone")
        return function(indices, epoch)

    monkeypatch.setattr(prepared, "records", records, raising=False)
    take(iterator, 3)
    for _ in range(2):
        with pytest.raises(OSError, match="disk gone"):
            next(iterator)
    assert iterator.get_state()["batch"] == 3
    iterator.close()


@MODES
def test_batches_go_on_when_the_prepared_data_are_removed(prepared, mode, tmp_path) -> None:
    wanted = batches(prepared, mode)
    shutil.copytree(prepared.folder, tmp_path / "copy")
    copy = Prepared(tmp_path / "copy")
    iterator = batches(copy, mode)
    shutil.rmtree(tmp_path / "copy")
    count = 2 * len(wanted.plan(0))
    check_equal(take(iterator, count), take(wanted, count))
    check_equal(list(evaluation_batches(copy, 64, (8, 16))), list(evaluation_batches(prepared, 64, (8, 16))))
    iterator.close()
    wanted.close()


def test_prepared_data_that_are_cut_short_are_one_line(prepared, tmp_path) -> None:
    shutil.copytree(prepared.folder, tmp_path / "copy")
    iterator = batches(Prepared(tmp_path / "copy"))
    os.truncate(tmp_path / "copy" / "ids.bin", 100)
    with pytest.raises(UserError, match=r"copy/ids\.bin: shorter than it was"):
        take(iterator, 9)
    iterator.close()


def test_settings_that_do_not_fit_are_said(prepared) -> None:
    def fails(match: str, **keys: object) -> None:
        cfg = default().data
        cfg.update(keys)
        with pytest.raises(UserError, match=match):
            iterator = TrainingBatches(prepared, cfg, seed=0)
            try:
                next(iterator)
            finally:
                iterator.close()

    fails(r"data\.max_length is 300, but the largest of data\.buckets is 256", max_length=300)
    fails(r"data\.max_length is 256, but data\.pack_length is 64", batching="pack", pack_length=64)
    fails(r"data\.tokens_per_batch is 20: too few", tokens_per_batch=20)
    iterator = batches(prepared)
    count = len(iterator.plan(0))
    for batch in (count, 10_000):
        iterator.set_state({"epoch": 0, "batch": batch})
        with pytest.raises(UserError, match=f"batch {batch} of an epoch of {count};"):
            next(iterator)
    iterator.close()


def test_evaluation_takes_every_pair_once_in_order_of_length(prepared) -> None:
    for buckets in ((8, 16, 32), (2,)):
        found = list(evaluation_batches(prepared, 64, buckets))
        wanted = sorted(tuple(prepared[i][1].tolist()) for i in range(PAIRS))
        assert sorted(s for batch in found for s in sentences(batch)) == wanted
        widths = [batch.source.ids_bt.shape[1] for batch in found]
        assert widths == sorted(widths)
        assert all(batch.source.ids_bt.size <= 64 for batch in found)
        assert all(batch.source.segments_bt.max() == 1 for batch in found)
    assert all(batch.source.ids_bt.shape[0] == 1 for batch in evaluation_batches(prepared, 1, (32,)))


def test_evaluation_leaves_out_buckets_that_fill_no_batch() -> None:
    def shapes(lengths: list[int], tokens: int = 16) -> list[tuple[int, ...]]:
        prepared = SimpleNamespace(
            lengths=np.array([[length, 1] for length in lengths], np.int32),
            manifest={},
            records=lambda members, epoch: [(np.ones(lengths[i], np.int32), np.ones(1, np.int32)) for i in members],
        )
        found = evaluation_batches(prepared, tokens, (2, 4, 8))
        return [batch.source.ids_bt.shape for batch in found]

    assert shapes([2] * 8 + [4] * 4) == [(8, 2), (4, 4)], "each is full"
    assert shapes([2] * 8 + [4] * 3 + [8]) == [(8, 2), (2, 8), (2, 8)], "three of four rows of 4: they move to 8"
    assert shapes([2] * 2 + [4] * 2 + [8]) == [(4, 4), (2, 8)], "those of 2 fill the rows of 4"
    assert shapes([2] * 3) == [(8, 2)], "none is longer than the longest pair needs"
    assert shapes([2, 9]) == [(2, 8), (1, 16)], "beyond the largest, it is doubled"


@pytest.mark.parametrize("state", [[], {}, {"epoch": 1}, {"epoch": "1", "batch": 0}, {"epoch": -1, "batch": 0}])
def test_what_is_no_position_is_one_line(state: Any) -> None:
    with pytest.raises(UserError, match=r"^data position: .*; it must be the whole numbers epoch and batch$"):
        check_position(state)
