"""Teacher-forced batches hold every pair once, in rows that the model can read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from vaswani.errors import UserError
from vaswani.infer import align, rescore
from vaswani.infer.api import LoadedRun
from vaswani.infer.scores.forced import forced_batches, line_sums

SOURCES = [[5] * length for length in (3, 17, 9, 1, 30)]
TARGETS = [[6] * length for length in (4, 2, 25, 1, 30)]


def test_each_pair_is_a_row_of_its_sides():
    seen = []
    for members, (source_bs, target_bt) in forced_batches(
        lambda *sides: sides, SOURCES, TARGETS, width=8, tokens=64, limit=None
    ):
        assert source_bs.shape == target_bt.shape and source_bs.shape[1] % 8 == 0 and source_bs.size <= 64
        for row, member in enumerate(members):
            assert source_bs[row].sum() == sum(SOURCES[member]) and target_bt[row].sum() == sum(TARGETS[member])
        assert not source_bs[len(members) :].any()
        seen += members
    assert sorted(seen) == [0, 1, 2, 3, 4] and seen[0] == 3 and seen[-1] == 4


@pytest.mark.parametrize(
    ("options", "widths"),
    [
        ({"limit": None}, [8, 8, 24, 32, 32]),
        ({"limit": 30}, [8, 8, 24, 30, 30]),
        ({"limit": None, "doubled": True}, [8, 8, 32, 32, 32]),
    ],
)
def test_row_lengths_are_multiples_or_doubled_and_within_the_limit(options: dict, widths: list[int]):
    found = []
    for members, width in forced_batches(
        lambda *sides: sides[0].shape[1], SOURCES, TARGETS, width=8, tokens=64, **options
    ):
        found += [width] * len(members)
    assert found == widths


def test_rows_are_a_multiple():
    batches = forced_batches(len, SOURCES, width=8, tokens=8, limit=None, multiple=4)
    assert {rows % 4 for _, rows in batches} == {0}


def test_no_pair_makes_no_batch():
    assert list(forced_batches(len, [], [], width=8, tokens=64, limit=None)) == []


def test_a_sentence_too_long_for_the_model_is_a_user_error():
    def model(*sides: np.ndarray) -> None:
        raise ValueError("30 positions; the learned ones are 16")

    with pytest.raises(UserError, match=r"^a sentence is too long for this model: 30 positions"):
        next(forced_batches(model, SOURCES, width=8, tokens=64, limit=16))


def test_a_second_call_compiles_nothing():
    traced = []

    def of_tokens(model, params, source_bs, target_bt):
        traced.append(target_bt.shape)
        return jnp.ones(target_bt.shape)

    for _ in range(2):
        line_sums(of_tokens, tiny.TINY, {}, tiny.tokenizer(), ["a dog"], ["the dog"])
    assert len(traced) == 1


@pytest.mark.parametrize("main", [rescore.main, align.main])
def test_a_line_that_is_too_long_for_the_model_is_named_before_any_is_read(
    main: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny.random_run(N=1, positions="learned", max_positions=20)
    monkeypatch.setattr(f"{main.__module__}.open_run", lambda *arguments: run)
    (tmp_path / "in").write_text("The dog.\n" + "dog " * 30 + "\nA cat.\n")
    (tmp_path / "out").write_text("Der Hund.\nHund\nKatze.\n")
    files = {"source": str(tmp_path / "in"), "target": str(tmp_path / "out"), "nbest": None}
    with pytest.raises(UserError, match=r"^line 2 has 31 subwords, EOS counted, and the model 20 learned positions"):
        main(SimpleNamespace(workdir="x", checkpoint=None, layer=None, **files))


def test_a_line_that_is_too_long_to_be_scored_is_named_before_any_is_translated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = LoadedRun(tiny.random_run(N=1, positions="learned", max_positions=20))
    monkeypatch.setattr(model, "translate", lambda lines: lines)
    with pytest.raises(UserError, match=r"^line 2 has 31 subwords, EOS counted, and the model 20 learned positions"):
        model.score(["The dog.", "dog " * 30], ["Der Hund.", "Hund"])
