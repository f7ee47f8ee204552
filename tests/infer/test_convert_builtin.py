"""`--to=builtin` makes what `--workdir=builtin:NAME` opens."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

# isort: split
from tests import tiny
from vaswani.errors import UserError
from vaswani.infer.convert import builtin
from vaswani.infer.runs import open_run
from vaswani.run import builtin as place


def test_a_run_becomes_one_that_comes_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tmp_path / "pairs.tsv"
    corpus.write_text("".join(f"{source}\t{target}\n" for source, target in tiny.PAIRS), encoding="utf-8")
    run = open_run(tiny.write_run(tmp_path / "run"))
    run.config.data.test = f"tsv:{corpus}"
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    builtin.write(run, folder)

    monkeypatch.setattr(place, "FOLDER", tmp_path / "models")
    again = open_run("builtin:tiny")
    assert again.step == run.step and again.tokenizer.sha256 == run.tokenizer.sha256
    rounded = jax.tree.map(lambda leaf: np.asarray(leaf, np.float16).astype(np.float32), run.params)
    assert jax.tree.all(jax.tree.map(np.array_equal, again.params, rounded))
    records = json.loads((folder / builtin.RECORD).read_text(encoding="utf-8"))
    assert records["float16"]["sentences"] == records["float32"]["sentences"] == len(tiny.PAIRS)


def test_what_float16_cannot_hold_is_refused(tmp_path: Path) -> None:
    run = open_run(tiny.write_run(tmp_path / "run"))
    run.params["embed"][0, 0] = 1e6
    with pytest.raises(UserError, match="too large for float16"):
        builtin.write(run, tmp_path)
