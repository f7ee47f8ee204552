"""The losses of both sides in every case, as lines of a file."""

import json
from importlib.metadata import version
from pathlib import Path

from lab.lockstep.report import RECORDS
from tests import beside_torch
from tests.lockstep import CASES
from vaswani.files import write_text
from vaswani.run.folder import device


def measure(folder: Path) -> None:
    """Trains both sides in every case, and ours from the nudged parameters, and writes the record."""
    about = {"device": device(), "versions": {name: version(name) for name in ("jax", "torch", "transformers")}}
    lines: list[str] = []
    for case in CASES:
        training, model = beside_torch.pair(folder, case)
        theirs = beside_torch.losses(training, model)
        losses = {"ours": training.losses(), "theirs": theirs, "nudged": training.nudged().losses()}
        lines.append(json.dumps({"case": case, **losses, **about}))
    write_text(RECORDS, "".join(f"{line}\n" for line in lines))
