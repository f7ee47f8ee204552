"""What the training of every task is tested for."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from base.errors import UserError
from train import loop


def refusal(cfg: ConfigDict, workdir: Path, data: Mapping[str, str]) -> str:
    """Returns the line that training is refused with, with these values in `cfg.data`."""
    cfg.data.update(data)
    with pytest.raises(UserError) as caught:
        loop.train(cfg, workdir)
    return str(caught.value)
