"""Timing real sentences: what is wrong with the files is said before anything is timed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from base.errors import UserError
from benchmarks import real_text


def test_a_wrong_reference_is_known_before_anything_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_text, "export", lambda options, folder: pytest.fail("begun"))
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("one\ntwo\n")
    options = SimpleNamespace(source=tmp_path / "a", reference=tmp_path / "b", workdir="x", rounds=1)
    with pytest.raises(UserError, match=r"^unequal line counts"):
        real_text.main(options)
