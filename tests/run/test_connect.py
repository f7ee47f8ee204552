"""The variables of several TPU slices, which may be left from before a preemption, do not keep a start waiting."""

import os
from types import SimpleNamespace

import jax
import pytest

from vaswani.errors import UserError
from vaswani.run.connect import connect


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)  # so that `connect` only checks


SLICES = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")


@pytest.mark.parametrize(
    ("values", "processes"),
    [(("2", "2", "host"), None), (("", "1", "host"), None), (("x", "0", "host"), None), (("3", "0", "host"), 8)],
)
def test_variables_of_slices_that_cannot_be_right_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, str, str], processes: int | None
) -> None:
    for name, value in zip(SLICES, values, strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises(
        UserError, match=r"MEGASCALE_SLICE_ID=., MEGASCALE_COORDINATOR_ADDRESS=host: this cannot be right"
    ):
        connect(SimpleNamespace(coordinator=None, processes=processes, process=None))


def test_variables_of_slices_are_ignored_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, processes in (("3", 1), ("1", None)):
        for name, value in zip(SLICES, (number, "0", "gone"), strict=True):
            monkeypatch.setenv(name, value)
        connect(SimpleNamespace(coordinator=None, processes=processes, process=None))
        assert not os.environ.keys() & set(SLICES)
        assert f"are ignored: MEGASCALE_NUM_SLICES={number}, " in capsys.readouterr().err


def test_a_start_says_for_how_many_slices_it_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in zip(SLICES, ("3", "1", "host"), strict=True):
        monkeypatch.setenv(name, value)
    connect(SimpleNamespace(coordinator=None, processes=None, process=None))
    assert capsys.readouterr().err.startswith("note: waiting for 3 slices (MEGASCALE_NUM_SLICES=3, ")
