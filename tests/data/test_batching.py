import hashlib
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vaswani.data import plans
from vaswani.data.batching import Batch, make_batch
from vaswani.data.length_batches import length_batches
from vaswani.data.plans import PlannedBatch, bucket_plan, pack_plan, window_plan
from vaswani.data.sources import open_corpus
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS
from vaswani.tokens import Tokens

BUCKETS = (4, 8, 16)
PLANS = {
    "bucket": partial(bucket_plan, buckets=BUCKETS),
    "pack": partial(pack_plan, pack_length=16),
}
PLAN = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
lengths = st.lists(st.tuples(st.integers(1, 16), st.integers(1, 16)), min_size=1, max_size=200).map(
    lambda pairs: np.array(pairs, np.int32)
)


def many(count: int, seed: int = 0, longest: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, longest + 1, (count, 2), dtype=np.int32)


def members(batches: list[PlannedBatch]) -> np.ndarray:
    flat = np.concatenate([batch.rows_bc.ravel() for batch in batches])
    return flat[flat >= 0]


def same(first: list[PlannedBatch], second: list[PlannedBatch]) -> bool:
    return len(first) == len(second) and all(
        one.row_length == other.row_length and np.array_equal(one.rows_bc, other.rows_bc)
        for one, other in zip(first, second, strict=True)
    )


def non_pad_share(lengths_n2: np.ndarray, batches: list[PlannedBatch]) -> float:
    positions = sum(len(b.rows_bc) * 2 * b.row_length for b in batches)
    return float(lengths_n2.sum() / positions)


@PLAN
@given(lengths, st.integers(16, 100), st.integers(0, 5), st.integers(0, 5))
@settings(deadline=None)
def test_every_pair_once_in_rows_that_hold_it(plan, lengths_n2, tokens, seed, epoch) -> None:
    batches = plan(lengths_n2, tokens=tokens, seed=seed, epoch=epoch)
    assert sorted(members(batches)) == list(range(len(lengths_n2)))
    for batch in batches:
        assert len(batch.rows_bc) == tokens // batch.row_length
        for row in batch.rows_bc:
            source, target = lengths_n2[row[row >= 0]].sum(axis=0)
            assert max(source, target) <= batch.row_length


@PLAN
def test_epochs_are_repeatable_and_differ(plan) -> None:
    lengths_n2 = many(500)
    first = plan(lengths_n2, tokens=64, seed=1, epoch=2)
    assert same(first, plan(lengths_n2, tokens=64, seed=1, epoch=2))
    for seed, epoch in ((1, 3), (2, 2), (2, 1)):
        other = plan(lengths_n2, tokens=64, seed=seed, epoch=epoch)
        assert not same(first, other)
        assert {tuple(sorted(members([b]))) for b in first} != {tuple(sorted(members([b]))) for b in other}


def test_buckets_shuffle_lengths_over_the_epoch() -> None:
    lengths_n2 = many(2000)
    order = [batch.row_length for batch in bucket_plan(lengths_n2, tokens=64, buckets=BUCKETS)]
    assert order != sorted(order) and order != sorted(order, reverse=True)
    batch = next(b for b in bucket_plan(lengths_n2, tokens=640, buckets=BUCKETS) if b.row_length == 16)
    ids = batch.rows_bc.ravel()
    assert list(ids) != sorted(ids)


def test_leftovers_move_up_the_longest_first() -> None:
    lengths_n2 = np.array([[2, 2]] * 3 + [[3, 4]] * 2 + [[4, 3]] + [[6, 6]] * 2, np.int32)
    batches = bucket_plan(lengths_n2, tokens=16, buckets=(4, 8, 16))
    short = [set(members([b])) for b in batches if b.row_length == 4]
    assert len(short) == 1 and {0, 1, 2} < short[0]
    assert sorted(len(members([b])) for b in batches if b.row_length == 8) == [2, 2]
    # Nothing is longer than 8, so nothing is promoted to 16: the rest gets a part-empty batch of 8.
    assert {b.row_length for b in bucket_plan(lengths_n2[:-1], tokens=16, buckets=(4, 8, 16))} == {4, 8}


def test_at_most_one_bucket_batch_has_empty_rows() -> None:
    batches = bucket_plan(many(999), tokens=64, buckets=BUCKETS)
    assert sum(bool((batch.rows_bc < 0).any()) for batch in batches) <= 1


@PLAN
def test_too_small_a_budget_or_row_is_said(plan) -> None:
    with pytest.raises(UserError, match=r"data\.tokens_per_batch is 15: too few for a row of 16 tokens"):
        plan(many(50), tokens=15)
    with pytest.raises(UserError, match=r"data\.(buckets|pack_length).* a pair has 17 tokens"):
        plan(np.array([[3, 17]], np.int32), tokens=64)


def test_packing_is_tight() -> None:
    for count in (3_000, 50_000):
        lengths_n2 = many(count, longest=40)
        assert non_pad_share(lengths_n2, pack_plan(lengths_n2, tokens=1024, pack_length=256)) > 0.92


@pytest.mark.parametrize(
    ("plan", "most", "golden"), [("bucket", 20, "e8fc7dd376b139ce"), ("pack", 46, "c04bcc4f35c27574")]
)
def test_planning_takes_few_bytes_a_pair_and_plans_as_ever(plan: str, most: int, golden: str) -> None:
    """Two sizes, so that what a corpus of any size needs does not count; the hashes are of the first release."""
    peaks = []
    for count in (20_000, 200_000):
        lengths_n2 = many(count)
        tracemalloc.start()
        batches = PLANS[plan](lengths_n2, tokens=1024, seed=1, epoch=2)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 180_000 < most
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(repr((batch.row_length, (batch.rows_bc >= 0).sum(axis=1).tolist())).encode())
        digest.update(batch.rows_bc[batch.rows_bc >= 0].tobytes())
    assert digest.hexdigest()[:16] == golden


def arrays(batch: Batch) -> list[np.ndarray]:
    return [*batch.source, *batch.target, batch.labels_bt]


def test_rows_as_arrays() -> None:
    records = [
        (np.array([11, 12, EOS]), np.array([21, EOS])),
        (np.array([13, EOS]), np.array([22, 23, EOS])),
        (np.array([14, EOS]), np.array([24, EOS])),
    ]
    batch = make_batch(records, PlannedBatch(6, np.array([[0, 1], [2, -1], [-1, -1]], np.int32)))
    target_segments = [[1, 1, 2, 2, 2, 0], [1, 1, 0, 0, 0, 0], [0] * 6]
    target_positions = [[0, 1, 0, 1, 2, 0], [0, 1, 0, 0, 0, 0], [0] * 6]
    source = Tokens(
        ids_bt=[[11, 12, 2, 13, 2, 0], [14, 2, 0, 0, 0, 0], [0] * 6],
        segments_bt=[[1, 1, 1, 2, 2, 0], [1, 1, 0, 0, 0, 0], [0] * 6],
        positions_bt=[[0, 1, 2, 0, 1, 0], [0, 1, 0, 0, 0, 0], [0] * 6],
    )
    target = Tokens([[1, 21, 1, 22, 23, 0], [1, 24, 0, 0, 0, 0], [0] * 6], target_segments, target_positions)
    labels = [[21, 2, 22, 23, 2, 0], [24, 2, 0, 0, 0, 0], [0] * 6]
    for array, wanted in zip(arrays(batch), (*source, *target, labels), strict=True):
        np.testing.assert_array_equal(array, np.array(wanted))
        assert array.dtype == np.int32
    empty = make_batch([], PlannedBatch(6, np.full((2, 1), -1, np.int32)))
    assert all(not array.any() for array in arrays(empty)) and empty.target.ids_bt.shape == (2, 6)


@given(
    st.lists(st.integers(1, 70), max_size=60),
    st.integers(1, 80),
    st.integers(1, 4),
    st.integers(1, 8),
)
@settings(deadline=None)
def test_length_batches_hold_every_sentence_once_in_few_shapes(lengths_n, tokens, multiple, small) -> None:
    found = length_batches(lengths_n, (4, 8, 12), tokens=tokens, multiple=multiple, small=small)
    order = [member for batch in found for member in batch.members]
    assert order == sorted(range(len(lengths_n)), key=lambda i: lengths_n[i])
    for batch in found:
        assert batch.length in (4, 8, 12, 24, 48, 96)
        assert all(
            batch.length >= lengths_n[i] > {4: 0, 8: 4, 12: 8}.get(batch.length, batch.length / 2)
            for i in batch.members
        )
        assert 0 < len(batch.members) <= max(1, tokens // batch.length)
    for length in {batch.length for batch in found}:
        full = max(1, tokens // length)
        counts = {-(-rows // multiple) * multiple for rows in (full, max(1, full // small))}
        assert {batch.rows for batch in found if batch.length == length} <= counts


def test_length_batches_are_full_but_for_the_last_of_a_length() -> None:
    def shapes(lengths_n: list[int], **options: int) -> list[tuple[int, int, int]]:
        return [(b.length, b.rows, len(b.members)) for b in length_batches(lengths_n, (8, 16), tokens=64, **options)]

    assert shapes([8] * 17 + [9]) == [(8, 8, 8), (8, 8, 8), (8, 8, 1), (16, 4, 1)]
    assert shapes([8] * 18 + [9], small=4) == [(8, 8, 8), (8, 8, 8), (8, 2, 2), (16, 1, 1)]
    assert shapes([8] * 19, small=4, multiple=3) == [(8, 9, 8), (8, 9, 8), (8, 9, 3)]
    assert shapes([200]) == [(256, 1, 1)] and shapes([]) == []
    assert shapes([7, 20], limit=21) == [(8, 8, 1), (21, 3, 1)]
    assert shapes([9, 33], limit=32) == [(16, 4, 1), (33, 1, 1)]
    assert shapes([12], limit=13) == [(13, 4, 1)] and shapes([], limit=4) == []


@PLAN
@given(lengths)
@settings(deadline=None, max_examples=30)
def test_sentences_can_be_read_back(plan, lengths_n2) -> None:
    pairs = [tuple(np.append(np.arange(4, 3 + n) + 20 * i, EOS) for n in pair) for i, pair in enumerate(lengths_n2)]
    found = []
    for planned in plan(lengths_n2, tokens=48):
        batch = make_batch([pairs[i] for i in planned.rows_bc[planned.rows_bc >= 0]], planned)
        for row, indices in enumerate(planned.rows_bc):
            for segment, index in enumerate(indices[indices >= 0], 1):
                source = batch.source.segments_bt[row] == segment
                target = batch.target.segments_bt[row] == segment
                np.testing.assert_array_equal(batch.source.ids_bt[row, source], pairs[index][0])
                np.testing.assert_array_equal(batch.labels_bt[row, target], pairs[index][1])
                np.testing.assert_array_equal(batch.target.ids_bt[row, target], [BOS, *pairs[index][1][:-1]])
                np.testing.assert_array_equal(batch.target.positions_bt[row, target], np.arange(target.sum()))
                found.append(index)
        for ids, segments in (
            (batch.source.ids_bt, batch.source.segments_bt),
            (batch.target.ids_bt, batch.target.segments_bt),
            (batch.labels_bt, batch.target.segments_bt),
        ):
            np.testing.assert_array_equal(ids != 0, segments != 0)
    assert sorted(found) == list(range(len(pairs)))


@pytest.mark.slow
def test_non_pad_share_of_multi30k(tmp_path: Path) -> None:
    folder = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
    if not folder.exists():
        pytest.skip("no Multi30k here")
    lines = [text for pair in open_corpus(f"text:{folder}/train.{{en,de}}.gz").pairs() for text in pair]
    tokenizer = Tokenizer.train(lines, 8_000, tmp_path / "tokenizer.model")
    lengths_n2 = np.array([len(ids) + 1 for ids in tokenizer.encode_batch(lines)], np.int32).reshape(-1, 2)
    buckets = (10, 12, 14, 16, 18, 20, 23, 27, 32, 40, 52, 72, 128, 256)
    for tokens in (4_096, 8_192):
        assert non_pad_share(lengths_n2, bucket_plan(lengths_n2, tokens=tokens, buckets=buckets)) >= 0.85
        assert non_pad_share(lengths_n2, pack_plan(lengths_n2, tokens=tokens, pack_length=256)) >= 0.92


def test_a_corpus_of_several_parts_is_packed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths_n2 = np.random.default_rng(0).integers(1, 9, (300, 2), dtype=np.int32)
    whole = pack_plan(lengths_n2, tokens=64, pack_length=16)
    monkeypatch.setattr(plans, "_AT_ONCE", 64)
    parts = pack_plan(lengths_n2, tokens=64, pack_length=16)
    assert all(np.array_equal(one.rows_bc, other.rows_bc) for one, other in zip(whole, parts, strict=True))
    numbers = np.concatenate([batch.rows_bc.ravel() for batch in parts])
    assert sorted(numbers[numbers >= 0].tolist()) == list(range(300))


def test_a_text_whose_places_need_more_than_32_bits_is_refused() -> None:
    with pytest.raises(UserError, match=r"the text has 2,147,483,648 ids: too few, or more than 2\^31"):
        window_plan(1 << 31, tokens=64, length=16)
