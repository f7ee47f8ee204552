"""What the docstrings of designs say of their runs is so."""

import re

import numpy as np
import pytest

from data.plans import pack_plan
from data.scan import pairs
from lab.studies.scan_length import design as scan_length


def test_an_update_of_the_runs_by_length_has_as_many_commands_as_their_design_says() -> None:
    cfg = scan_length.get_config()
    rows = [(len(command.split()) + 1, len(actions.split()) + 1) for command, actions in pairs("length-26", "train")]
    plan = pack_plan(np.array(rows, np.int32), tokens=cfg.data.tokens_per_batch, pack_length=cfg.data.pack_length)
    said = re.search(r"hold about (\d+) commands", scan_length.__doc__ or "")
    assert said is not None and int(said[1]) == pytest.approx(len(rows) / len(plan), rel=0.02)
