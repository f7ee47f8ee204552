"""The table of the loop's overhead: the page is that of the records, and a row is what its record says."""

from typing import Any

import pytest

from lab.benchmarks.overhead import table
from vaswani.errors import UserError

RECORD: dict[str, Any] = {
    "config": "configs/x.py",
    "changes": {"steps": 4},
    "device": {"cpu": "Fake", "cpus": 2},
    "versions": {"jax": "0"},
    "pairs": 7,
    "updates": 10,
    "every": {"validation": 100, "saving": 50},
    "median": {
        "tokens": 1_000.0,
        "bare_rate": 200.0,
        "bare_cpus": 2.0,
        "loop_cpus": 1.9,
        "share_cpu": 0.8,
        "validation": 5.0,
        "saving": 2.5,
    },
    "rounds": [
        {"share_cpu": 0.1, "compiled": True},
        {"share_cpu": 0.7, "compiled": False},
        {"share_cpu": 0.2, "compiled": True},
        {"share_cpu": 0.9, "compiled": False},
    ],
}


def test_the_page_has_the_table_of_the_records() -> None:
    assert table.page() == table.PAGE.read_text(encoding="utf-8")


def test_a_row_counts_pauses_as_often_as_the_config_has_them() -> None:
    made = table.table({"x": RECORD})
    # 200 updates of 100 tokens: 100 s bare, 125 s in the loop, 2 validations and 4 checkpoints of 10 s each in all.
    row = ("x", "100", "100", "0.800", "0.700 - 0.900", "5.0 s every 100", "2.5 s every 50", "0.690")
    assert made.rows == [row]
    about = "configs/x.py, steps=4: 7 pairs; medians of 2 rounds of 10 updates, of which bare ones had 2.00 and the "
    assert made.notes == [f"{about}loop's 1.90 of 2 processors; Fake, jax 0"]


def test_paths_of_a_machine_are_no_part_of_a_record() -> None:
    changes = {"data.train": "text:x.{en,de}", "data.buckets": (64,)}
    assert table.without_paths(changes) == {"data.buckets": [64]}


def test_a_damaged_record_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(table, "RECORDS", tmp_path)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UserError, match=r"x\.json: damaged: it has no 'config'"):
        table.page()


def test_tokens_are_those_that_the_loss_counts() -> None:
    from types import SimpleNamespace

    import jax.numpy as jnp

    from lab.benchmarks.overhead.rounds import Update

    class Step:
        lower = None

        def __call__(self, state: Any, batch: Any, key: Any) -> Any:
            return state, SimpleNamespace(loss=SimpleNamespace(tokens=jnp.float32(3)))

        def _cache_size(self) -> int:
            return 1

    update = Update(Step())
    first_class: Any = SimpleNamespace(labels_bt=jnp.zeros((3, 4), jnp.int32))
    key: Any = None
    update({"w": jnp.zeros(1)}, first_class, key)
    _, tokens, _ = update.repeat()
    assert tokens == 3


def test_images_are_refused_before_they_are_trained_on() -> None:
    from tests import commands

    done = commands.run("lab.benchmarks.loop_overhead", "--config=configs/vision.py")
    told = "error: config: task is 'vision'; it must be one on text, whose tokens are counted\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
