"""What the docstrings of designs say of their runs is so."""

import re
from pathlib import Path

import numpy as np
import pytest

from lab.scan import pairs
from lab.studies.g2p import design as g2p
from lab.studies.scan_length import design as scan_length
from vaswani.data.corpora import CORPORA, FOLDER
from vaswani.data.plans import pack_plan


def test_an_update_of_the_runs_by_length_has_as_many_commands_as_their_design_says() -> None:
    cfg = scan_length.get_config()
    rows = [(len(command.split()) + 1, len(actions.split()) + 1) for command, actions in pairs("length-26", "train")]
    plan = pack_plan(np.array(rows, np.int32), tokens=cfg.data.tokens_per_batch, pack_length=cfg.data.pack_length)
    said = re.search(r"hold about (\d+) commands", scan_length.__doc__ or "")
    assert said is not None and int(said[1]) == pytest.approx(len(rows) / len(plan), rel=0.02)


def test_the_pronunciations_read_every_file_that_is_downloaded_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    read: set[str] = set()
    for language in g2p.LANGUAGES:
        data = g2p.get_config(language).data
        read |= {spec.partition(":")[2].partition(":")[0] for spec in (data.train, data.valid, data.test)}
    assert read == {f"{tmp_path}/sigmorphon2021/{file.name}" for file in CORPORA["sigmorphon2021"].files}
