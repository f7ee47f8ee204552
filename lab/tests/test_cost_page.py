"""lab/docs/cost.md: the page is that of its records; exponents, and how sizes grow."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lab.benchmarks.cost import corpus, devices, growth, savings, sizes, table
from tests import commands
from vaswani.data.plans import PlannedBatch
from vaswani.errors import UserError
from vaswani.machine import cpus
from vaswani.train.cpu_matmuls import is_faster

GROWTH: dict[str, Any] = {
    "grows": "length",
    "base": {"mixer": "restricted", "impl": "einsum"},
    "values": [8, 16, 32, 64],
    "cpu": [[1.0, 0.01, 0.02, 0.04], [1.0, 0.01, 0.04, 0.16], [1.0, 0.01, 0.02, 0.04]],
    "memory": [2**20, 2**20, 2**22, 2**24],
    "flops": [1, 8, 64, 512],
}


def test_the_page_has_the_tables_of_the_records() -> None:
    assert table.page() == table.PAGE.read_text(encoding="utf-8")


def test_exponents_are_those_of_the_three_largest_sizes_in_each_round() -> None:
    assert growth.slopes(GROWTH["values"], GROWTH["cpu"]) == pytest.approx([1.0, 2.0, 1.0])
    times = ("8 - 64", "1,000 - 40.0", "1.33 ± 0.58")
    (made,) = table.growths("update", {"growths": [GROWTH]})
    assert made.rows == [("length", *times, "3.00", "2", "1 - 16", "2.00")]
    (made,) = table.layers({"growths": [GROWTH]})
    assert made.rows == [("restricted", "r n d", *times, "1", "1 - 16", "2.00")]
    chunked = GROWTH | {"base": {"mixer": "attention", "impl": "chunked"}}
    (made,) = table.layers({"growths": [chunked]})
    assert made.rows[0][:2] == ("attention, chunked", "n² d")


def test_one_size_grows_and_the_others_stay() -> None:
    one = sizes.Growth(sizes.Size(rows=2), "d_model", 2)
    assert [(size.d_model, size.config.d_ff, size.config.d_k, size.rows) for size in one.sizes] == [
        (64, 256, 16, 2),
        (128, 512, 32, 2),
        (256, 1024, 64, 2),
    ]
    assert {(grown.base.mixer, grown.base.impl) for grown in sizes.LAYERS} == set(table.COSTS)
    assert {grown.name for grown in sizes.UPDATE + sizes.SEARCH} == set(table.LIMITS)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "stacks"), [(growth.update, 2), (growth.update, 1), (growth.search, 2)])
def test_a_growth_is_timed_in_rounds(make, stacks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LEAST", 0.0)
    small = sizes.Size(length=8, d_model=8, N=1, vocabulary=16, rows=1, beam=2, stacks=stacks)
    found = growth.measured(sizes.Growth(small, "rows", 1), make, rounds=2)
    assert (found["grows"], found["values"]) == ("rows", [1, 2])
    assert [len(one) for one in found["cpu"]] == [len(one) for one in found["wall"]] == [2, 2]
    assert found["memory"][0] < found["memory"][1]
    is_counted = make is growth.update and stacks == 2
    assert found["flops"] == ([found["flops"][0], 2 * found["flops"][0]] if is_counted else [])


@pytest.mark.slow
def test_two_devices_share_the_operations_and_the_memory_and_one_sends_nothing() -> None:
    found = devices.measured((1, 2))
    for form in devices.FORMS:
        one, two = found[form]
        assert two["flops"] == one["flops"] / 2
        assert two["memory"] < one["memory"]
        assert one["sent"] == 0 < two["sent"]


@pytest.mark.slow
@pytest.mark.skipif(cpus() < 2, reason="this process may use one processor")
def test_a_corpus_is_prepared_alike_by_one_processor_and_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "VOCABULARY", 300)
    found = corpus.measured((200, 400), 0.1)
    assert found["pairs"] == [200, 400]
    for measures in (*found["prepare"].values(), found["bucket"], found["pack"]):
        assert len(measures) == 2
        assert all(value > 0 for one in measures for value in one.values())


def test_what_was_not_measured_says_so_and_a_damaged_record_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(table, "RECORDS", tmp_path)
    assert [made.rows for made in table.tables()] == [[("not run",)]] * len(table.SCHEMAS)
    (tmp_path / "search.json").write_text("{}")
    with pytest.raises(UserError, match=r"search\.json: damaged: it has no 'device'"):
        table.tables()


def test_what_to_measure_is_a_flag() -> None:
    done = commands.run("lab.benchmarks.cost", "update", "--only=nothing")
    told = "error: unexpected argument 'update'; what to measure is given as --only=NAME,NAME\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_one_processor_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.benchmarks import pipeline

    monkeypatch.setattr(pipeline.os, "sched_getaffinity", lambda process: {0, 1})
    pipeline.check(None)
    monkeypatch.setattr(pipeline.os, "sched_getaffinity", lambda process: {0})
    with pytest.raises(UserError, match=r"this process may use one$"):
        pipeline.check(None)


@pytest.mark.parametrize("flag", ["--pairs=10", "--seconds=0"])
def test_a_pipeline_too_short_to_be_measured_is_refused_by_its_flag(flag: str) -> None:
    done = commands.run("lab.benchmarks.pipeline", "--pairs=1000", flag)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: flag {flag}:") and done.stderr.count("\n") == 1


def test_an_unsorted_batch_is_as_long_as_its_longest_pair_and_holds_each_pair_once() -> None:
    lengths_nk = np.random.default_rng(1).integers(3, 40, (150, 2)).astype(np.int32)
    plan = savings.unsorted(lengths_nk)
    assert sorted(np.concatenate([batch.members for batch in plan])) == [*range(150)]
    for batch in plan:
        longest = lengths_nk[batch.members].max()
        assert batch.row_length == min(length for length in savings.LENGTHS if length >= longest)
    assert len({tuple(batch.members[:5] - batch.members[0]) for batch in plan}) == len(plan), "in random order"


def test_speed_counts_an_update_as_often_as_an_epoch_has_its_shape() -> None:
    plan = [PlannedBatch(length, np.zeros((rows, 1), np.int32)) for length, rows in ((8, 4), (8, 4), (16, 2))]
    shapes = savings.shapes_of(plan)
    assert [(shape["length"], shape["rows"], shape["batches"]) for shape in shapes] == [(8, 4, 2), (16, 2, 1)]
    short = {**shapes[0], "cpu": [1.0, 2.0, 1.0], "memory": 2**20}
    long = {**shapes[1], "cpu": [2.0, 2.0, 4.0], "memory": 2**22}
    twice = [{**shape, "cpu": [2 * seconds for seconds in shape["cpu"]]} for shape in (short, long)]
    record = {"pairs": 10, "tokens": [60, 60], "shapes": {"one": [short, long], "other": twice}}
    (made,) = table.savings(record)
    # 60 target tokens in 4, 6 and 6 seconds; 120 of 2 (2 4 8 + 2 16) = 192 positions hold one.
    assert made.rows == [
        ("one", "10", "1.00 (1.00 to 1.00)", "4", "37.5%"),
        ("other", "5", "0.50 (0.50 to 0.50)", "4", "37.5%"),
    ]


@pytest.mark.slow
def test_every_way_to_train_is_timed_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths_nk = np.full((8, 2), 7, np.int32)
    monkeypatch.setattr(savings, "prepare_all", lambda *_, **__: (None, SimpleNamespace(lengths=lengths_nk), None))
    small = {"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "d_k": 8, "d_v": 8, "vocab_size": 50}
    monkeypatch.setattr(savings, "MODEL", dataclasses.replace(savings.MODEL, **small))
    monkeypatch.setattr(savings, "TOKENS", 64)
    record = savings.measured(rounds=2)
    ways = [name for name in savings.ROWS if "bfloat16" not in name or is_faster("bfloat16")]
    assert [*record["shapes"]] == ways
    for shapes in record["shapes"].values():
        assert all(len(shape["cpu"]) == 2 and shape["memory"] > 0 for shape in shapes)
    (made,) = table.savings(record)
    assert [row[0] for row in made.rows] == ways
